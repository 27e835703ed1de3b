package asteria

import (
	"fmt"
	"sort"
	"strings"
	"unsafe"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/invroot"
	"github.com/asteria-runtime/asteria/kron"
)

// The classes into which a plan sorts bytes.
const (
	ClassFactors = "factors" // statistics
	ClassRoots   = "roots"   // inverse roots, bases, gains
	ClassMoments = "moments" // first and second moments, grafting included
	ClassCounter = "counters"
	ClassScratch = "scratch" // working memory of the threads, shared by all blocks
	ClassJobs    = "jobs"    // snapshots and results of refreshes in flight
	ClassSolver  = "solver"  // working memory of the refreshes, within a few percent
	ClassKernels = "kernels" // packing memory of the workers' engines, roughly
)

var classes = []string{ClassFactors, ClassRoots, ClassMoments, ClassCounter, ClassScratch, ClassJobs, ClassSolver, ClassKernels}

// Line is the state of one parameter, or of all for a shared class.
type Line struct {
	Name   string // parameter, or "" for what is shared
	Dims   []int
	Method string           // name of the method that updates it
	Blocks int              // blocks it is cut into
	Bytes  map[string]int64 // per class
}

// Total returns the bytes of the line.
func (l Line) Total() int64 {
	n := int64(0)
	for _, b := range l.Bytes {
		n += b
	}
	return n
}

// Plan is what the optimizer will allocate, known before it does. All of it
// lies in host memory; parameters and gradients belong to the model.
type Plan struct {
	Lines []Line // in the order of names, shared memory last
	// Pending is what a checkpoint holds beside the state, and again what an
	// asynchronous save copies: the results of refreshes in flight. It is part of
	// ClassJobs.
	Pending int64

	// Placed is what [Options.Tiers] places, in bytes, when all of it exists at
	// once: state, snapshots and results, in objects of whole pages. It is part of
	// the lines, but for the padding of the pages.
	Placed int64
	// Group is the most bytes that have to be in addressable tiers at once: what the
	// step of the largest block touches when a refresh runs inside it.
	Group int64
	// Largest is the bytes of the largest object that is placed.
	Largest int64
	// Device is the accelerator's memory, where there is one.
	Device DeviceNeed
}

// Total returns the bytes of all lines.
func (p Plan) Total() int64 {
	n := int64(0)
	for _, l := range p.Lines {
		n += l.Total()
	}
	return n
}

// Class returns the bytes of one class over all lines.
func (p Plan) Class(class string) int64 {
	n := int64(0)
	for _, l := range p.Lines {
		n += l.Bytes[class]
	}
	return n
}

// Check refuses a plan above limit bytes and shows the arithmetic: the classes
// and the largest parameters. A limit of 0 accepts everything.
func (p Plan) Check(limit int64) error {
	total := p.Total()
	if limit == 0 || total <= limit {
		return nil
	}
	var parts []string
	for _, c := range classes {
		if n := p.Class(c); n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", c, n))
		}
	}
	lines := append([]Line(nil), p.Lines...)
	sort.SliceStable(lines, func(i, j int) bool { return lines[i].Total() > lines[j].Total() })
	var top []string
	for _, l := range lines[:min(3, len(lines))] {
		top = append(top, fmt.Sprintf("%s %v %d", or(l.Name, "shared"), l.Dims, l.Total()))
	}
	return fmt.Errorf("asteria: the optimizer needs %d bytes (%s), the limit is %d, over by %d; largest: %s",
		total, strings.Join(parts, " + "), limit, total-limit, strings.Join(top, ", "))
}

// PlanFor computes the plan for parameters of the given shapes with elements
// of type T on an engine of so many threads. It allocates no state.
func PlanFor[T gemm.Float](shapes []Shape, threads int, o Options) (Plan, error) {
	if err := o.Validate(); err != nil {
		return Plan{}, err
	}
	var live []Shape
	for _, s := range shapes {
		if size(s.Dims) > 0 {
			live = append(live, s)
		}
	}
	sites, rest, err := route[T](live, o)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{}
	lines := make(map[int]*Line, len(live))
	owner := owners(sites, o.Peers.size())
	for i, s := range sites {
		l := lineOf(lines, live, s.index, o.Method.String())
		l.Blocks++
		addBlock(l, s.block)
		if o.perBlock() {
			result := addTask(l, s.block, o.Peers.refreshes(owner[i]))
			if o.Mode == Asteria {
				p.Pending += result
			}
		}
		if o.Tiers != nil {
			p.place(blockObjects(s.block, o.Mode == Asteria))
		}
	}
	elem := int64(unsafe.Sizeof(T(0)))
	for _, i := range rest {
		l := lineOf(lines, live, i, "adamw")
		l.Bytes[ClassMoments] = o.aux(nil).Bytes(int64(size(live[i].Dims)), elem)
		if o.Tiers != nil {
			p.place(objectBytes[T](2 * size(live[i].Dims)))
		}
	}
	for _, l := range lines {
		p.Lines = append(p.Lines, *l)
	}
	sort.Slice(p.Lines, func(i, j int) bool { return p.Lines[i].Name < p.Lines[j].Name })
	if len(sites) > 0 {
		p.Lines = append(p.Lines, sharedLine(sites, threads, o))
		p.Device = deviceNeed(sites, threads, o, p.Placed)
	}
	return p, nil
}

