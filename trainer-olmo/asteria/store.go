package asteria

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/tierctl"
	"github.com/asteria-runtime/asteria/uvm"
)

// Note: leases
//
// A goroutine leases, in one call, all objects that its next piece of work
// touches: a block's step, an AdamW parameter's step, one refresh, one section of
// a save. While it holds them it waits for nothing that another lease may hold up:
// the bounded barrier, a save whose turn comes first, all stand before the lease.
// So tiers that hold the largest group finish every step, however small they are.

// hitWithin is the longest wait of a lease that counts as a hit.
const hitWithin = time.Millisecond

// movers is how many goroutines of the controller move objects ahead of their
// use: some write what leaves while others read what comes.
const movers = 4

// StateError says that the state of a block, or of a parameter of AdamW, could not
// be brought into memory. Err names the file, where there is one.
type StateError struct {
	Block string
	Err   error
}

func (e *StateError) Error() string {
	return fmt.Sprintf("asteria: state of block %s: %v", e.Block, e.Err)
}

// Unwrap returns the cause.
func (e *StateError) Unwrap() error { return e.Err }

// store keeps the optimizer's state in tiers.
type store[T gemm.Float] struct {
	opts    Tiers
	ctl     *tierctl.Controller
	memory  *recycler
	backing *countedBacking // nil without NVMe
	placed  int64           // bytes of all objects, as planned
	gap     int64           // bytes that stay free to move objects between full tiers
	streams bool            // not everything fits into the addressable tiers
	ahead   int64           // bytes to be brought in ahead of their use
	reach   []int64         // for each place in order, how many places those cover
	device  int             // tier that factors prefer
	host    int             // tier that the rest prefers

	parcels []*parcel[T] // in the order of sections
	order   []*parcel[T] // in the order of use within a step
	turn    atomic.Int64 // steps since the start
	nextID  atomic.Uint64
	freezer freezer[T]

	blank []T // zeros that a save reads

	steps, jobs leaseCounts
	above       int64         // bytes that do not fit into the addressable tiers
	stepping    time.Duration // within Step, since the start
	stats       tierctl.Stats // memory of totals
	single      holder        // of the goroutine that steps, for AdamW
}

// parcel is the state of one block or the moments of one parameter: what is leased
// as a whole by a step, and saved in one piece.
type parcel[T gemm.Float] struct {
	name  string
	ids   [2]uint64
	size  [2]int64 // bytes; 0 for an object that there is not
	place int      // in the order of use
	begun bool     // the contents have been made; under freezer.mu
	reset func(mem [2][]T)
	kept  frozen
	due   atomic.Int64 // turn of the next adoption
}

func (p *parcel[T]) bytes() int64 { return p.size[0] + p.size[1] }

// holder is a lease with the memory for its arguments: it allocates nothing.
type holder struct {
	lease tierctl.Lease
	ids   [4]uint64
	n     int
}

// leaseCounts count one kind of lease.
type leaseCounts struct {
	leases, hits, waited atomic.Int64 // waited in nanoseconds
}

func (c *leaseCounts) note(d time.Duration) {
	c.leases.Add(1)
	c.waited.Add(int64(d))
	if d < hitWithin {
		c.hits.Add(1)
	}
}

// countedBacking counts the bytes that pass.
type countedBacking struct {
	tierctl.Backing
	read, written atomic.Int64
}

// Save implements [tierctl.Backing].
func (b *countedBacking) Save(ctx context.Context, id uint64, src []byte) error {
	err := b.Backing.Save(ctx, id, src)
	if err == nil {
		b.written.Add(int64(len(src)))
	}
	return err
}

// Load implements [tierctl.Backing].
func (b *countedBacking) Load(ctx context.Context, id uint64, dst []byte) error {
	err := b.Backing.Load(ctx, id, dst)
	if err == nil {
		b.read.Add(int64(len(dst)))
	}
	return err
}

