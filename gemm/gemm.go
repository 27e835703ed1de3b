package gemm

// Sgemm sets c = alpha*op(a)*op(b) + beta*c; op(a) is m×k, op(b) is k×n, c is m×n,
// all row-major, and op transposes when ta or tb says so. c must not overlap a or b.
// With beta 0, c need not be initialised; with alpha 0 or k 0, a and b are not read.
// It panics on negative sizes, short strides and short slices.
func (e *Engine) Sgemm(ta, tb bool, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	gemm(e, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// Dgemm is Sgemm in float64.
func (e *Engine) Dgemm(ta, tb bool, m, n, k int, alpha float64, a []float64, lda int, b []float64, ldb int, beta float64, c []float64, ldc int) {
	gemm(e, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// Mul sets c = alpha*op(a)*op(b) + beta*c, dispatching on the element type. The
// sizes are those of c and of op(a); it panics when they do not fit together.
func Mul[T Float](e *Engine, ta, tb bool, alpha T, a, b Matrix[T], beta T, c Matrix[T]) {
	k := fit(ta, tb, a, b, c)
	gemm(e, ta, tb, c.Rows, c.Cols, k, alpha, a.Data, a.Stride, b.Data, b.Stride, beta, c.Data, c.Stride)
}

// MulParts is [Mul] with the sums cut into parts of the inner dimension, which must be
// a multiple of part: one part is added after the other, each rounded as by a call of
// its own, so that the bits are those of a call for each part of which the later ones
// add (beta 1). One call reads and writes c once.
func MulParts[T Float](e *Engine, ta, tb bool, part int, alpha T, a, b Matrix[T], beta T, c Matrix[T]) {
	k := fit(ta, tb, a, b, c)
	if part <= 0 || k%part != 0 {
		panic("gemm: part does not divide the inner dimension")
	}
	gemmParts(e, ta, tb, c.Rows, c.Cols, k, part, nil, alpha, a.Data, a.Stride, b.Data, b.Stride, beta, c.Data, c.Stride)
}

// MulTree is [MulParts] with the parts in groups that are summed as the leaves of a
// binary tree: part i belongs to group groups[i], numbers from 0 on that do not fall.
// The parts of a group are added one after the other, as by MulParts; then two
// neighbours are added before either meets a third, when the third lies outside of the
// smallest range [p*2^q, (p+1)*2^q) that holds both: ((g0+g1)+(g2+g3))+((g4+g5)+(g6+g7)).
// The sum of all is added to beta*c last. So parts of other calls, whose groups are
// another such range, can be added later with the bits of one call.
func MulTree[T Float](e *Engine, ta, tb bool, part int, groups []int, alpha T, a, b Matrix[T], beta T, c Matrix[T]) {
	k := fit(ta, tb, a, b, c)
	if part <= 0 || len(groups)*part != k {
		panic("gemm: parts do not match the inner dimension")
	}
	for i, g := range groups {
		if g < 0 || i > 0 && g < groups[i-1] {
			panic("gemm: groups are negative or fall")
		}
	}
	gemmParts(e, ta, tb, c.Rows, c.Cols, k, part, groups, alpha, a.Data, a.Stride, b.Data, b.Stride, beta, c.Data, c.Stride)
}

// MulLower is [Mul] for the lower triangle of a square c; elements above the
// diagonal are not written. It halves the work where the product is known to be
// symmetric, as a similarity transform or a rank-2k update is.
func MulLower[T Float](e *Engine, ta, tb bool, alpha T, a, b Matrix[T], beta T, c Matrix[T]) {
	k := fit(ta, tb, a, b, c)
	if c.Rows != c.Cols {
		panic("gemm: c is not square")
	}
	gemmLower(e, ta, tb, c.Rows, k, alpha, a.Data, a.Stride, b.Data, b.Stride, beta, c.Data, c.Stride)
}

// fit checks the sizes of op(a)*op(b) = c and returns the inner one.
func fit[T Float](ta, tb bool, a, b, c Matrix[T]) int {
	m, k := a.Rows, a.Cols
	if ta {
		m, k = k, m
	}
	l, n := b.Rows, b.Cols
	if tb {
		l, n = n, l
	}
	if k != l || m != c.Rows || n != c.Cols {
		panic("gemm: sizes of a, b and c do not fit")
	}
	return k
}

func gemm[T Float](e *Engine, ta, tb bool, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int) {
	gemmParts(e, ta, tb, m, n, k, 0, nil, alpha, a, lda, b, ldb, beta, c, ldc)
}

func gemmParts[T Float](e *Engine, ta, tb bool, m, n, k, part int, groups []int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int) {
	checkSizes(m, n, k)
	checkMatrix(m, n, c, ldc, "gemm: ldc < n", "gemm: c is too short")
	if m == 0 || n == 0 {
		return
	}
	if alpha == 0 || k == 0 {
		scale(m, n, beta, c, ldc)
		return
	}
	checkOp(ta, m, k, a, lda, "gemm: lda is too small", "gemm: a is too short")
	checkOp(tb, k, n, b, ldb, "gemm: ldb is too small", "gemm: b is too short")
	if groups != nil && beta != 0 && beta != 1 {
		scale(m, n, beta, c, ldc)
		beta = 1
	}
	multiply(e, &product[T]{ta: ta, tb: tb, m: m, n: n, k: k, part: part, groups: groups, alpha: alpha, beta: beta,
		a: a, b: b, c: c, lda: lda, ldb: ldb, ldc: ldc})
}

// scale sets c = beta*c; with beta 0 it does not read c.
func scale[T Float](m, n int, beta T, c []T, ldc int) {
	if beta == 1 {
		return
	}
	for i := range m {
		scaleRow(beta, c[i*ldc:i*ldc+n])
	}
}

func scaleRow[T Float](beta T, row []T) {
	if beta == 0 {
		clear(row)
		return
	}
	for j := range row {
		row[j] *= beta
	}
}
