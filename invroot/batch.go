package invroot

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/asteria-runtime/asteria/gemm"
)

// Task selects what a job computes.
type Task uint8

const (
	// RootTask sets Out = (A + ridge)^(-Exponent).
	RootTask Task = iota
	// EigenTask sets Out and Values to the eigenvectors and eigenvalues of A, descending.
	EigenTask
	// BasisTask refreshes the basis in Out; Perm, when it has length n, receives the order.
	BasisTask
)

// Job is one refresh of a batch.
type Job[T gemm.Float] struct {
	Task     Task
	A, Out   gemm.Matrix[T] // n×n
	Exponent float64        // of RootTask, > 0
	Values   []T            // of EigenTask, length n
	Perm     []int          // of BasisTask, length n or nil

	// Report and Err are set by Run.
	Report Report
	Err    error
}

// Batch spreads independent refreshes over workers, each with a solver and a
// one-thread engine of its own: two matrices on two cores finish sooner than
// one after the other on both. Results do not depend on the number of workers.
// One goroutine at a time calls Run.
type Batch[T gemm.Float] struct {
	engines []*gemm.Engine
	solvers []*Solver[T]
}

// NewBatch returns a batch of workers for orders up to maxOrder. Close it when done.
func NewBatch[T gemm.Float](workers, maxOrder int, opts Options) (*Batch[T], error) {
	if workers < 1 {
		return nil, fmt.Errorf("invroot: workers %d: want ≥ 1", workers)
	}
	b := &Batch[T]{}
	for range workers {
		eng := gemm.New(1)
		s, err := NewSolver[T](eng, maxOrder, opts)
		if err != nil {
			eng.Close()
			b.Close()
			return nil, err
		}
		b.engines = append(b.engines, eng)
		b.solvers = append(b.solvers, s)
	}
	return b, nil
}

// Close releases the workers' engines.
func (b *Batch[T]) Close() {
	for i, s := range b.solvers {
		s.Close()
		b.engines[i].Close()
	}
	b.solvers, b.engines = nil, nil
}

// Run does every job and waits. A failed job keeps what its output held and does not
// stop the others; the errors come joined, each with its job's number, and in the jobs.
func (b *Batch[T]) Run(ctx context.Context, jobs []Job[T]) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	for _, s := range b.solvers[:min(len(b.solvers), len(jobs))] {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(jobs)); i = next.Add(1) - 1 {
				s.do(ctx, &jobs[i])
			}
		})
	}
	wg.Wait()
	var errs []error
	for i := range jobs {
		if jobs[i].Err != nil {
			errs = append(errs, fmt.Errorf("invroot: job %d: %w", i, jobs[i].Err))
		}
	}
	return errors.Join(errs...)
}

// Stats returns the workers' counters, added up.
func (b *Batch[T]) Stats() Stats {
	var sum Stats
	for _, s := range b.solvers {
		t := s.Stats()
		sum.Calls += t.Calls
		sum.ToDouble += t.ToDouble
		sum.Retried += t.Retried
		sum.MoreRidge += t.MoreRidge
		sum.Refused += t.Refused
		sum.Failed += t.Failed
	}
	return sum
}

// do runs one job and stores its outcome in it.
func (s *Solver[T]) do(ctx context.Context, j *Job[T]) {
	switch j.Task {
	case RootTask:
		j.Report, j.Err = s.InversePower(ctx, j.Out, j.A, j.Exponent)
	case EigenTask:
		j.Report, j.Err = s.EigenSym(ctx, j.Out, j.Values, j.A, true)
	case BasisTask:
		j.Report, j.Err = s.RefreshBasis(ctx, j.Out, j.A, j.Perm)
	default:
		j.Err = fmt.Errorf("invroot: task %d: want RootTask, EigenTask or BasisTask", j.Task)
	}
}
