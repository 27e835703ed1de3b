package kron

import (
	"context"

	"github.com/asteria-runtime/asteria/gemm"
)

// Worker is what one goroutine needs to run whole steps with the refresh inside
// them. Its job memory serves blocks of any size up to those it was made for.
type Worker[T gemm.Float] struct {
	Ops     Ops[T]
	Solver  Refresher[T]
	Scratch *Scratch[T]
	// Fetch, when not nil, is called before the host reads a state's factors and
	// bases, with no operation in flight: it may bring them nearer.
	Fetch func(*State[T]) error

	job      Job[T]
	elements []T
	indices  []int
}

// WorkerLen returns how many elements and indices [NewWorker] allocates.
func WorkerLen[T gemm.Float](blocks ...*Block[T]) (elements, indices int) {
	for _, b := range blocks {
		e, i := b.JobLen()
		elements, indices = max(elements, e), max(indices, i)
	}
	return elements + ScratchLen(blocks...), indices
}

// NewWorker returns a worker for the given blocks, one at a time. Worker, ops
// and solver belong to one goroutine.
func NewWorker[T gemm.Float](ops Ops[T], solver Refresher[T], blocks ...*Block[T]) *Worker[T] {
	elements, indices := WorkerLen(blocks...)
	elements -= ScratchLen(blocks...)
	return &Worker[T]{
		Ops: ops, Solver: solver, Scratch: NewScratch(blocks...),
		elements: gemm.OnHugePages(make([]T, elements)), indices: make([]int, indices),
	}
}

// Step runs a whole step of b with the refresh, when one is due, inside it: the
// synchronous optimizer, against which every asynchronous schedule is compared.
// It reports whether a refresh ran. The context reaches the solver.
func (w *Worker[T]) Step(ctx context.Context, b *Block[T], st *State[T], param, grad View[T], lr float64) (refreshed bool, err error) {
	b.Begin(st, param, grad, lr, w.Ops, w.Scratch)
	refreshed = b.Due(st.Meta)
	if refreshed {
		err = w.refresh(ctx, b, st)
	}
	b.Finish(st, param, grad, lr, w.Ops, w.Scratch)
	if sync := w.Ops.Sync(); err == nil {
		err = sync
	}
	return refreshed, err
}

// refresh is the adoption point with lag zero. A failed refresh leaves the
// previous result in use; only too many of them in a row are an error.
func (w *Worker[T]) refresh(ctx context.Context, b *Block[T], st *State[T]) error {
	b.CutJob(&w.job, w.elements, w.indices)
	w.job.Result.Shared = true
	if err := w.Ops.Sync(); err != nil {
		return err
	}
	if w.Fetch != nil {
		if err := w.Fetch(st); err != nil {
			return err
		}
	}
	if err := b.Snapshot(st, &w.job.Snapshot); err != nil {
		return b.Fail(st, 0, err)
	}
	// Errors of single modes stay in the result, where Install counts them.
	_ = b.Refresh(ctx, w.Solver, w.Ops, &w.job.Snapshot, &w.job.Result)
	return b.Install(st, &w.job.Result, w.Ops, w.Scratch)
}
