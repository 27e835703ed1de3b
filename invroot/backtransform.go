package invroot

import (
	"context"

	"github.com/asteria-runtime/asteria/gemm"
)

// maxReflectors bounds the reflectors that are applied as one block.
const maxReflectors = 64

// reflectorBlock is the compact form of a product of reflectors,
// H(1)H(2)…H(k) = I - Vᵀ*T*V with V of k rows and T upper triangular
// (Schreiber and Van Loan 1989, LAPACK larft).
type reflectorBlock[T gemm.Float] struct {
	v, t, gram gemm.Matrix[T]
	w, wt      gemm.Matrix[T] // products, n×k
}

func newReflectorBlock[T gemm.Float](n int) *reflectorBlock[T] {
	return &reflectorBlock[T]{
		v: scratch[T](maxReflectors, n), t: scratch[T](maxReflectors, maxReflectors),
		gram: scratch[T](maxReflectors, maxReflectors),
		w:    scratch[T](n, maxReflectors), wt: scratch[T](n, maxReflectors),
	}
}

// backTransform sets z = z*H(1)…H(n-1): rows that are eigenvectors of the
// tridiagonal matrix become rows that are eigenvectors of A. a and tau are as reduce left them.
func (b *reflectorBlock[T]) backTransform(ctx context.Context, eng *gemm.Engine, z, a gemm.Matrix[T], tau []T) error {
	n := a.Rows
	width := blockWidth(n)
	for first := 1; first < n; first += width {
		if err := ctx.Err(); err != nil {
			return err
		}
		k := min(width, n-first)
		b.load(eng, a, tau, first, k)
		b.applyRight(eng, corner(z, n, first+k-1), k)
	}
	return nil
}

// blockWidth balances the triangular waste of a block against product depth.
func blockWidth(n int) int {
	if n <= 256 {
		return 32
	}
	return maxReflectors
}

// load gathers k reflectors from row first on: row r has r elements.
func (b *reflectorBlock[T]) load(eng *gemm.Engine, a gemm.Matrix[T], tau []T, first, k int) {
	m := first + k - 1
	for i := range k {
		r := first + i
		row := b.v.Row(i)[:m]
		copy(row, a.Row(r)[:r])
		clear(row[r:])
	}
	v := corner(b.v, k, m)
	gram := corner(b.gram, k, k)
	gemm.Syrk(eng, false, 1, v, 0, gram)
	b.triangle(tau[first:first+k], k)
}

// triangle builds T from the lower triangle of the Gram matrix of V: column j is
// -tau[j]*T*(V*v_j).
func (b *reflectorBlock[T]) triangle(tau []T, k int) {
	for j := range k {
		g := b.gram.Row(j)
		for i := range j {
			row := b.t.Row(i)
			var s T
			for l := i; l < j; l++ {
				s += row[l] * g[l]
			}
			row[j] = -tau[j] * s
		}
		row := b.t.Row(j)
		clear(row[:j])
		row[j] = tau[j]
	}
}

// applyRight sets z = z*(I - Vᵀ*T*V) for z of as many columns as V.
func (b *reflectorBlock[T]) applyRight(eng *gemm.Engine, z gemm.Matrix[T], k int) {
	v, t := corner(b.v, k, z.Cols), corner(b.t, k, k)
	w, wt := corner(b.w, z.Rows, k), corner(b.wt, z.Rows, k)
	gemm.Mul(eng, false, true, 1, z, v, 0, w)
	gemm.Mul(eng, false, false, 1, w, t, 0, wt)
	gemm.Mul(eng, false, false, -1, wt, v, 1, z)
}
