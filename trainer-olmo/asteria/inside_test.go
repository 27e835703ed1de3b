package asteria

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/hooks"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/tierctl/tierctltest"
)

// sabotage breaks the solver of one block, in one way at a time, through the
// exported seam.
type sabotage struct {
	block string
	how   atomic.Int32
	free  chan struct{} // what hangs goes on when it is closed
	seen  atomic.Int64  // refreshes of the block
}

const (
	works = iota
	breaks
	explodes
	lies
	hangs
)

// Solver32 implements [Solvers].
func (s *sabotage) Solver32(block string, next kron.Refresher[float32]) kron.Refresher[float32] {
	if block != s.block {
		return nil // the runtime's own
	}
	s.seen.Add(1)
	return &sabotaged[float32]{next, s}
}

// Solver64 implements [Solvers].
func (s *sabotage) Solver64(_ string, next kron.Refresher[float64]) kron.Refresher[float64] {
	return next
}

// sabotaged is the solver of the broken block.
type sabotaged[T gemm.Float] struct {
	next kron.Refresher[T]
	by   *sabotage
}

func (s *sabotaged[T]) fault(out []T) (done bool, err error) {
	switch s.by.how.Load() {
	case breaks:
		return true, errSolver
	case explodes:
		panic("index out of range")
	case lies:
		out[0] = T(math.NaN())
		return true, nil
	case hangs:
		<-s.by.free
		out[0] = T(math.NaN()) // the worst that a late one can do
		return true, errSolver
	}
	return false, nil
}

func (s *sabotaged[T]) Root(ctx context.Context, dst, a gemm.Matrix[T], exponent float64) error {
	if done, err := s.fault(dst.Data); done {
		return err
	}
	return s.next.Root(ctx, dst, a, exponent)
}

func (s *sabotaged[T]) Eigen(ctx context.Context, q gemm.Matrix[T], w []T, a gemm.Matrix[T], descending bool) error {
	if done, err := s.fault(q.Data); done {
		return err
	}
	return s.next.Eigen(ctx, q, w, a, descending)
}

func (s *sabotaged[T]) Iterate(ctx context.Context, q, a gemm.Matrix[T], perm []int) error {
	if done, err := s.fault(q.Data); done {
		return err
	}
	return s.next.Iterate(ctx, q, a, perm)
}

func (s *sabotaged[T]) Diagonalize(ctx context.Context, q gemm.Matrix[T], w []T, a gemm.Matrix[T], maxIter int, tol float64) error {
	if done, err := s.fault(q.Data); done {
		return err
	}
	return s.next.Diagonalize(ctx, q, w, a, maxIter, tol)
}

// insideOptions make every refresh run within the step, in either mode.
func insideOptions(m kron.Method, mode Mode) Options {
	o := asyncOptions(m)
	o.Mode, o.Kron.MaxFailures = mode, 2
	o.Async.LagStart, o.Async.JobTimeout = 1000, 20*time.Millisecond
	return o
}

// Field failures A2 and A6 inside the step: a solver that fails, panics, returns
// NaN or never returns, for one block for ever, from the very first refresh on. The
// others go on, and after the limit the step names the block.
func TestA06_ASolverThatNeverWorksInsideTheStep(t *testing.T) {
	for _, mode := range []Mode{Native, Asteria} {
		for _, m := range methods {
			for how := int32(breaks); how <= hangs; how++ {
				for _, threads := range []int{1 + int(how)%2} {
					s := &sabotage{block: "layers.0.up", free: make(chan struct{})}
					s.how.Store(how)
					o := insideOptions(m, mode)
					o.Solvers = s
					params := network[float32]()
					r := newRuntime(t, params, threads, o)
					var err error
					step := int64(1)
					for ; step < 40 && err == nil; step++ {
						fill(params, 9, step)
						err = r.Step(step, 0.01)
					}
					if err == nil || !errors.Is(err, kron.ErrRefresh) || !strings.Contains(err.Error(), "block layers.0.up") || errors.Is(err, hooks.ErrAbandoned) != (how == hangs) {
						t.Errorf("%v %v how %d threads %d: at step %d: %v", mode, m, how, threads, step-1, err)
					}
					for _, h := range r.Health() {
						if broken := h.Block == s.block; (h.Failed == 3) != broken || h.Version == 0 != broken {
							t.Errorf("%v %v how %d: %+v", mode, m, how, h)
						}
					}
					close(s.free)
				}
			}
		}
	}
}

