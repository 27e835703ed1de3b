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

	// Ahead has the buffer of Alloc that holds mem brought to where operations use
	// it, before they do, and does not wait. Memory that is there, or that does not
	// move, costs nothing.
	Ahead(mem []byte) error
	// Back brings mem to where the host reads it, and waits. No operation may be in
	// flight on it.
	Back(mem []byte) error
	// HostUsed says that the host has read or written mem without Back.
	HostUsed(mem []byte)
	// Moved returns how much memory was moved so far.
	Moved() Moved
	// Room returns for how many bytes of state the device has room, math.MaxInt64
	// where state does not lie in its memory, and how many bytes of it are free.
	Room() (state, free int64, err error)
}

// Moved counts the bytes that an accelerator's memory moved between host and device.
type Moved struct {
	Ahead int64 // to the device, before an operation needed them
	Late  int64 // to the device, when an operation needed them
	Back  int64 // to the host, before it read them
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
		return gemm.OnHugePages(make([]T, n)), nil
	}
	b, err := r.opts.Backend.Alloc(objectBytes[T](n))
	if err != nil {
		return nil, err
	}
	r.lent = append(r.lent, b)
	return elements[T](b.Bytes())[:n], nil
}

// Moved returns what the accelerator's memory moved; ok is false without one.
func (r *Runtime[T]) Moved() (m Moved, ok bool) {
	if r.opts.Backend == nil {
		return m, false
	}
	return r.opts.Backend.Moved(), true
}

// bringAhead has the state of all blocks brought to the accelerator, in the order of
// the step: together with what it allocated never more than its memory.
func (r *Runtime[T]) bringAhead() error {
	if r.opts.Backend == nil || r.store != nil {
		return nil
	}
	for _, list := range [2][]*unit[T]{r.alone, r.queue} {
		for _, u := range list {
			if err := r.ahead(u.memory); err != nil {
				return err
			}
		}
	}
	return nil
}

// ahead is Backend.Ahead for elements.
func (r *Runtime[T]) ahead(x []T) error {
	if r.opts.Backend == nil || len(x) == 0 {
		return nil
	}
	return r.opts.Backend.Ahead(bytesOf(x))
}

// fetch brings what a snapshot reads of a state to the host.
func (r *Runtime[T]) fetch(st *kron.State[T]) error {
	if r.opts.Backend == nil {
		return nil
	}
	for k := range st.Factor {
		read := [2][]T{st.Factor[k], st.Root[k]}
		if r.opts.Method == kron.Shampoo { // its roots do not depend on the last ones
			read[1] = nil
		}
		for _, x := range read {
			if len(x) == 0 {
				continue
			}
			if err := r.opts.Backend.Back(bytesOf(x)); err != nil {
				return err
			}
		}
	}
	return nil
}

// fetchBy has a worker's snapshots fetched by r.
func (w *worker[T]) fetchBy(r *Runtime[T]) {
	if w.kron != nil {
		w.kron.Fetch = r.fetch
	}
}

// hostUses says that the host is going to read or write the state in place.
func (r *Runtime[T]) hostUses() {
	if r.opts.Backend == nil {
		return
	}
	for _, u := range r.units {
		if len(u.memory) > 0 {
			r.opts.Backend.HostUsed(bytesOf(u.memory))
		}
	}
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
