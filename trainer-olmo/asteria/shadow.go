package asteria

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/asteria-runtime/asteria/coherreg"
	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/hooks"
	"github.com/asteria-runtime/asteria/kron"
)

// Note: the adoption point
//
// Each block passes its one adoption point once a step, between the two halves of
// its step. There, in this order,
//
//	the refresh that must be adopted now is adopted, waiting for it if it is late;
//	a refresh that is due now is snapshotted, and handed to the workers.
//
// So the snapshot's base is always the installed basis, and a lag as long as the
// interval needs no second buffer. A refresh runs inside the point, as in native
// mode, when the lag is zero, before Async.LagStart, and while a side of the block
// has no root or basis at all.
//
// What a step computes depends on which refreshes it adopts and on nothing else
// that the workers do; with scheduled adoption those are fixed in advance.

// ErrReplayed is the cause of a refresh that fails because it failed in the run
// that is replayed.
var ErrReplayed = errors.New("asteria: the refresh failed in the run that is replayed")

// closeGrace is how long Close waits for a refresh to notice that it ends.
const closeGrace = time.Second

// shadow is what a runtime in the mode [Asteria] has beside the native one.
type shadow[T gemm.Float] struct {
	opts     Async
	solvers  Solvers
	every    int64
	lag      int64
	lagStart int64
	reg      *coherreg.Registry[string, struct{}]
	pool     *hooks.Pool[*worker[T]]
	pace     pacer[T]
	byPhase  []*unit[T]          // that this rank refreshes, in the order in which they fall due
	failed   map[replayKey]bool  // refreshes that failed in the run that is replayed
	adopts   map[replayKey]int64 // with peers: what the run that is replayed adopted, by the step of the snapshot
	wanted   map[replayKey]bool  // snapshots whose refreshes it resolved
	turns    *turns[T]           // nil unless ready adoption decides itself what to begin
	group    int64               // of so many refreshes in a row one is begun, see Async.Selective
	spared   int64               // refreshes that were not begun because of that
	waits    int64               // landings that had to wait, with peers
	together bool                // there are peers
	log      []coherreg.Adoption

	// Times are for metrics and messages only; no result depends on them.
	waiting []time.Time  // per block, while its adoption point waits
	waited  atomic.Int64 // nanoseconds, over the run
	clock   stepClock
}

type replayKey struct {
	block int
	step  int64
}

// task is one refresh of a block, and all memory that it touches: when it has to
// be abandoned, the block gets another task and never looks at this one again.
type task[T gemm.Float] struct {
	shadow *shadow[T]
	block  *kron.Block[T]
	moves  *mover[T] // the block's: it reads what Run writes
	job    kron.Job[T]
	asOf   int64
	// adoptAt is the step of the adoption, with scheduled adoption.
	adoptAt int64
	record  recorder[T] // evidence
	took    time.Duration
	tiers   *taskObjects[T] // nil where the job has its own memory
	used    time.Duration   // processor time

	// With peers, which the registry hears of when all ranks do:
	ended   chan error // how it ended, once
	outcome error      // that error, once over
	over    bool       // it has ended, and the others were not told yet

	// Under pacer.mu:
	takes  time.Duration // processor time that is expected
	turn   *hooks.Turn   // nil before it runs
	urgent bool          // the workers are not held back
}

func (r *Runtime[T]) newTask(s *shadow[T], u *unit[T]) (*task[T], error) {
	t := &task[T]{shadow: s, block: u.block, moves: &u.moves, ended: make(chan error, 1)}
	if r.store == nil {
		t.job = u.newJob()
		// An accelerator's memory stays the state's: an exchange would put the host's
		// in its place.
		t.job.Result.Shared = t.job.Result.Shared || r.opts.Backend != nil
		return t, nil
	}
	var err error
	t.tiers, err = newTaskObjects(r.store, u, &t.job)
	return t, err
}

// newJob allocates the memory of u's refreshes; a rank that does not run them has
// only the results.
func (u *unit[T]) newJob() (job kron.Job[T]) {
	if u.mine {
		return *u.block.NewJob()
	}
	n, indices := u.block.ResultLen()
	u.block.CutResult(&job.Result, gemm.OnHugePages(make([]T, n)), make([]int, indices))
	return job
}

