package asteria

import (
	"errors"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/invroot"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/uvm"
)

// Backend is an accelerator for the optimizer's dense work: factor updates,
// rotations and refreshes. It is safe for concurrent use. The memory that it
// allocates holds the state of the blocks; parameters and gradients stay where the
// model has them.
type Backend interface {
	uvm.Allocator
	// Kit32 and Kit64 make what one worker computes with, for factors up to an
	// order. solver is the host's, to which the accelerator may leave a refresh.
	Kit32(order int, solver *invroot.Solver[float32], o invroot.Options) (Kit[float32], error)
	Kit64(order int, solver *invroot.Solver[float64], o invroot.Options) (Kit[float64], error)
}

// Kit is what one worker computes with.
type Kit[T gemm.Float] struct {
	Ops    kron.Ops[T]
	Solver Solver[T]
	Close  func() error
}

// Solver refreshes and tells how the last call went; *invroot.Refresher is one.
type Solver[T gemm.Float] interface {
	kron.Refresher[T]
	Report() invroot.Report
}

var _ Solver[float32] = (*invroot.Refresher[float32])(nil)

// newKit asks the backend for T's kit, or makes the host's when there is none.
func newKit[T gemm.Float](eng *gemm.Engine, order int, solver *invroot.Solver[T], o Options) (kit Kit[T], err error) {
	if o.Backend == nil {
		return Kit[T]{Ops: kron.NewCPU[T](eng), Solver: invroot.NewRefresher(solver), Close: func() error { return nil }}, nil
	}
	switch s := any(solver).(type) {
	case *invroot.Solver[float32]:
		var k Kit[float32]
		k, err = o.Backend.Kit32(order, s, o.Solver)
		kit, _ = any(k).(Kit[T])
	case *invroot.Solver[float64]:
		var k Kit[float64]
		k, err = o.Backend.Kit64(order, s, o.Solver)
		kit, _ = any(k).(Kit[T])
	}
	return kit, err
}

// stateMemory returns n zeroed elements for a block's state: the backend's, given
// back by Close, or the Go heap's.
func (r *Runtime[T]) stateMemory(n int) ([]T, error) {
	if r.opts.Backend == nil || n == 0 {
		return make([]T, n), nil
	}
	b, err := r.opts.Backend.Alloc(objectBytes[T](n))
	if err != nil {
		return nil, err
	}
	r.lent = append(r.lent, b)
	return elements[T](b.Bytes())[:n], nil
}

// giveBack closes what stateMemory took from the backend.
func (r *Runtime[T]) giveBack() error {
	var errs []error
	for _, b := range r.lent {
		errs = append(errs, b.Close())
	}
	r.lent = nil
	return errors.Join(errs...)
}
