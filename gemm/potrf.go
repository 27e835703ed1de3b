package gemm

import "math"

// Spotrf factors the symmetric positive definite n×n matrix a = L*Lᵀ: L replaces
// the lower triangle; the upper one is neither read nor written. It reports false
// when a leading minor is not positive definite or not finite, and then leaves a
// partly overwritten.
func (e *Engine) Spotrf(n int, a []float32, lda int) bool { return potrf(e, n, a, lda) }

// Dpotrf is Spotrf in float64.
func (e *Engine) Dpotrf(n int, a []float64, lda int) bool { return potrf(e, n, a, lda) }

// Potrf is Spotrf or Dpotrf on a view.
func Potrf[T Float](e *Engine, a Matrix[T]) bool {
	if a.Rows != a.Cols {
		panic("gemm: a is not square")
	}
	return potrf(e, a.Rows, a.Data, a.Stride)
}

func potrf[T Float](e *Engine, n int, a []T, lda int) bool {
	checkSizes(n, n, 0)
	checkMatrix(n, n, a, lda, "gemm: lda is too small", "gemm: a is too short")
	return choleskyRange(e, n, a, lda)
}

// choleskyRange factors by halves: the first half, the rows below it by a solve,
// what they leave of the second half by a product, then that.
func choleskyRange[T Float](e *Engine, n int, a []T, lda int) bool {
	f := kitOf[T](e).family
	if n <= f.leaf {
		return choleskyLeaf(n, a, lda)
	}
	h := f.split(0, n)
	if !choleskyRange(e, h, a, lda) {
		return false
	}
	below := a[h*lda:]
	triangle(e, Triangle{Right: true, Trans: true}, true, n-h, h, 1, a, lda, below, lda)
	gemmLower(e, false, true, n-h, h, -1, below, lda, below, lda, 1, a[h*lda+h:], lda)
	return choleskyRange(e, n-h, a[h*lda+h:], lda)
}

// choleskyLeaf factors a small block row by row.
func choleskyLeaf[T Float](n int, a []T, lda int) bool {
	for i := range n {
		x := a[i*lda:][: i+1 : i+1]
		for j := range i {
			y := a[j*lda:][: j+1 : j+1]
			x[j] = (x[j] - dot(x[:j], y[:j])) / y[j]
		}
		d := float64(x[i] - dot(x[:i], x[:i]))
		if !(d > 0) || math.IsInf(d, 0) {
			return false
		}
		x[i] = T(math.Sqrt(d))
	}
	return true
}

func dot[T Float](x, y []T) (s T) {
	for i, v := range x {
		s += v * y[i]
	}
	return s
}