// Run implements [hooks.Job]. Failures of single sides stay in the result, where
// the adoption counts them.
func (t *task[T]) Run(ctx context.Context, w *worker[T]) error {
	if t.tiers != nil {
		if err := t.tiers.lease(ctx, w, t.block, &t.job); err != nil {
			return err
		}
		defer t.tiers.letGo(w)
	}
	t.moves.finish(w.ops, w.scratch)
	start, paused := time.Now(), w.turn.Paused()
	t.shadow.pace.begin(t, w.turn)
	w.record.begin()
	solver := solverFor(t.shadow.solvers, t.block.Name(), w.solve)
	_ = t.block.Refresh(ctx, solver, w.ops, &t.job.Snapshot, &t.job.Result)
	span := time.Since(start)
	t.record, t.took, t.used = *w.record, span-(w.turn.Paused()-paused), w.turn.End()
	if f := t.shadow.opts.Observer.Refreshed; f != nil {
		f(t.block.Name(), w.number, start, span)
	}
	return nil
}

// Done implements [hooks.Job]. The registry drops what comes too late.
func (t *task[T]) Done(err error) {
	t.shadow.pace.done(t)
	if t.tiers != nil && err != nil {
		t.tiers.failed(errors.Is(err, hooks.ErrAbandoned))
	}
	if t.shadow.together {
		t.ended <- err
		return
	}
	if err != nil {
		t.shadow.reg.Fail(t.block.Name(), t.asOf, err)
		return
	}
	t.shadow.reg.Publish(t.block.Name(), t.asOf, struct{}{})
}

var (
	_ hooks.Job[*worker[float32]] = (*task[float32])(nil)
	_ hooks.Job[*worker[float64]] = (*task[float64])(nil)
)

// newShadow starts the workers.
func (r *Runtime[T]) newShadow() error {
	a := r.opts.Async
	if r.opts.Mode == Native {
		a = Async{Staleness: -1, Lag: -1, Observer: a.Observer}
	}
	a.LagRamp = or(a.LagRamp, lagRamp(r.opts.Method))
	every := r.opts.block(0).Every
	s := &shadow[T]{
		opts: a, solvers: r.opts.Solvers, every: every, lag: a.lag(every), lagStart: a.lagStart(every), group: a.group(every),
		waiting: make([]time.Time, len(r.units)), together: r.peers != nil,
	}
	for _, u := range r.units {
		if u.mine {
			s.byPhase = append(s.byPhase, u)
		}
	}
	slices.SortStableFunc(s.byPhase, func(a, b *unit[T]) int { return cmp.Compare(a.block.Options().Phase, b.block.Options().Phase) })
	names := make([]string, len(r.units))
	for i, u := range r.units {
		names[i] = u.block.Name()
		var err error
		if u.task, err = r.newTask(s, u); err != nil {
			return err
		}
		u.perm = make([][]int64, u.block.Modes())
		for k, p := range u.task.job.Result.Perm[:u.block.Modes()] {
			u.perm[k] = make([]int64, len(p))
		}
	}
	var err error
	if s.reg, err = coherreg.New[string, struct{}](names, s.registryOptions(r)); err != nil {
		return err
	}
	r.shadow = s
	if r.opts.Mode == Asteria && a.Adopt == Ready && a.Replay == nil {
		s.turns = newTurns(r.units, a.readyShare(), a.workers()*r.opts.Peers.size())
	}
	if r.opts.Mode == Native {
		return nil // no refresh leaves its step
	}
	return r.newPool(s)
}

// newPool starts the workers.
func (r *Runtime[T]) newPool(s *shadow[T]) (err error) {
	a := s.opts
	var number atomic.Int64
	s.pool, err = hooks.NewPool(hooks.PoolOptions[*worker[T]]{
		Workers: a.workers(), Nice: a.Nice, Timeout: a.JobTimeout, Queue: len(r.units),
		Open: func() (*worker[T], error) {
			w, err := r.newSolvingWorker(s.pace.pace.Join())
			if err == nil {
				w.number = int(number.Add(1))
			}
			return w, err
		},
		Close:  (*worker[T]).close,
		Paused: func(w *worker[T]) time.Duration { return w.turn.Paused() },
	})
	s.pace.submit = s.pool.Submit
	s.pace.open = make([]*task[T], 0, len(r.units))
	return err
}

