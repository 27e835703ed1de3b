package gonumblas

import (
	"gonum.org/v1/gonum/blas"

	"github.com/asteria-runtime/asteria/gemm"
)

// The functions here report whether a call is valid and has work to do. Any other
// call goes to gonum, which panics or returns as its users expect.

func trans(t blas.Transpose) bool {
	return t == blas.NoTrans || t == blas.Trans || t == blas.ConjTrans
}

func uplo(ul blas.Uplo) bool { return ul == blas.Lower || ul == blas.Upper }

func side(s blas.Side) bool { return s == blas.Left || s == blas.Right }

// fits reports whether a rows×cols matrix fits its stride and slice.
func fits[T gemm.Float](rows, cols int, x []T, ld int) bool {
	return ld >= max(1, cols) && len(x) >= (rows-1)*ld+cols
}

// opFits is fits for a matrix whose op is rows×cols.
func opFits[T gemm.Float](t blas.Transpose, rows, cols int, x []T, ld int) bool {
	if t != blas.NoTrans {
		rows, cols = cols, rows
	}
	return fits(rows, cols, x, ld)
}

func gemmArgs[T gemm.Float](tA, tB blas.Transpose, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, c []T, ldc int) bool {
	return trans(tA) && trans(tB) && m > 0 && n > 0 && k > 0 && alpha != 0 &&
		opFits(tA, m, k, a, lda) && opFits(tB, k, n, b, ldb) && fits(m, n, c, ldc)
}

func rankArgs[T gemm.Float](ul blas.Uplo, t blas.Transpose, n, k int, alpha T, a []T, lda int, b []T, ldb int, c []T, ldc int) bool {
	return uplo(ul) && trans(t) && n > 0 && k > 0 && alpha != 0 &&
		opFits(t, n, k, a, lda) && opFits(t, n, k, b, ldb) && fits(n, n, c, ldc)
}

func symmArgs[T gemm.Float](s blas.Side, ul blas.Uplo, m, n int, alpha T, a []T, lda int, b []T, ldb int, c []T, ldc int) bool {
	return side(s) && uplo(ul) && m > 0 && n > 0 && alpha != 0 &&
		fits(order(s, m, n), order(s, m, n), a, lda) && fits(m, n, b, ldb) && fits(m, n, c, ldc)
}

func triangleArgs[T gemm.Float](s blas.Side, ul blas.Uplo, tA blas.Transpose, d blas.Diag, m, n int, a []T, lda int, b []T, ldb int) bool {
	return side(s) && uplo(ul) && trans(tA) && (d == blas.Unit || d == blas.NonUnit) && m > 0 && n > 0 &&
		fits(order(s, m, n), order(s, m, n), a, lda) && fits(m, n, b, ldb)
}

// order is the order of a triangular or symmetric a for an m×n b.
func order(s blas.Side, m, n int) int {
	if s == blas.Left {
		return m
	}
	return n
}

// triangle converts gonum's flags.
func triangle(s blas.Side, ul blas.Uplo, tA blas.Transpose, d blas.Diag) gemm.Triangle {
	return gemm.Triangle{Right: s == blas.Right, Upper: ul == blas.Upper, Trans: tA != blas.NoTrans, Unit: d == blas.Unit}
}