// place counts objects that are leased together.
func (p *Plan) place(objects ...int64) {
	group := int64(0)
	for _, n := range objects {
		group += n
		p.Largest = max(p.Largest, n)
	}
	p.Placed += group
	p.Group = max(p.Group, group)
}

// blockObjects returns the sizes of a block's objects: factors, the rest of its
// state, and with refreshes beside training a snapshot and a result.
func blockObjects[T gemm.Float](b *kron.Block[T], beside bool) (bytes int64) {
	_, n := slots(b.Layout())
	for _, elements := range n {
		if elements > 0 {
			bytes += objectBytes[T](elements)
		}
	}
	if beside {
		result, _ := b.ResultLen()
		bytes += objectBytes[T](b.SnapshotLen()) + objectBytes[T](result)
	}
	return bytes
}

// CheckTiers refuses tiers that cannot hold what is placed in them, with the arithmetic.
func (p Plan) CheckTiers(t *Tiers) error {
	if t == nil {
		return nil
	}
	ram := t.Device + t.Host
	switch {
	case t.Host == 0:
		return nil
	case p.Group > ram:
		return fmt.Errorf("asteria: tiers: the largest block's step needs %d bytes at once, device %d + host %d = %d: %d too few",
			p.Group, t.Device, t.Host, ram, p.Group-ram)
	case p.Placed <= ram:
		return nil
	case t.NVMe == nil:
		return fmt.Errorf("asteria: tiers: the optimizer's state needs %d bytes (%s), device %d + host %d = %d: %d too few without NVMe",
			p.Placed, p.stateClasses(), t.Device, t.Host, ram, p.Placed-ram)
	case t.NVMeSize > 0 && p.Placed+p.slack(t) > ram+t.NVMeSize:
		return fmt.Errorf("asteria: tiers: the optimizer's state needs %d bytes (%s) and %d free to move its largest object, device %d + host %d + NVMe %d = %d: %d too few",
			p.Placed, p.stateClasses(), p.slack(t), t.Device, t.Host, t.NVMeSize, ram+t.NVMeSize, p.Placed+p.slack(t)-ram-t.NVMeSize)
	}
	return nil
}

// slack is what must stay free of bounded tiers, the last of which is NVMe.
func (p Plan) slack(t *Tiers) int64 {
	bounded := 2
	if t.Device > 0 {
		bounded = 3
	}
	return p.Slack(bounded)
}

// Slack returns the bytes that must stay free when so many bounded tiers hold the
// state between them: an object is whole, and with a gap of less than the largest
// in each tier nothing could move.
func (p Plan) Slack(bounded int) int64 { return int64(bounded) * p.Largest }

// stateClasses is the arithmetic behind Placed, but for padding.
func (p Plan) stateClasses() string {
	var parts []string
	for _, c := range []string{ClassFactors, ClassRoots, ClassMoments, ClassJobs} {
		if n := p.Class(c); n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", c, n))
		}
	}
	return strings.Join(parts, " + ")
}

func lineOf(lines map[int]*Line, shapes []Shape, i int, method string) *Line {
	if lines[i] == nil {
		lines[i] = &Line{Name: shapes[i].Name, Dims: shapes[i].Dims, Method: method, Bytes: map[string]int64{}}
	}
	return lines[i]
}

// addBlock adds the sections of b to l.
func addBlock[T gemm.Float](l *Line, b *kron.Block[T]) {
	elem := int64(unsafe.Sizeof(T(0)))
	for _, s := range b.Layout().Sections {
		class := ClassMoments
		switch s.Kind {
		case kron.KindFactor:
			class = ClassFactors
		case kron.KindRoot, kron.KindBasis, kron.KindGain:
			class = ClassRoots
		}
		l.Bytes[class] += elem * int64(s.Len)
	}
	l.Bytes[ClassCounter] += int64(unsafe.Sizeof(kron.Meta{}))
}