// newStore makes the tiers; nothing is allocated in them before it is used.
// A backend's memory goes before the system's.
func newStore[T gemm.Float](o Tiers, plan Plan, b Backend) (*store[T], error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &store[T]{opts: o, placed: plan.Placed}
	if o.NVMeSize > 0 {
		s.gap = plan.slack(&o)
	}
	s.freezer.changed.L = &s.freezer.mu
	var source uvm.Allocator = uvm.Host{}
	if o.Pinned {
		source = uvm.NewPinned(o.Logger)
	}
	if b != nil {
		source = b
	}
	limit := int64(0)
	if o.Host > 0 {
		limit = o.Device + o.Host
	}
	s.memory = newRecycler(source, limit)
	if b != nil {
		s.memory.taken = b.HostUsed
	}
	var tiers []tierctl.Tier
	if o.Device > 0 {
		tiers = append(tiers, tierctl.Tier{Name: TierDevice, Capacity: o.Device, Alloc: s.memory.alloc})
	}
	s.host = len(tiers)
	tiers = append(tiers, tierctl.Tier{Name: TierHost, Capacity: o.Host, Alloc: s.memory.alloc})
	if o.NVMe != nil {
		s.backing = &countedBacking{Backing: o.NVMe}
		tiers = append(tiers, tierctl.Tier{Name: TierNVMe, Capacity: o.NVMeSize, Backing: s.backing})
		s.streams, s.above = plan.Placed > limit, max(0, plan.Placed-limit)
	}
	s.ahead = or(o.Staging, lookAhead(plan.Placed, limit))
	ctl, err := tierctl.New(tierctl.Options{
		Tiers: tiers, Policy: o.Policy, Movers: movers, Staging: s.ahead, Pressure: o.Pressure,
		Logger: o.Logger,
	})
	s.ctl = ctl
	return s, err
}

// add makes an object without contents and returns its id.
func (s *store[T]) add(bytes int64, tier int) (uint64, error) {
	id := s.nextID.Add(1)
	return id, s.ctl.AddEmpty(id, bytes, tier)
}

// newParcel makes a parcel of two objects of so many elements; the first prefers
// the device tier.
func (s *store[T]) newParcel(name string, elements [2]int, reset func([2][]T)) (*parcel[T], error) {
	p := &parcel[T]{name: name, reset: reset}
	for i, n := range elements {
		if n == 0 {
			continue
		}
		tier := s.host
		if i == 0 {
			tier = s.device
		}
		var err error
		p.size[i] = objectBytes[T](n)
		if p.ids[i], err = s.add(p.size[i], tier); err != nil {
			return nil, err
		}
	}
	s.parcels = append(s.parcels, p)
	return p, nil
}

// lookAhead is how many bytes are brought in ahead of their use when so many are
// placed in tiers of which so many bytes are addressable: all that does not fit,
// within limits. With more, what fits would be moved as well for nothing.
func lookAhead(placed, addressable int64) int64 {
	return min(max(placed-addressable, addressable/8), addressable)
}

// arrange fixes the order of use within a step.
func (s *store[T]) arrange(order []*parcel[T]) {
	s.order = order
	for i, p := range order {
		p.place = i
		for _, id := range p.ids {
			if id != 0 {
				s.announce(id, s.tick(0, i))
			}
		}
	}
	s.reach = reachOf(order, s.ahead)
}

// announce tells the next use of an object that there is.
func (s *store[T]) announce(id uint64, at tierctl.Tick) {
	if err := s.ctl.Expect(id, at); err != nil {
		panic("asteria: a store that is open forgot an object")
	}
}

// reachOf tells for each place how many of the places from it on, the first ones
// again after the last, so many bytes cover: at least the next one, at most all.
func reachOf[T gemm.Float](order []*parcel[T], ahead int64) []int64 {
	n := len(order)
	reach := make([]int64, n)
	end, covered := 0, int64(0) // places before end are covered
	for i := range order {
		for end < i+n && (end <= i+1 || covered+order[end%n].bytes() <= ahead) {
			covered += order[end%n].bytes()
			end++
		}
		reach[i] = int64(end - i)
		covered -= order[i].bytes()
	}
	return reach
}

// tick is the logical time of a parcel's use in a turn.
func (s *store[T]) tick(turn int64, place int) tierctl.Tick {
	return turn*int64(len(s.order)) + int64(place)
}

// begin starts h's group with p's objects.
func (h *holder) begin(ids [2]uint64) {
	h.n = 0
	for _, id := range ids {
		h.add(id)
	}
}

// add puts one more object into h's group and returns its place there; 0 is no
// object.
func (h *holder) add(id uint64) int {
	if id == 0 {
		return -1
	}
	h.ids[h.n] = id
	h.n++
	return h.n - 1
}

// acquire leases h's group for p's step, and announces what comes after.
func (s *store[T]) acquire(h *holder, p *parcel[T]) error {
	if err := s.make(p); err != nil {
		return err
	}
	s.freezer.yield(s, p)
	now := s.tick(s.turn.Load(), p.place)
	if err := s.take(context.Background(), h, now, p.name, &s.steps); err != nil {
		return err
	}
	h.lease.Expect(now + int64(len(s.order)))
	if s.streams {
		s.ctl.Ahead(now, now+s.reach[p.place])
	}
	return nil
}