// workers is the number of refreshes at once.
func (a Async) workers() int { return max(1, a.Workers) }

// registryOptions translates the mode of adoption.
func (s *shadow[T]) registryOptions(r *Runtime[T]) coherreg.Options {
	o := coherreg.Options{Mode: coherreg.Scheduled, Budget: coherreg.Budget{Hard: s.opts.staleness()}}
	if s.opts.Adopt == Ready {
		o.Mode = coherreg.Ready
	}
	if s.opts.Replay != nil {
		o.Mode, o.Replay = coherreg.Replay, s.opts.Replay
		s.failed, s.adopts, s.wanted = map[replayKey]bool{}, map[replayKey]int64{}, map[replayKey]bool{}
		for _, a := range s.opts.Replay {
			if a.Version == 0 {
				s.failed[replayKey{a.Block, a.Step}] = true
			}
			s.adopts[replayKey{a.Block, a.Step}], s.wanted[replayKey{a.Block, a.AsOf}] = a.AsOf, true
		}
	}
	o.Observer.Wait = func(block int, _ int64, done bool) { s.noteWait(r.units[block].block.Name(), block, done) }
	return o
}

func (s *shadow[T]) noteWait(name string, block int, done bool) {
	if !done {
		s.waiting[block] = time.Now()
		return
	}
	d := time.Since(s.waiting[block])
	s.waited.Add(int64(d))
	if f := s.opts.Observer.Waited; f != nil {
		f(name, s.waiting[block], d)
	}
}

// point is what one adoption point is to do, as far as it is known before the step
// begins: what may have to wait has been waited for.
type point struct {
	now    int64
	landed bool  // the refresh in flight has ended
	cause  error // it failed
	late   error // the barrier ended without it
	flying bool  // it is still in flight
	due    bool  // a refresh is due
	inside bool  // it may have to run within the step
	launch bool  // it is to be handed to the workers, once the step is over
	lands  bool  // with peers: the refresh in flight may be adopted
	lost   bool  // a refresh inside the step was left behind, with the task's memory
}

// installs reports whether the point takes a result into use.
func (p *point) installs() bool { return p.landed && p.cause == nil }

// shadowStep runs one block's step with late adoption.
func (r *Runtime[T]) shadowStep(w *worker[T], u *unit[T], lr float64) error {
	p := r.await(u)
	if p.cause != nil && isStateError(p.cause) {
		return p.cause // no refresh failed: what it works on is lost
	}
	if r.store != nil {
		if err := r.leasePoint(w, u, &p); err != nil {
			return err
		}
	}
	b := u.block
	u.moves.finish(w.ops, w.scratch)
	b.Begin(u.state, u.param, u.grad, lr, w.ops, w.scratch)
	err := r.adoptionPoint(w, u, &p)
	b.Finish(u.state, u.param, u.grad, lr, w.ops, w.scratch)
	if sync := w.ops.Sync(); err == nil {
		err = sync
	}
	if r.store != nil {
		r.leavePoint(w, u, &p)
	}
	if p.lost {
		err = errors.Join(err, r.renewTask(u))
	}
	if p.launch {
		err = errors.Join(err, r.launch(u, p.now))
	}
	return err
}

func isStateError(err error) bool {
	var e *StateError
	return errors.As(err, &e)
}

// await resolves the refresh in flight if this step must, waiting for it if it is
// late. It comes before the step, which holds memory that the refresh may need:
// nothing before the adoption point depends on it.
func (r *Runtime[T]) await(u *unit[T]) point {
	s, name, p := r.shadow, u.block.Name(), u.point
	f, flying := s.reg.Pending(name)
	if !flying {
		return p
	}
	if p.now >= f.AdoptAt {
		s.pace.need(u.task)
	}
	_, _, err := s.reg.Adopt(context.Background(), name, p.now)
	if _, p.flying = s.reg.Pending(name); p.flying {
		p.late = err // nil: not its turn yet
		return p
	}
	p.landed, p.cause = true, err
	s.turns.landed(p.now - f.AsOf)
	if err == nil && s.failed[replayKey{u.index, p.now}] {
		p.cause = ErrReplayed
	}
	if errors.Is(err, hooks.ErrAbandoned) {
		if terr := r.renewTask(u); terr != nil {
			p.cause = terr
		}
		return p
	}
	u.task.record.end(&u.health)
	u.task.record.begin()
	u.cost.note(u.task.took, u.task.used)
	return p
}