// addTask adds the memory of b's refresh in flight: the snapshot, the result
// that becomes the spare slot, and the permutations as a checkpoint takes them. A
// rank that does not run the refresh has no snapshot. It returns the bytes of the
// result.
func addTask[T gemm.Float](l *Line, b *kron.Block[T], runs bool) (result int64) {
	elem, index := int64(unsafe.Sizeof(T(0))), int64(unsafe.Sizeof(int(0)))
	elements, indices := b.JobLen()
	if !runs {
		elements -= b.SnapshotLen()
	}
	l.Bytes[ClassJobs] += elem*int64(elements) + 2*index*int64(indices) + int64(unsafe.Sizeof(task[T]{}))
	kept, _ := b.ResultLen()
	return elem*int64(kept) + index*int64(indices) + int64(unsafe.Sizeof(pendingMeta{}))
}

// sharedLine is the working memory of the workers that [New] makes: one over
// all blocks that every thread joins in, and one per thread over the others.
func sharedLine[T gemm.Float](sites []site[T], threads int, o Options) Line {
	l := Line{Method: o.Method.String(), Bytes: map[string]int64{}}
	alone, queue := divide(sites, threads)
	addWorkers(&l, alone, min(1, len(alone)), o)
	addWorkers(&l, queue, min(threads, threads*len(queue)), o)
	if o.Mode == Asteria {
		all := append(append([]*kron.Block[T](nil), alone...), queue...)
		addSolvers(&l, all, o.Async.workers(), o, lateDouble(o))
		if o.movesBeside() {
			elem := int64(unsafe.Sizeof(T(0)))
			l.Bytes[ClassScratch] += int64(o.Async.workers()) * elem * int64(kron.MoveScratchLen(all...))
		}
	}
	return l
}

func addWorkers[T gemm.Float](l *Line, blocks []*kron.Block[T], workers int, o Options) {
	if workers == 0 {
		return
	}
	elem := int64(unsafe.Sizeof(T(0)))
	scratch := int64(kron.ScratchLen(blocks...))
	elements, indices := kron.WorkerLen(blocks...)
	each := int64(workers)
	l.Bytes[ClassScratch] += each * elem * scratch
	if !o.perBlock() {
		l.Bytes[ClassJobs] += each * (elem*(int64(elements)-scratch) + int64(unsafe.Sizeof(int(0)))*int64(indices))
	}
	addSolvers(l, blocks, workers, o, true)
}

// addSolvers adds what so many workers need to refresh any of the blocks;
// ill says that they meet matrices too ill-conditioned for float32.
func addSolvers[T gemm.Float](l *Line, blocks []*kron.Block[T], workers int, o Options, ill bool) {
	elem := int64(unsafe.Sizeof(T(0)))
	double := ill && usesDouble(elem, o)
	l.Bytes[ClassSolver] += int64(workers) * solverBytes(int64(largestFactor(blocks)), elem, o, double)
	l.Bytes[ClassKernels] += int64(workers) * kernelBytes(int64(largestFactor(blocks)), double)
}

// solverBytes is a solver's working memory for orders up to n: four matrices
// and about 360 vectors (reflectors, the recursion of divide and conquer), 200
// more for the panels of a QR, a fifth matrix for the QR algorithm; and all but
// those panels once more in float64 where float32 may not suffice.
func solverBytes(n, elem int64, o Options, double bool) int64 {
	core := 4*n*n + 360*n
	total := elem * core
	if o.Method != kron.Shampoo {
		total += elem * 200 * n
	}
	if onlyQR(o) {
		total += elem * n * n
	}
	if double {
		total += 8 * core
	}
	return total
}

// onlyQR reports whether refreshes run the QR algorithm and nothing else.
func onlyQR(o Options) bool {
	return o.Method == kron.EigenShampoo && o.Kron.Basis == kron.RefreshQR
}

// usesDouble reports whether a float32 solver will meet a matrix that it sends
// to float64: the first factors are rank deficient, so that every method meets
// one, except where only the QR algorithm runs.
func usesDouble(elem int64, o Options) bool {
	return elem == 4 && (o.Solver.Precision == invroot.Double || (o.Solver.Precision == invroot.Auto && !onlyQR(o)))
}

// lateDouble reports whether refreshes beside training are of the kind that meets
// ill-conditioned matrices: all but steps of orthogonal iteration, since the first
// decompositions of rank-deficient factors run inside the step.
func lateDouble(o Options) bool {
	iterates := (o.Method == kron.SOAP || o.Method == kron.KLShampoo || o.Method == kron.KLSOAP) && o.Kron.Basis == kron.RefreshQR
	return !iterates || o.Solver.Precision == invroot.Double
}

// kernelBytes is what an engine packs panels into, roughly: little for the products of
// an orthogonal iteration, for a decomposition of order n a block of each operand.
func kernelBytes(n int64, decomposes bool) int64 {
	if !decomposes {
		return 256 << 10
	}
	const depth, rows, columns = 512, 2048, 528 // of the widest kernels' blocks in float32
	return 4 * min(n, depth) * (min(n, rows) + min(n, columns))
}

// size is the product of dims.
func size(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}
