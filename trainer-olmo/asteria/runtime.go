package asteria

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync/atomic"
	"time"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/hooks"
	"github.com/asteria-runtime/asteria/invroot"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/trainer-olmo/optim"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
	"github.com/asteria-runtime/asteria/uvm"
)

// The seams between the modules, checked at compile time.
var (
	_ kron.Refresher[float32] = (*invroot.Refresher[float32])(nil)
	_ kron.Refresher[float64] = (*invroot.Refresher[float64])(nil)
	_ param.Optimizer         = (*Runtime[float32])(nil)
)

// Runtime is the second-order optimizer of a model. It owns all state of the
// optimizer, updates the parameters in place and implements [param.Optimizer].
// One goroutine at a time; Close it when done.
type Runtime[T gemm.Float] struct {
	opts  Options
	eng   *gemm.Engine
	plan  Plan
	units []*unit[T] // in the order of names
	aux   *optim.AdamW[T]

	workers []*worker[T]  // one per thread of eng, each computing alone
	wide    *worker[T]    // computes with all threads; nil when no block needs it
	queue   []*unit[T]    // what workers take, in order of falling cost
	alone   []*unit[T]    // what wide does before
	lr      float64       // of the step that runs
	shadow  *shadow[T]    // nil in native mode without peers
	peers   *peers[T]     // nil on one rank
	lent    []*uvm.Buffer // the backend's memory under the state
	store   *store[T]     // nil where all state stays in host memory

	calls   *hooks.Pool[struct{}] // makes the solver calls of steps
	gaveUp  atomic.Bool           // Hurry left a call of this step behind
	hurried atomic.Bool           // Hurry was called in this step

	ordered atomic.Int64 // blocks of the queue that a streaming step has taken

	moments []*parcel[T] // of the parameters of AdamW, where there is a store
}

// unit is one block with its state.
type unit[T gemm.Float] struct {
	block       *kron.Block[T]
	state       *kron.State[T]
	param, grad kron.View[T]
	health      BlockHealth
	err         error // of the last step
	memory      []T   // what state is cut from, nil where there is a store

	// Where there is a store, state is bound for the time of a lease only:
	parcel *parcel[T]
	slots  []slot

	// In the mode Asteria, or with peers, only:
	index  int         // in the order of names
	owner  int         // rank that refreshes it
	mine   bool        // this rank refreshes it
	shared bool        // all ranks know the outcome of the refresh in flight
	point  point       // of the step that runs
	waits  bool        // with ready adoption: a refresh was due and waits for its turn
	task   *task[T]    // the block's refresh
	moves  mover[T]    // what its last adoption left
	cost   cost        // of its refreshes
	saved  pendingMeta // see PendingSections
	perm   [][]int64   // per side, task's permutation as a checkpoint stores it
}

// worker steps blocks on one goroutine.
type worker[T gemm.Float] struct {
	kron    *kron.Worker[T] // nil where every block has the memory of its refresh
	ops     kron.Ops[T]
	scratch *kron.Scratch[T]  // of a worker beside training: for moves alone
	solve   kron.Refresher[T] // record, or what a test puts before it
	inside  *insider[T]       // makes its calls of it; nil for a worker beside training
	solver  *invroot.Solver[T]
	record  *recorder[T]
	own     *gemm.Engine // nil when it computes on the runtime's
	holder  holder       // its lease, where there is a store
	number  int          // of a worker beside training, from 1
	turn    *hooks.Turn  // of a worker beside training

	giveBack func() error // closes ops and the solver behind record
}