// lookAll finds out what the next step is to do, on one rank.
func (r *Runtime[T]) lookAll() {
	for _, u := range r.units {
		u.point = r.look(u)
	}
	r.shadow.turns.take(func(u *unit[T]) bool {
		f, flying := r.shadow.reg.Pending(u.block.Name())
		return flying && !f.Resolved
	})
	if r.store != nil && r.store.streams {
		for _, u := range r.units {
			u.announceRefresh()
		}
	}
}

// look finds out what the next step of u is to do, before anything is waited for.
func (r *Runtime[T]) look(u *unit[T]) point {
	s := r.shadow
	p := point{now: u.state.Meta.Calls() + 1, due: u.block.DueNext(u.state.Meta)}
	p.inside = p.due && r.inside(u, p.now)
	_, p.flying = s.reg.Pending(u.block.Name())
	switch {
	case p.inside:
	case s.opts.Replay != nil:
		p.due = s.wanted[replayKey{u.index, p.now}]
	case p.due && s.leavesOut(u):
		p.due = false
		s.spared++
	}
	return p
}

// leavesOut reports whether the refresh of u that is due at the next step is not
// begun, because a later one covers it in time: see Async.Selective.
func (s *shadow[T]) leavesOut(u *unit[T]) bool {
	if s.group == 1 {
		return false
	}
	o := u.block.Options()
	place := (u.state.Meta.Step() + 1 - o.Phase) / o.Every // of the refresh, since the start
	return place%s.group != s.group-1
}

// renewTask gives u another task in place of one that was left behind.
func (r *Runtime[T]) renewTask(u *unit[T]) error {
	t, err := r.newTask(r.shadow, u)
	if err != nil {
		return &StateError{Block: u.block.Name(), Err: err}
	}
	t.asOf, u.task = u.task.asOf, t
	return nil
}

// adoptionPoint is the block's one adoption point of this step: see Note: the
// adoption point.
func (r *Runtime[T]) adoptionPoint(w *worker[T], u *unit[T], p *point) error {
	err := r.adopt(w, u, p)
	if p.due {
		err = errors.Join(err, r.refresh(w, u, p))
	}
	return err
}

// adopt takes the refresh that has landed into use, or counts its failure.
func (r *Runtime[T]) adopt(w *worker[T], u *unit[T], p *point) error {
	switch {
	case !p.landed:
		return p.late
	case p.cause != nil:
		return u.block.Fail(u.state, 0, fmt.Errorf("asteria: block %s: refresh of step %d: %w", u.block.Name(), u.task.asOf, p.cause))
	}
	return r.install(w, u)
}

// refresh takes the snapshot that is due and has it refreshed, now or, once the
// step is over, beside training.
func (r *Runtime[T]) refresh(w *worker[T], u *unit[T], p *point) error {
	t := u.task
	if p.flying {
		return r.coalesce(u, p)
	}
	if err := w.ops.Sync(); err != nil {
		return err
	}
	if err := r.fetch(u.state); err != nil {
		return err
	}
	t.asOf = p.now
	if err := u.block.Snapshot(u.state, &t.job.Snapshot); err != nil {
		return u.block.Fail(u.state, 0, err)
	}
	if p.inside && r.inside(u, p.now) {
		err := r.refreshInside(w, u)
		p.lost = w.inside.lost
		return err
	}
	p.launch = true
	return nil
}

// launch hands the snapshot that the step took to the workers. The step's memory
// has been let go.
func (r *Runtime[T]) launch(u *unit[T], now int64) error {
	s := r.shadow
	u.task.adoptAt = now + s.opts.lagAt(now, s.every)
	if err := s.reg.Due(u.block.Name(), now, u.task.adoptAt); err != nil {
		return err
	}
	s.pace.add(u.task, s.takes(u))
	return nil
}

// takes is the processor time of u's refresh by which it is paced, or 0, which is
// not: with other than scheduled adoption the soonest is the best.
func (s *shadow[T]) takes(u *unit[T]) time.Duration {
	if !s.opts.Paced || s.opts.Adopt != Scheduled || s.opts.Replay != nil {
		return 0
	}
	return time.Duration(u.cost.used.Load())
}

