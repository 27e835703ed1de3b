package asteria

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/hooks"
	"github.com/asteria-runtime/asteria/kron"
)

// Note: moments move beside training
//
// An adoption of a basis puts it in force, which exchanges two slices, and brings the
// moments into it, which is products of about half a step. Nothing reads the moments
// before the block's next step, so the second part runs on a worker while the next
// gradient is computed. Whoever needs it done and finds it undone does it himself: the
// block's next step, the refresh that writes its result where the move reads, and who
// asks for the state. The bits are the same whoever it is.

// mover is the move that a block's last adoption left.
type mover[T gemm.Float] struct {
	block   *kron.Block[T]
	queued  atomic.Bool  // waits in the pool, or runs
	givenUp atomic.Int64 // times that the pool gave it up

	mu     sync.Mutex
	todo   kron.Move
	state  *kron.State[T]
	result *kron.Result[T]
}

// begin leaves the move to the pool's next free worker.
func (m *mover[T]) begin(u *unit[T], todo kron.Move, pool *hooks.Pool[*worker[T]]) {
	m.mu.Lock()
	m.todo, m.state, m.result = todo, u.state, &u.task.job.Result
	m.mu.Unlock()
	if todo.Pending() && !m.queued.Swap(true) {
		pool.Submit(m)
	}
}

// finish returns when nothing is left to move.
func (m *mover[T]) finish(ops kron.Ops[T], sc *kron.Scratch[T]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.todo.Pending() {
		m.block.Move(m.state, m.result, m.todo, ops, sc)
		m.todo = kron.Move{}
	}
}

// Run implements [hooks.Job].
func (m *mover[T]) Run(_ context.Context, w *worker[T]) error {
	m.finish(w.ops, w.scratch)
	return nil
}

// Done implements [hooks.Job]. A move that no worker made is the next step's.
func (m *mover[T]) Done(err error) {
	if errors.Is(err, hooks.ErrAbandoned) {
		m.givenUp.Add(1)
	}
	m.queued.Store(false)
}

// movesBeside reports whether moments move on workers: where the state lies in memory
// that stays, a worker computes as the step does, and no other rank writes results.
func (o Options) movesBeside() bool {
	return o.Mode == Asteria && o.Async.staleness() > 0 && o.Tiers == nil && o.Backend == nil && o.Peers.size() == 1
}

// install adopts u's result, whose moments may move later.
func (r *Runtime[T]) install(w *worker[T], u *unit[T]) error {
	res := &u.task.job.Result
	if !r.opts.movesBeside() {
		return u.block.Install(u.state, res, w.ops, w.scratch)
	}
	todo, err := u.block.Adopt(u.state, res, w.ops)
	u.moves.begin(u, todo, r.shadow.pool)
	return err
}

// finishMoves brings all moments into the bases in force.
func (r *Runtime[T]) finishMoves() {
	if !r.opts.movesBeside() || r.wide == nil && len(r.workers) == 0 { // closed
		return
	}
	for _, u := range r.alone {
		u.moves.finish(r.wide.ops, r.wide.scratch)
	}
	for _, u := range r.queue {
		u.moves.finish(r.workers[0].ops, r.workers[0].scratch)
	}
}