// views returns the elements of p's objects, which come first in h's group.
func (s *store[T]) views(h *holder, p *parcel[T]) (mem [2][]T) {
	at := 0
	for i, id := range p.ids {
		if id != 0 {
			mem[i] = elements[T](h.lease.Bytes(at))
			at++
		}
	}
	return mem
}

// take leases h's group and counts the wait.
func (s *store[T]) take(ctx context.Context, h *holder, now tierctl.Tick, name string, counts *leaseCounts) error {
	start := time.Now()
	err := s.ctl.Acquire(ctx, &h.lease, now, h.ids[:h.n]...)
	counts.note(time.Since(start))
	if err != nil {
		return &StateError{Block: name, Err: err}
	}
	return nil
}

// stepEnds counts a step, and has memory given up that the system is short of.
func (s *store[T]) stepEnds(took time.Duration) {
	s.stepping += took
	s.turn.Add(1)
	if s.opts.Pressure != nil && s.opts.Pressure() > 0 {
		s.ctl.Relieve()
	}
}

// close ends the movers and gives the memory back.
func (s *store[T]) close() error {
	return errors.Join(s.ctl.Close(), s.memory.close())
}

// Anticipate has the state that the next step uses first brought in, as far as
// there is room: for the hooks around a model's layers, before the gradients are
// there. It never waits. With an accelerator and without tiers, the state is brought
// to the accelerator.
func (r *Runtime[T]) Anticipate() {
	if s := r.store; s != nil && s.streams {
		now := s.tick(s.turn.Load(), 0)
		s.ctl.Ahead(now, now+s.reach[0])
	}
	_ = r.bringAhead() // a failure of the accelerator is met again by the step
}

// Tiers returns the state of the memory tiers and counts since the start; N is 0
// where the state is not in tiers. It allocates nothing.
func (r *Runtime[T]) Tiers() (t TierTotals) {
	s := r.store
	if s == nil {
		return t
	}
	s.ctl.ReadStats(&s.stats)
	t.N, t.Lost = len(s.stats.Tiers), s.stats.Lost
	for i, x := range s.stats.Tiers {
		t.Tiers[i] = TierUse{
			Name: x.Name, Used: x.Used, Peak: x.Peak, Capacity: x.Capacity, Over: x.Over,
			Degraded: x.Degraded, Failures: x.Failures,
		}
	}
	t.StepLeases, t.StepHits = s.steps.leases.Load(), s.steps.hits.Load()
	t.StepWaited = time.Duration(s.steps.waited.Load())
	t.Above, t.Stepping = s.above, s.stepping
	t.Leases = t.StepLeases + s.jobs.leases.Load()
	t.Hits = t.StepHits + s.jobs.hits.Load()
	t.Waited = t.StepWaited + time.Duration(s.jobs.waited.Load())
	if s.backing != nil {
		t.Read, t.Written = s.backing.read.Load(), s.backing.written.Load()
	}
	return t
}

// tierOf names the slowest tier that an object of p lives in.
func (s *store[T]) tierOf(p *parcel[T]) string {
	slowest := 0
	for _, id := range p.ids {
		if where, err := s.ctl.Where(id); err == nil {
			slowest = max(slowest, where)
		}
	}
	if s.opts.Device == 0 {
		slowest++
	}
	return [...]string{TierDevice, TierHost, TierNVMe}[slowest]
}

// slot is where a section of a block's state lies: in which object, at which
// element.
type slot struct {
	section kron.Section
	object  int
	at      int
}

// slots lays out a block's state: factors in the first object, the rest in the
// second. It returns their lengths in elements.
func slots(l kron.Layout) (out []slot, elements [2]int) {
	for _, sec := range l.Sections {
		object := 1
		if sec.Kind == kron.KindFactor {
			object = 0
		}
		out = append(out, slot{sec, object, elements[object]})
		elements[object] += sec.Len
	}
	return out, elements
}

// attach points st at memory.
func attach[T gemm.Float](st *kron.State[T], slots []slot, mem [2][]T) {
	for _, s := range slots {
		x := mem[s.object][s.at : s.at+s.section.Len : s.at+s.section.Len]
		switch s.section.Kind {
		case kron.KindFactor:
			st.Factor[s.section.Mode] = x
		case kron.KindRoot, kron.KindBasis:
			st.Root[s.section.Mode] = x
		case kron.KindGain:
			st.Gain[s.section.Mode] = x
		case kron.KindMomentum:
			st.Momentum = x
		case kron.KindSecond:
			st.Second = x
		default:
			st.Graft = x
		}
	}
}
