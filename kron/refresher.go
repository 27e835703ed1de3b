package kron

import (
	"context"

	"github.com/asteria-runtime/asteria/gemm"
)

// Refresher is what a refresh job needs of a solver. The solver owns retries,
// precision and ridge, checks its input for non-finite numbers, and returns an
// error rather than a non-finite result. A Refresher serves one goroutine.
type Refresher[T gemm.Float] interface {
	// Root sets dst = f(a)^(-exponent) with the solver's ridge option; dst and a
	// are n×n symmetric, a is given in full and only read.
	Root(ctx context.Context, dst, a gemm.Matrix[T], exponent float64) error
	// Eigen sets the columns of q to the eigenvectors of a and w to its
	// eigenvalues, in descending or ascending order.
	Eigen(ctx context.Context, q gemm.Matrix[T], w []T, a gemm.Matrix[T], descending bool) error
	// Iterate replaces q by one step of orthogonal iteration, the Householder
	// QR of a*q[:,perm]. With perm non-nil, of length n, the columns are first
	// sorted by descending diag(qᵀ*a*q), stably, and perm receives the order:
	// perm[new] = old. With perm nil the column order is kept (KL).
	Iterate(ctx context.Context, q, a gemm.Matrix[T], perm []int) error
	// Diagonalize runs the QR algorithm of facebookresearch/optimizers on q in
	// place: at most maxIter steps, relative off-diagonal tolerance tol, columns
	// in ascending order of the eigenvalues in w.
	Diagonalize(ctx context.Context, q gemm.Matrix[T], w []T, a gemm.Matrix[T], maxIter int, tol float64) error
}
