package invroot

import (
	"context"

	"github.com/asteria-runtime/asteria/gemm"
)

// Refresher presents a Solver as the four calls of a refresh job that return an
// error only; the evidence of the last one is kept. One goroutine at a time.
type Refresher[T gemm.Float] struct {
	s   *Solver[T]
	rep Report
}

// NewRefresher wraps s.
func NewRefresher[T gemm.Float](s *Solver[T]) *Refresher[T] { return &Refresher[T]{s: s} }

// Report returns the evidence of the last call.
func (r *Refresher[T]) Report() Report { return r.rep }

// Root sets dst = (a + ridge)^(-exponent); see [Solver.InversePower].
func (r *Refresher[T]) Root(ctx context.Context, dst, a gemm.Matrix[T], exponent float64) (err error) {
	r.rep, err = r.s.InversePower(ctx, dst, a, exponent)
	return err
}

// Eigen sets the columns of q to the eigenvectors of a and w to its
// eigenvalues; see [Solver.EigenSym].
func (r *Refresher[T]) Eigen(ctx context.Context, q gemm.Matrix[T], w []T, a gemm.Matrix[T], descending bool) (err error) {
	r.rep, err = r.s.EigenSym(ctx, q, w, a, descending)
	return err
}

// Iterate refreshes the basis q as the solver's BasisRefresh option says: by
// default one step of orthogonal iteration; see [Solver.RefreshBasis].
func (r *Refresher[T]) Iterate(ctx context.Context, q, a gemm.Matrix[T], perm []int) (err error) {
	r.rep, err = r.s.RefreshBasis(ctx, q, a, perm)
	return err
}

// Diagonalize runs the QR algorithm on q in place; see [Solver.Diagonalize].
func (r *Refresher[T]) Diagonalize(ctx context.Context, q gemm.Matrix[T], w []T, a gemm.Matrix[T], maxIter int, tol float64) (err error) {
	r.rep, err = r.s.Diagonalize(ctx, q, w, a, maxIter, tol)
	return err
}
