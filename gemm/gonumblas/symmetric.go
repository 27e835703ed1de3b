package gonumblas

import (
	"gonum.org/v1/gonum/blas"

	"github.com/asteria-runtime/asteria/gemm"
)

// leaf is the order below which an upper triangle is computed as a lower one in a
// temporary and turned over.
const leaf = 64

// rows views rows [i, i+n) of op(a), which is n×k, as the matrix that is stored.
func rows[T gemm.Float](t blas.Transpose, i, n, k int, a []T, lda int) gemm.Matrix[T] {
	if t != blas.NoTrans {
		return gemm.Matrix[T]{Rows: k, Cols: n, Stride: lda, Data: a[i:]}
	}
	return gemm.Matrix[T]{Rows: n, Cols: k, Stride: lda, Data: a[i*lda:]}
}

func syrk[T gemm.Float](e *gemm.Engine, ul blas.Uplo, t blas.Transpose, n, k int, alpha T, a []T, lda int, beta T, c []T, ldc int) {
	tr := t != blas.NoTrans
	if ul == blas.Lower {
		gemm.Syrk(e, tr, alpha, rows(t, 0, n, k, a, lda), beta, gemm.Matrix[T]{Rows: n, Cols: n, Stride: ldc, Data: c})
		return
	}
	upper(n, c, ldc, beta, func(i, m, j, n int, beta T, c gemm.Matrix[T]) {
		gemm.Mul(e, tr, !tr, alpha, rows(t, i, m, k, a, lda), rows(t, j, n, k, a, lda), beta, c)
	}, func(i, n int, c gemm.Matrix[T]) {
		gemm.Syrk(e, tr, alpha, rows(t, i, n, k, a, lda), 0, c)
	})
}

func syr2k[T gemm.Float](e *gemm.Engine, ul blas.Uplo, t blas.Transpose, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int) {
	tr := t != blas.NoTrans
	lower := func(i, n int, beta T, c gemm.Matrix[T]) {
		x, y := rows(t, i, n, k, a, lda), rows(t, i, n, k, b, ldb)
		gemm.MulLower(e, tr, !tr, alpha, x, y, beta, c)
		gemm.MulLower(e, tr, !tr, alpha, y, x, 1, c)
	}
	if ul == blas.Lower {
		lower(0, n, beta, gemm.Matrix[T]{Rows: n, Cols: n, Stride: ldc, Data: c})
		return
	}
	upper(n, c, ldc, beta, func(i, m, j, n int, beta T, c gemm.Matrix[T]) {
		gemm.Mul(e, tr, !tr, alpha, rows(t, i, m, k, a, lda), rows(t, j, n, k, b, ldb), beta, c)
		gemm.Mul(e, tr, !tr, alpha, rows(t, i, m, k, b, ldb), rows(t, j, n, k, a, lda), 1, c)
	}, func(i, n int, c gemm.Matrix[T]) { lower(i, n, 0, c) })
}

// upper computes an upper triangle by strips of leaf rows: the part right of the
// diagonal block with product, the block itself with diagonal, as a lower
// triangle in a temporary.
func upper[T gemm.Float](n int, c []T, ldc int, beta T, product func(i, m, j, n int, beta T, c gemm.Matrix[T]), diagonal func(i, n int, c gemm.Matrix[T])) {
	tmp := make([]T, leaf*leaf)
	for i := 0; i < n; i += leaf {
		m := min(leaf, n-i)
		if j := i + m; j < n {
			product(i, m, j, n-j, beta, gemm.Matrix[T]{Rows: m, Cols: n - j, Stride: ldc, Data: c[i*ldc+j:]})
		}
		d := gemm.MatrixOf(m, m, tmp)
		diagonal(i, m, d)
		turnOver(m, beta, d, c[i*ldc+i:], ldc)
	}
}

// turnOver sets the upper triangle of c to dᵀ + beta*c.
func turnOver[T gemm.Float](m int, beta T, d gemm.Matrix[T], c []T, ldc int) {
	for i := range m {
		for j := i; j < m; j++ {
			v := d.At(j, i)
			if beta != 0 {
				v += beta * c[i*ldc+j]
			}
			c[i*ldc+j] = v
		}
	}
}

func symm[T gemm.Float](e *gemm.Engine, s blas.Side, ul blas.Uplo, m, n int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int) {
	x := full(ul, order(s, m, n), a, lda)
	y := gemm.Matrix[T]{Rows: m, Cols: n, Stride: ldb, Data: b}
	z := gemm.Matrix[T]{Rows: m, Cols: n, Stride: ldc, Data: c}
	if s == blas.Left {
		gemm.Mul(e, false, false, alpha, x, y, beta, z)
		return
	}
	gemm.Mul(e, false, false, alpha, y, x, beta, z)
}

// full returns the symmetric matrix of which a holds one triangle.
func full[T gemm.Float](ul blas.Uplo, n int, a []T, lda int) gemm.Matrix[T] {
	x := gemm.NewMatrix[T](n, n)
	for i := range n {
		for j := range i + 1 {
			v := a[i*lda+j]
			if ul == blas.Upper {
				v = a[j*lda+i]
			}
			x.Set(i, j, v)
			x.Set(j, i, v)
		}
	}
	return x
}