// New plans and allocates the optimizer for params. The engine's threads share
// the work; results do not depend on how many there are. Parameters without a
// gradient are frozen: they get no state and never change.
func New[T gemm.Float](params []param.Param[T], eng *gemm.Engine, opts Options) (*Runtime[T], error) {
	if eng == nil {
		return nil, errors.New("asteria: engine is nil")
	}
	if opts.Peers != nil && opts.Peers.Comm == nil {
		opts.Peers = nil // they are for plans
	}
	live := trainable(params)
	plan, err := PlanFor[T](Shapes(live), eng.Threads(), opts)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(plan.Check(opts.MemoryLimit), plan.CheckTiers(opts.Tiers)); err != nil {
		return nil, err
	}
	if err := checkRoom(plan, opts.Backend); err != nil {
		return nil, err
	}
	sites, rest, err := route[T](Shapes(live), opts)
	if err != nil {
		return nil, err
	}
	r := &Runtime[T]{opts: opts, eng: eng, plan: plan}
	if err := r.build(live, sites, rest); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// build makes what the plan says.
func (r *Runtime[T]) build(live []param.Param[T], sites []site[T], rest []int) (err error) {
	if r.opts.Tiers != nil {
		if r.store, err = newStore[T](*r.opts.Tiers, r.plan, r.opts.Backend); err != nil {
			return err
		}
	}
	owner := owners(sites, r.opts.Peers.size())
	for i, s := range sites {
		u, err := r.newUnit(s, live[s.index])
		if err != nil {
			return err
		}
		u.index, u.owner, u.mine = i, owner[i], r.opts.Peers.refreshes(owner[i])
		r.units = append(r.units, u)
	}
	if err := r.newAux(live, rest); err != nil {
		return err
	}
	if err := r.newWorkers(sites); err != nil {
		return err
	}
	if r.store != nil {
		r.store.arrange(r.useOrder())
	}
	if r.opts.Peers.size() > 1 {
		r.peers = newPeers[T](r.opts.Peers, len(r.units))
	}
	if r.opts.perBlock() {
		return r.newShadow()
	}
	return nil
}

// useOrder lists what a step leases, in its order.
func (r *Runtime[T]) useOrder() (order []*parcel[T]) {
	for _, u := range append(slices.Clone(r.alone), r.queue...) {
		order = append(order, u.parcel)
	}
	return append(order, r.moments...)
}

// trainable drops frozen and empty parameters.
func trainable[T gemm.Float](params []param.Param[T]) []param.Param[T] {
	var live []param.Param[T]
	for _, p := range params {
		if p.Grad != nil && len(p.Value) > 0 {
			live = append(live, p)
		}
	}
	return live
}

func (r *Runtime[T]) newUnit(s site[T], p param.Param[T]) (*unit[T], error) {
	u := &unit[T]{block: s.block, param: kron.TileView(p.Value, s.tile), grad: kron.TileView(p.Grad, s.tile)}
	u.health.Block, u.moves.block = s.block.Name(), s.block
	layout := s.block.Layout()
	if r.store != nil {
		var n [2]int
		u.slots, n = slots(layout)
		u.state = &kron.State[T]{Meta: new(kron.Meta)}
		var err error
		u.parcel, err = r.store.newParcel(s.block.Name(), n, u.reset)
		return u, err
	}
	mem, err := r.stateMemory(layout.Len())
	if err != nil {
		return nil, fmt.Errorf("asteria: block %s: %w", s.block.Name(), err)
	}
	st, err := s.block.Bind(kron.Cut(layout, mem), new(kron.Meta))
	if err != nil {
		return nil, err
	}
	s.block.Reset(st)
	u.state, u.memory = st, mem
	return u, nil
}

// reset brings the memory of u's parcel to the state before the first step. The
// counters, which stay in memory, are not touched: they may be restored already.
func (u *unit[T]) reset(mem [2][]T) {
	st := kron.State[T]{Meta: new(kron.Meta)}
	attach(&st, u.slots, mem)
	u.block.Reset(&st)
}

func (r *Runtime[T]) newAux(live []param.Param[T], rest []int) error {
	var params []param.Param[T]
	for _, i := range rest {
		params = append(params, live[i])
	}
	o := r.opts.aux(nil)
	o.Engine, o.Lent = r.eng, r.store != nil
	r.aux = optim.NewAdamW(params, o)
	if r.store == nil {
		return nil
	}
	for _, p := range params {
		m, err := r.store.newParcel(p.Name, [2]int{0, 2 * len(p.Value)}, func([2][]T) {}) // zero is right
		if err != nil {
			return err
		}
		r.moments = append(r.moments, m)
	}
	return nil
}

// newWorkers makes the workers and divides the blocks among them.
func (r *Runtime[T]) newWorkers(sites []site[T]) error {
	if err := r.newInside(); err != nil {
		return err
	}
	alone, queue := divide(sites, r.eng.Threads())
	byBlock := make(map[*kron.Block[T]]*unit[T], len(r.units))
	for _, u := range r.units {
		byBlock[u.block] = u
	}
	for _, b := range alone {
		r.alone = append(r.alone, byBlock[b])
	}
	for _, b := range queue {
		r.queue = append(r.queue, byBlock[b])
	}
	if len(alone) > 0 {
		w, err := r.newWorker(r.eng, r.alone)
		if err != nil {
			return err
		}
		w.fetchBy(r)
		r.wide = w
	}
	for range min(r.eng.Threads(), r.eng.Threads()*len(queue)) {
		own := gemm.New(1)
		w, err := r.newWorker(own, r.queue)
		if err != nil {
			own.Close()
			return err
		}
		w.own = own
		w.fetchBy(r)
		r.workers = append(r.workers, w)
	}
	return nil
}

// togetherLoss is how much longer a block takes on all threads together than its
// share of them would say: its element-wise work and parts of its refresh do not
// divide.
const togetherLoss = 1.25

// divide splits the blocks, in order of falling cost, into those that all
// threads work on together and those that each go to one thread. Alone on one
// thread a large block would leave the others idle at the end of the step; so
// the largest ones are done together, as many as make the step shortest.
func divide[T gemm.Float](sites []site[T], threads int) (alone, queue []*kron.Block[T]) {
	costs := make([]float64, len(sites))
	for i, s := range sites {
		costs[i] = s.block.StepCost()
	}
	order := byFallingCost(costs)
	sorted := make([]float64, len(order))
	for i, at := range order {
		sorted[i] = costs[at]
	}
	together := countTogether(sorted, threads)
	for i, at := range order {
		if i < together {
			alone = append(alone, sites[at].block)
		} else {
			queue = append(queue, sites[at].block)
		}
	}
	return alone, queue
}

// countTogether returns how many of the falling costs to do together, at most as
// many as there are threads, beyond which the rest divides evenly anyway.
func countTogether(costs []float64, threads int) int {
	best, shortest := 0, makespan(costs, threads)
	prefix := 0.0
	for i := range min(len(costs), threads) {
		prefix += costs[i]
		if t := prefix/float64(threads)*togetherLoss + makespan(costs[i+1:], threads); threads > 1 && t < shortest {
			best, shortest = i+1, t
		}
	}
	return best
}

// makespan is how long threads take for the falling costs when each takes the
// next one as soon as it is free.
func makespan(costs []float64, threads int) float64 {
	busy := make([]float64, threads)
	longest := 0.0
	for _, c := range costs {
		first := 0
		for i, t := range busy {
			if t < busy[first] {
				first = i
			}
		}
		busy[first] += c
		longest = max(longest, busy[first])
	}
	return longest
}

// newWorker makes a worker that steps any of the units on eng.
func (r *Runtime[T]) newWorker(eng *gemm.Engine, units []*unit[T]) (*worker[T], error) {
	blocks := make([]*kron.Block[T], len(units))
	for i, u := range units {
		blocks[i] = u.block
	}
	w, err := newSolving[T](eng, r.opts, largestFactor(blocks))
	if err != nil {
		return nil, err
	}
	w.inside = &insider[T]{
		pool: r.calls, stop: &r.gaveUp, solvers: r.opts.Solvers, next: w.solve,
		call: solverCall[T]{over: make(chan error, 1)},
	}
	if r.opts.perBlock() { // there every block has the memory of its own refresh
		w.scratch = kron.NewScratch(blocks...)
		return w, nil
	}
	w.kron = kron.NewWorker(w.ops, w.inside, blocks...)
	return w, nil
}

// newSolving makes a worker that refreshes factors up to an order on eng.
func newSolving[T gemm.Float](eng *gemm.Engine, o Options, order int) (*worker[T], error) {
	solver, err := invroot.NewSolver[T](eng, order, o.Solver)
	if err != nil {
		return nil, err
	}
	kit, err := newKit(eng, order, solver, o)
	if err != nil {
		solver.Close()
		return nil, err
	}
	w := &worker[T]{ops: kit.Ops, solver: solver, record: &recorder[T]{solver: kit.Solver}, giveBack: kit.Close}
	w.solve = w.record
	if wrap, ok := o.test.solver.(func(kron.Refresher[T]) kron.Refresher[T]); ok {
		w.solve = wrap(w.record)
	}
	return w, nil
}

// newSolvingWorker makes a worker beside training, with an engine of its own.
// It gives way as turn says.
func (r *Runtime[T]) newSolvingWorker(turn *hooks.Turn) (*worker[T], error) {
	order := largestFactor(r.blocks())
	own := gemm.New(1)
	o := r.opts
	o.Solver.Pause = turn.Yield
	w, err := newSolving[T](own, o, order)
	if err != nil {
		own.Close()
		turn.Leave()
		return nil, err
	}
	w.own, w.turn = own, turn
	if r.opts.movesBeside() {
		w.scratch = kron.NewMoveScratch(r.blocks()...)
	}
	return w, nil
}

func (r *Runtime[T]) blocks() []*kron.Block[T] {
	out := make([]*kron.Block[T], len(r.units))
	for i, u := range r.units {
		out[i] = u.block
	}
	return out
}

// close ends what the worker owns.
func (w *worker[T]) close() {
	_ = w.giveBack() // a failure of the accelerator was returned by the step that met it
	w.solver.Close()
	if w.own != nil {
		w.own.Close()
	}
	if w.turn != nil {
		w.turn.Leave()
	}
}

// largestFactor is the largest order that a refresh of the blocks meets.
func largestFactor[T gemm.Float](blocks []*kron.Block[T]) int {
	n := 0
	for _, b := range blocks {
		for k := range b.Modes() {
			n = max(n, b.FactorOrder(k))
		}
	}
	return n
}

// Close stops what the runtime started; the engine given to New stays open.
func (r *Runtime[T]) Close() {
	r.finishMoves()
	if r.shadow != nil {
		r.shadow.close()
	}
	if r.calls != nil {
		closePool(r.calls)
	}
	for _, w := range append(r.workers, r.wide) {
		if w != nil {
			w.close()
		}
	}
	r.workers, r.wide = nil, nil
	_ = r.giveBack() // as above
	if r.store != nil {
		if err := r.store.close(); err != nil {
			r.store.opts.Logger.Warn("asteria: memory of the tiers was not given back", "err", err)
		}
	}
}

// Step applies one update at learning rate lr from the gradients as they are;
// clipping and the decision to skip a step come before. Blocks count their own
// steps, so step only names the update in an error. After an error the
// parameters have taken the step, with the roots or bases that were in use.
func (r *Runtime[T]) Step(step int64, lr float64) error {
	start := time.Now()
	r.lr = lr
	r.gaveUp.Store(false)
	r.hurried.Store(false)
	if err := r.bringAhead(); err != nil { // what no hook around the layers did
		return fmt.Errorf("asteria: step %d: %w", step, err)
	}
	if r.shadow != nil {
		r.shadow.clock.tick(start)
	}
	if err := r.stepBlocks(); err != nil {
		return fmt.Errorf("asteria: step %d: %w", step, err)
	}
	if r.shadow != nil {
		r.shadow.stepEnds()
	}
	if err := r.auxStep(step, lr*or(r.opts.AuxLR, 1)); err != nil {
		return fmt.Errorf("asteria: step %d: %w", step, err)
	}
	if r.store != nil {
		r.store.stepEnds(time.Since(start))
	}
	for _, u := range r.units {
		if u.err != nil && !r.forgives(u.err) {
			return fmt.Errorf("asteria: step %d: %w", step, u.err)
		}
	}
	return nil
}

// stepBlocks steps all blocks. Failures of single blocks stay with them.
func (r *Runtime[T]) stepBlocks() error {
	if r.peers != nil {
		return r.stepTogether()
	}
	if r.shadow != nil {
		r.lookAll()
	}
	for _, u := range r.alone {
		r.stepUnit(r.wide, u)
	}
	if r.store != nil && r.store.streams {
		r.ordered.Store(0)
		r.eng.Run(len(r.workers), (*inOrder[T])(r))
		return nil
	}
	r.eng.Run(len(r.queue), (*queued[T])(r))
	return nil
}

// forgives reports whether err says no more than that refreshes failed too often
// of which Hurry gave up the last one: that shall let a run go on to save.
func (r *Runtime[T]) forgives(err error) bool {
	return r.hurried.Load() && errors.Is(err, hooks.ErrAbandoned)
}

// auxStep updates the parameters of AdamW.
func (r *Runtime[T]) auxStep(step int64, lr float64) error {
	if r.store == nil {
		return r.aux.Step(step, lr)
	}
	r.aux.Begin(lr, 1)
	h := &r.store.single
	for i, p := range r.moments {
		h.begin(p.ids)
		if err := r.store.acquire(h, p); err != nil {
			return err
		}
		mem := r.store.views(h, p)[1]
		n := r.aux.Len(i)
		r.aux.StepParam(i, mem[:n], mem[n:2*n])
		h.lease.Release(true)
	}
	return nil
}

// queued is the runtime as the engine's task: one chunk is one block of the
// queue. A block's arithmetic is the same on every worker, so the bits do not
// depend on which one takes it.
type queued[T gemm.Float] Runtime[T]

// Do implements [gemm.Task].
func (q *queued[T]) Do(chunk, worker int) {
	(*Runtime[T])(q).stepUnit(q.workers[worker], q.queue[chunk])
}

// inOrder is the runtime as the engine's task where state streams: each chunk takes
// blocks off the front of the queue until there is none. The engine hands chunks out
// from both ends; what is read ahead comes in one order.
type inOrder[T gemm.Float] Runtime[T]

// Do implements [gemm.Task].
func (o *inOrder[T]) Do(_, worker int) {
	for i := o.ordered.Add(1) - 1; i < int64(len(o.queue)); i = o.ordered.Add(1) - 1 {
		(*Runtime[T])(o).stepUnit(o.workers[worker], o.queue[i])
	}
}

func (r *Runtime[T]) stepUnit(w *worker[T], u *unit[T]) {
	w.inside.begin(u.block.Name())
	r.stepOn(w, u)
	if w.inside.lost {
		u.err = errors.Join(u.err, r.mend(w))
	}
}

func (r *Runtime[T]) stepOn(w *worker[T], u *unit[T]) {
	if r.shadow != nil {
		u.err = r.shadowStep(w, u, r.lr)
		return
	}
	if r.store == nil {
		w.step(u, r.lr)
		return
	}
	w.holder.begin(u.parcel.ids)
	if u.err = r.lease(w, u); u.err == nil {
		w.step(u, r.lr)
		w.holder.lease.Release(true)
	}
}

// lease acquires the group that w's holder names and binds u's state to it.
func (r *Runtime[T]) lease(w *worker[T], u *unit[T]) error {
	if err := r.store.acquire(&w.holder, u.parcel); err != nil {
		return err
	}
	mem := r.store.views(&w.holder, u.parcel)
	attach(u.state, u.slots, mem)
	for _, x := range mem {
		_ = r.ahead(x) // a failure of the accelerator is met again by the step
	}
	return nil
}

// step runs one block's step with the refresh inside it.
func (w *worker[T]) step(u *unit[T], lr float64) {
	w.record.begin()
	refreshed, err := w.kron.Step(context.Background(), u.block, u.state, u.param, u.grad, lr)
	u.err = err
	if refreshed && !w.inside.lost {
		w.record.end(&u.health)
	}
}

// Plan returns what the runtime allocated, as planned.
func (r *Runtime[T]) Plan() Plan { return r.plan }

// Check reports counters that no run can have produced, as after restoring a
// damaged or foreign checkpoint through [Runtime.Sections].
func (r *Runtime[T]) Check() error {
	for _, u := range r.units {
		if err := u.state.Meta.Check(); err != nil {
			return fmt.Errorf("asteria: block %s: %w", u.block.Name(), err)
		}
	}
	return nil
}

// Sections lists all state in place: block by block in the order of names, then
// the AdamW part. With [Options.Tiers] all but counters are held, see [param.Held].
func (r *Runtime[T]) Sections() []param.Section {
	r.finishMoves()
	r.hostUses()
	var out []param.Section
	for i, u := range r.units {
		prefix := "kron/" + u.block.Name() + "/"
		for k, s := range u.block.Layout().Sections {
			if r.store != nil {
				out = append(out, r.store.section(prefix+s.Name(), i, u.slots[k].object, u.slots[k].at, s.Len))
				continue
			}
			out = append(out, section(prefix+s.Name(), u.state.Section(s)))
		}
		out = append(out, param.Section{Name: prefix + "meta", I64: u.state.Meta[:]})
	}
	out = append(out, r.aux.Sections()...)
	for i := range r.moments {
		n := r.aux.Len(i)
		for k, name := range r.aux.MomentNames(i) {
			out = append(out, r.store.section(name, len(r.units)+i, 1, k*n, n))
		}
	}
	return out
}

func section[T gemm.Float](name string, x []T) param.Section {
	s := param.Section{Name: name}
	switch x := any(x).(type) {
	case []float32:
		s.F32 = x
	case []float64:
		s.F64 = x
	}
	return s
}

// byFallingCost returns the indices of costs from the largest to the smallest,
// equal ones in their order.
func byFallingCost(costs []float64) []int {
	order := make([]int, len(costs))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(x, y int) bool { return costs[order[x]] > costs[order[y]] })
	return order
}
