package gonumblas

import (
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"

	"github.com/asteria-runtime/asteria/gemm"
)

// Implementation is gonum's BLAS with level 3 on an engine of package gemm. It
// satisfies blas.Float32 and blas.Float64.
type Implementation struct {
	gonum.Implementation
	e *gemm.Engine
}

var (
	_ blas.Float32 = Implementation{}
	_ blas.Float64 = Implementation{}
)

// New returns an implementation that computes on e, which stays the caller's to
// close after the last use.
func New(e *gemm.Engine) Implementation { return Implementation{e: e} }

// Sgemm computes c = alpha*op(a)*op(b) + beta*c.
func (i Implementation) Sgemm(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	if !gemmArgs(tA, tB, m, n, k, alpha, a, lda, b, ldb, c, ldc) {
		i.Implementation.Sgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	i.e.Sgemm(tA != blas.NoTrans, tB != blas.NoTrans, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// Dgemm is Sgemm in float64.
func (i Implementation) Dgemm(tA, tB blas.Transpose, m, n, k int, alpha float64, a []float64, lda int, b []float64, ldb int, beta float64, c []float64, ldc int) {
	if !gemmArgs(tA, tB, m, n, k, alpha, a, lda, b, ldb, c, ldc) {
		i.Implementation.Dgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	i.e.Dgemm(tA != blas.NoTrans, tB != blas.NoTrans, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// Ssyrk computes c = alpha*a*aᵀ + beta*c, or alpha*aᵀ*a + beta*c, in one triangle.
func (i Implementation) Ssyrk(ul blas.Uplo, t blas.Transpose, n, k int, alpha float32, a []float32, lda int, beta float32, c []float32, ldc int) {
	if !rankArgs(ul, t, n, k, alpha, a, lda, a, lda, c, ldc) {
		i.Implementation.Ssyrk(ul, t, n, k, alpha, a, lda, beta, c, ldc)
		return
	}
	syrk(i.e, ul, t, n, k, alpha, a, lda, beta, c, ldc)
}

// Dsyrk is Ssyrk in float64.
func (i Implementation) Dsyrk(ul blas.Uplo, t blas.Transpose, n, k int, alpha float64, a []float64, lda int, beta float64, c []float64, ldc int) {
	if !rankArgs(ul, t, n, k, alpha, a, lda, a, lda, c, ldc) {
		i.Implementation.Dsyrk(ul, t, n, k, alpha, a, lda, beta, c, ldc)
		return
	}
	syrk(i.e, ul, t, n, k, alpha, a, lda, beta, c, ldc)
}

// Ssyr2k computes c = alpha*(a*bᵀ + b*aᵀ) + beta*c, or alpha*(aᵀ*b + bᵀ*a) + beta*c,
// in one triangle.
func (i Implementation) Ssyr2k(ul blas.Uplo, t blas.Transpose, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	if !rankArgs(ul, t, n, k, alpha, a, lda, b, ldb, c, ldc) {
		i.Implementation.Ssyr2k(ul, t, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	syr2k(i.e, ul, t, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// Dsyr2k is Ssyr2k in float64.
func (i Implementation) Dsyr2k(ul blas.Uplo, t blas.Transpose, n, k int, alpha float64, a []float64, lda int, b []float64, ldb int, beta float64, c []float64, ldc int) {
	if !rankArgs(ul, t, n, k, alpha, a, lda, b, ldb, c, ldc) {
		i.Implementation.Dsyr2k(ul, t, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	syr2k(i.e, ul, t, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// Ssymm computes c = alpha*a*b + beta*c, or alpha*b*a + beta*c, with a symmetric.
func (i Implementation) Ssymm(s blas.Side, ul blas.Uplo, m, n int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	if !symmArgs(s, ul, m, n, alpha, a, lda, b, ldb, c, ldc) {
		i.Implementation.Ssymm(s, ul, m, n, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	symm(i.e, s, ul, m, n, alpha, a, lda, b, ldb, beta, c, ldc)
}

// Dsymm is Ssymm in float64.
func (i Implementation) Dsymm(s blas.Side, ul blas.Uplo, m, n int, alpha float64, a []float64, lda int, b []float64, ldb int, beta float64, c []float64, ldc int) {
	if !symmArgs(s, ul, m, n, alpha, a, lda, b, ldb, c, ldc) {
		i.Implementation.Dsymm(s, ul, m, n, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	symm(i.e, s, ul, m, n, alpha, a, lda, b, ldb, beta, c, ldc)
}

// Strmm computes b = alpha*op(a)*b, or alpha*b*op(a), with a triangular.
func (i Implementation) Strmm(s blas.Side, ul blas.Uplo, tA blas.Transpose, d blas.Diag, m, n int, alpha float32, a []float32, lda int, b []float32, ldb int) {
	if !triangleArgs(s, ul, tA, d, m, n, a, lda, b, ldb) {
		i.Implementation.Strmm(s, ul, tA, d, m, n, alpha, a, lda, b, ldb)
		return
	}
	i.e.Strmm(triangle(s, ul, tA, d), m, n, alpha, a, lda, b, ldb)
}

// Dtrmm is Strmm in float64.
func (i Implementation) Dtrmm(s blas.Side, ul blas.Uplo, tA blas.Transpose, d blas.Diag, m, n int, alpha float64, a []float64, lda int, b []float64, ldb int) {
	if !triangleArgs(s, ul, tA, d, m, n, a, lda, b, ldb) {
		i.Implementation.Dtrmm(s, ul, tA, d, m, n, alpha, a, lda, b, ldb)
		return
	}
	i.e.Dtrmm(triangle(s, ul, tA, d), m, n, alpha, a, lda, b, ldb)
}

// Strsm solves op(a)*x = alpha*b, or x*op(a) = alpha*b, with a triangular; x
// replaces b.
func (i Implementation) Strsm(s blas.Side, ul blas.Uplo, tA blas.Transpose, d blas.Diag, m, n int, alpha float32, a []float32, lda int, b []float32, ldb int) {
	if !triangleArgs(s, ul, tA, d, m, n, a, lda, b, ldb) {
		i.Implementation.Strsm(s, ul, tA, d, m, n, alpha, a, lda, b, ldb)
		return
	}
	i.e.Strsm(triangle(s, ul, tA, d), m, n, alpha, a, lda, b, ldb)
}

// Dtrsm is Strsm in float64.
func (i Implementation) Dtrsm(s blas.Side, ul blas.Uplo, tA blas.Transpose, d blas.Diag, m, n int, alpha float64, a []float64, lda int, b []float64, ldb int) {
	if !triangleArgs(s, ul, tA, d, m, n, a, lda, b, ldb) {
		i.Implementation.Dtrsm(s, ul, tA, d, m, n, alpha, a, lda, b, ldb)
		return
	}
	i.e.Dtrsm(triangle(s, ul, tA, d), m, n, alpha, a, lda, b, ldb)
}
