package asteria

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/hooks"
	"github.com/asteria-runtime/asteria/kron"
)

// Note: refreshes inside the step
//
// A step cannot leave its own goroutine behind, so the calls of its solvers run on
// others, for which it waits: the same arithmetic in the same order. A call that
// takes longer than Async.JobTimeout, or that [Runtime.Hurry] finds hanging, fails
// and is left behind with all that it may touch: the solver with its memory and the
// memory of the refresh, in whose place the step makes new ones. Every other call
// of that step's refresh fails with it.

// hungAfter is the time after which Hurry takes a call inside the step for hung: a
// step that only takes long keeps its bits.
const hungAfter = 3 * time.Second

// insider makes the solver calls of one worker of the step on another goroutine.
// The worker's one goroutine calls it.
type insider[T gemm.Float] struct {
	pool    *hooks.Pool[struct{}]
	stop    *atomic.Bool // no call is to begin any more in this step
	solvers Solvers
	next    kron.Refresher[T] // the worker's own solver
	block   string            // that steps
	solver  kron.Refresher[T] // of its refresh, nil before the first call
	call    solverCall[T]
	lost    bool // a call was left behind: nothing here may be used again
}

var _ kron.Refresher[float32] = (*insider[float32])(nil)

// method is which of a solver's methods is called.
type method uint8

const (
	root method = iota
	eigen
	iterate
	diagonalize
)

// solverCall is one call of a solver, with its arguments.
type solverCall[T gemm.Float] struct {
	solver kron.Refresher[T]
	what   method
	over   chan error // holds one

	dst, a     gemm.Matrix[T]
	w          []T
	perm       []int
	x          float64 // exponent or tolerance
	n          int     // most iterations
	descending bool
}

// Run implements [hooks.Job].
func (c *solverCall[T]) Run(ctx context.Context, _ struct{}) error {
	switch c.what {
	case root:
		return c.solver.Root(ctx, c.dst, c.a, c.x)
	case eigen:
		return c.solver.Eigen(ctx, c.dst, c.w, c.a, c.descending)
	case iterate:
		return c.solver.Iterate(ctx, c.dst, c.a, c.perm)
	default:
		return c.solver.Diagonalize(ctx, c.dst, c.w, c.a, c.n, c.x)
	}
}

// Done implements [hooks.Job].
func (c *solverCall[T]) Done(err error) { c.over <- err }

// begin starts a block's step.
func (s *insider[T]) begin(block string) { s.block, s.solver = block, nil }

// do makes a call and returns its error. The context of the step never ends; that of
// the call ends when nobody waits for it any more. A call that was left behind may
// still read its arguments, so none are laid down after it.
func (s *insider[T]) do(c solverCall[T]) error {
	if s.lost || s.stop.Load() {
		return hooks.ErrAbandoned
	}
	if s.solver == nil {
		s.solver = solverFor(s.solvers, s.block, s.next)
	}
	c.solver, c.over = s.solver, s.call.over
	s.call = c
	s.pool.Submit(&s.call)
	err := <-s.call.over
	s.lost = errors.Is(err, hooks.ErrAbandoned)
	return err
}

// Root implements [kron.Refresher].
func (s *insider[T]) Root(_ context.Context, dst, a gemm.Matrix[T], exponent float64) error {
	return s.do(solverCall[T]{what: root, dst: dst, a: a, x: exponent})
}

// Eigen implements [kron.Refresher].
func (s *insider[T]) Eigen(_ context.Context, q gemm.Matrix[T], w []T, a gemm.Matrix[T], descending bool) error {
	return s.do(solverCall[T]{what: eigen, dst: q, a: a, w: w, descending: descending})
}

// Iterate implements [kron.Refresher].
func (s *insider[T]) Iterate(_ context.Context, q, a gemm.Matrix[T], perm []int) error {
	return s.do(solverCall[T]{what: iterate, dst: q, a: a, perm: perm})
}

// Diagonalize implements [kron.Refresher].
func (s *insider[T]) Diagonalize(_ context.Context, q gemm.Matrix[T], w []T, a gemm.Matrix[T], maxIter int, tol float64) error {
	return s.do(solverCall[T]{what: diagonalize, dst: q, a: a, w: w, n: maxIter, x: tol})
}

// newInside starts the goroutines on which steps make their solver calls: as many
// as threads that may refresh at once.
func (r *Runtime[T]) newInside() (err error) {
	r.calls, err = hooks.NewPool(hooks.PoolOptions[struct{}]{
		Workers: r.eng.Threads(), Timeout: r.opts.Async.JobTimeout, Queue: r.eng.Threads(),
	})
	return err
}

// mend gives w new memory and a new solver in place of what a call that was left
// behind may still use. Neither is given back.
func (r *Runtime[T]) mend(w *worker[T]) error {
	eng, units, own := r.eng, r.alone, (*gemm.Engine)(nil)
	if w != r.wide {
		own = gemm.New(1)
		eng, units = own, r.queue
	}
	fresh, err := r.newWorker(eng, units)
	if err != nil {
		return err
	}
	fresh.own = own
	*w = *fresh
	return nil
}
