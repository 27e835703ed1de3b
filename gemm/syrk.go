package gemm

// Ssyrk sets the lower triangle of c (n×n): c = alpha*a*aᵀ + beta*c with a n×k, or
// alpha*aᵀ*a + beta*c with a k×n when trans. Elements above the diagonal are not
// written. c must not overlap a.
func (e *Engine) Ssyrk(trans bool, n, k int, alpha float32, a []float32, lda int, beta float32, c []float32, ldc int) {
	syrk(e, trans, n, k, alpha, a, lda, beta, c, ldc)
}

// Dsyrk is Ssyrk in float64.
func (e *Engine) Dsyrk(trans bool, n, k int, alpha float64, a []float64, lda int, beta float64, c []float64, ldc int) {
	syrk(e, trans, n, k, alpha, a, lda, beta, c, ldc)
}

// Syrk is Ssyrk or Dsyrk on views: the lower triangle of c only.
func Syrk[T Float](e *Engine, trans bool, alpha T, a Matrix[T], beta T, c Matrix[T]) {
	n, k := a.Rows, a.Cols
	if trans {
		n, k = k, n
	}
	if n != c.Rows || n != c.Cols {
		panic("gemm: sizes of a and c do not fit")
	}
	syrk(e, trans, n, k, alpha, a.Data, a.Stride, beta, c.Data, c.Stride)
}

func syrk[T Float](e *Engine, trans bool, n, k int, alpha T, a []T, lda int, beta T, c []T, ldc int) {
	gemmLower(e, trans, !trans, n, k, alpha, a, lda, a, lda, beta, c, ldc)
}

// gemmLower is gemm for the lower triangle of a square c.
func gemmLower[T Float](e *Engine, ta, tb bool, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int) {
	checkSizes(n, n, k)
	checkMatrix(n, n, c, ldc, "gemm: ldc < n", "gemm: c is too short")
	if n == 0 {
		return
	}
	if alpha == 0 || k == 0 {
		scaleLower(n, beta, c, ldc)
		return
	}
	checkOp(ta, n, k, a, lda, "gemm: lda is too small", "gemm: a is too short")
	checkOp(tb, k, n, b, ldb, "gemm: ldb is too small", "gemm: b is too short")
	multiply(e, &product[T]{ta: ta, tb: tb, lower: true, m: n, n: n, k: k, alpha: alpha, beta: beta,
		a: a, b: b, c: c, lda: lda, ldb: ldb, ldc: ldc})
}

// scaleLower is scale for the lower triangle.
func scaleLower[T Float](n int, beta T, c []T, ldc int) {
	if beta == 1 {
		return
	}
	for i := range n {
		scaleRow(beta, c[i*ldc:i*ldc+i+1])
	}
}