// inside reports whether a refresh due now runs within the step.
func (r *Runtime[T]) inside(u *unit[T], now int64) bool {
	s := r.shadow
	late := s.opts.lagAt(now, s.every)
	if s.opts.Adopt == Ready || s.opts.Replay != nil {
		late = s.opts.staleness()
	}
	return late == 0 || now < s.lagStart || u.block.First(u.state.Meta) && !r.opts.test.lateFirst
}

// refreshInside runs a refresh within the step, on the thread that steps.
func (r *Runtime[T]) refreshInside(w *worker[T], u *unit[T]) error {
	t, start := u.task, time.Now()
	u.moves.finish(w.ops, w.scratch)
	w.record.begin()
	_ = u.block.Refresh(context.Background(), w.inside, w.ops, &t.job.Snapshot, &t.job.Result)
	err := u.block.Install(u.state, &t.job.Result, w.ops, w.scratch)
	if w.inside.lost {
		return err
	}
	w.record.end(&u.health)
	d := time.Since(start)
	u.cost.note(d, d*time.Duration(r.threadsOf(w)))
	if f := r.shadow.opts.Observer.Refreshed; f != nil {
		f(u.block.Name(), 0, start, d)
	}
	return err
}

// threadsOf is how many threads compute what w does.
func (r *Runtime[T]) threadsOf(w *worker[T]) int {
	if w == r.wide {
		return r.eng.Threads()
	}
	return 1
}

// stepEnds hands the next share of the refreshes to the workers and tells of the
// adoptions.
func (s *shadow[T]) stepEnds() {
	if s.pool != nil {
		s.pace.release(s.clock.median())
	}
	s.log = s.reg.TakeLog(s.log[:0])
	f := s.opts.Observer.Adopted
	if f == nil || len(s.log) == 0 {
		return
	}
	sortLog(s.log)
	for _, a := range s.log {
		f(a)
	}
}

// sortLog orders the adoptions of one step by block. There are few, nearly in
// order, and nothing may be allocated.
func sortLog(log []coherreg.Adoption) {
	for i := range log {
		for j := i; j > 0 && log[j].Block < log[j-1].Block; j-- {
			log[j], log[j-1] = log[j-1], log[j]
		}
	}
}

// Settle waits until no refresh waits or runs, without adopting any: what a
// checkpoint needs, which holds the results. When ctx ends first, the refreshes
// that still run are given up and count as failed. With peers all ranks call it
// together, and the results reach all of them.
func (r *Runtime[T]) Settle(ctx context.Context) error {
	if r.shadow == nil || r.shadow.pool == nil {
		return nil
	}
	if r.peers != nil {
		return r.settleTogether(ctx)
	}
	r.finishMoves()
	r.shadow.pace.flush()
	err := r.shadow.reg.Drain(ctx)
	if err == nil {
		return nil
	}
	r.shadow.pool.Abandon()
	return errors.Join(fmt.Errorf("asteria: refreshes were given up: %w", err), r.shadow.reg.Drain(context.Background()))
}

// Hurry gives up every refresh beside training that waits or runs, and a solver's
// call inside the step, in whichever mode, that has run for some seconds: each
// counts as failed, and what waits for one goes on. It may be called from any
// goroutine, as when the process is told to end while a step waits for a refresh
// that never returns; call it again while the step does not end. It returns how
// many it gave up. The step that runs then returns no error for refreshes that
// failed too often.
func (r *Runtime[T]) Hurry() (n int) {
	r.hurried.Store(true)
	if r.shadow != nil && r.shadow.pool != nil {
		n = r.shadow.pool.Abandon()
		for _, u := range r.units {
			n -= int(u.moves.givenUp.Swap(0)) // no refresh, and not lost
		}
	}
	if r.calls == nil {
		return n
	}
	inside := r.calls.AbandonAfter(hungAfter)
	if inside > 0 {
		r.gaveUp.Store(true)
	}
	return n + inside
}

// close ends the workers.
func (s *shadow[T]) close() {
	if s.pool != nil {
		closePool(s.pool)
	}
}

// closePool ends a pool; what runs is told to end, and left behind if it does not
// listen.
func closePool[W any](p *hooks.Pool[W]) {
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	_ = p.Close(ctx) // its only error is that refreshes were left behind
}