// A block whose first solver calls hang takes its next refresh with a new solver and
// new memory: what the late call writes reaches nothing.
func TestA06_AHungCallInsideTheStepLeavesNothingBehind(t *testing.T) {
	for _, mode := range []Mode{Native, Asteria} {
		for _, tiers := range []bool{false, true} {
			s := &sabotage{block: "layers.0.up", free: make(chan struct{})}
			o := insideOptions(kron.SOAP, mode)
			o.Async.JobTimeout = time.Second / 2
			if tiers {
				o.Tiers = &Tiers{Host: planOf(t, o).Group, NVMe: &tierctltest.Memory{}}
			}
			o.Solvers = s
			params := network[float32]()
			r := newRuntime(t, params, 2, o)
			run(t, r, params, 1, 4)
			s.how.Store(hangs)
			run(t, r, params, 5, 8) // with the refresh of 5
			s.how.Store(works)
			if h := healthOf(r, s.block); h.Failed != 1 || h.Consecutive != 1 {
				t.Errorf("%v: %+v", mode, h)
			}
			if lost := r.Tiers().Lost; (lost > 0) != (tiers && mode == Asteria) {
				t.Errorf("%v, tiers %v: %d bytes lost", mode, tiers, lost)
			}
			before := bits(params, r)
			close(s.free)
			time.Sleep(10 * time.Millisecond)
			same(t, "after the late return", bits(params, r), before)
			run(t, r, params, 9, 30)
			if h := healthOf(r, s.block); h.Failed != 1 || h.Consecutive != 0 {
				t.Errorf("%v: %+v", mode, h)
			}
			if s := r.Totals(); s.Abandoned != 1 {
				t.Errorf("%v: %d abandoned", mode, s.Abandoned)
			}
			for _, p := range params {
				for _, v := range p.Value {
					if v-v != 0 {
						t.Fatalf("%v: %s is not finite", mode, p.Name)
					}
				}
			}
		}
	}
}

// Without a timeout the step waits; Hurry frees it once the call looks hung, also
// where that was one failure too many, and spares a call that has just begun.
func TestA06_HurryFreesAStepFromACallInsideIt(t *testing.T) {
	for _, mode := range []Mode{Native, Asteria} {
		synctest.Test(t, func(t *testing.T) {
			s := &sabotage{block: "layers.0.up", free: make(chan struct{})}
			o := insideOptions(kron.Shampoo, mode)
			o.Async.JobTimeout, o.Kron.MaxFailures, o.Solvers = 0, 1, s
			params := network[float32]()
			eng := gemm.New(1)
			r, err := New(params, eng, o)
			if err != nil {
				t.Fatal(err)
			}
			run(t, r, params, 1, 3)
			s.how.Store(breaks)
			run(t, r, params, 4, 7)
			s.how.Store(hangs)
			over := make(chan error)
			go func() { fill(params, 9, 8); over <- r.Step(8, 0.01) }()
			synctest.Wait()
			time.Sleep(hungAfter / 2)
			if n := r.Hurry(); n != 0 {
				t.Errorf("%v: gave up %d calls that may only take long", mode, n)
			}
			time.Sleep(hungAfter)
			if n := r.Hurry(); n != 1 {
				t.Errorf("%v: gave up %d", mode, n)
			}
			if err := <-over; err != nil {
				t.Errorf("%v: the step that was freed: %v", mode, err)
			}
			if h := healthOf(r, s.block); h.Failed != 2 || h.Consecutive != 2 {
				t.Errorf("%v: %+v", mode, h)
			}
			close(s.free)
			r.Close()
			eng.Close()
		})
	}
}

// The seam is asked once for each refresh of each block, in the step and beside it,
// and what it leaves alone keeps its bits.
func TestSolversAreAskedForEachRefresh(t *testing.T) {
	for _, mode := range []Mode{Native, Asteria} {
		var want map[string]string
		for _, s := range []*sabotage{nil, {block: "layers.0.q"}} {
			o := asyncOptions(kron.SOAP)
			o.Mode = mode
			if s != nil {
				o.Solvers = s
			}
			params := network[float32]()
			r := newRuntime(t, params, 2, o)
			run(t, r, params, 1, 25)
			if err := r.Settle(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := bits(params, r)
			if s == nil {
				want = got
				continue
			}
			same(t, mode.String(), got, want)
			if n := s.seen.Load(); n != 7 { // of steps 1, 5, 9 … 25
				t.Errorf("%v: asked %d times", mode, n)
			}
		}
	}
}
