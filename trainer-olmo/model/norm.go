package model

import (
	"math"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/gemm/vec"
)

// rmsScale returns 1/sqrt(mean(x²)+eps).
func rmsScale[T gemm.Float](x []T, eps float64) T {
	return T(1 / math.Sqrt(vec.SumSquares(x)/float64(len(x))+eps))
}

// rmsForward sets y = w * x * r with r = 1/sqrt(mean(x²)+eps) and returns r. y
// may be x.
func rmsForward[T gemm.Float](y, x, w []T, eps float64) T {
	r := rmsScale(x, eps)
	vec.Mul(y, x, w)
	vec.Scale(r, y)
	return r
}

// rmsBackward sets dx from the gradient dy of y = w*x*r:
//
//	dx = r*(w*dy) - x * r³/n * sum(w*dy*x)
//
// and adds dy*x*r to dw. tmp has the length of x; dx may be dy.
func rmsBackward[T gemm.Float](dx, dw, dy, x, w []T, r T, tmp []T) {
	vec.Mul(tmp, dy, x)
	vec.Axpy(r, tmp, dw)
	c := vec.Dot(tmp, w)
	vec.Mul(dx, dy, w)
	vec.Scale(r, dx)
	vec.Axpy(-c*r*r*r/T(len(x)), x, dx)
}

// layerForward sets y = (x-mean)/sqrt(var+eps), var the biased variance, and
// returns mean and 1/sqrt(var+eps). y may be x.
func layerForward[T gemm.Float](y, x []T, eps float64) (mean, r T) {
	mean = T(sum(x) / float64(len(x)))
	for i, v := range x {
		y[i] = v - mean
	}
	r = rmsScale(y, eps)
	vec.Scale(r, y)
	return mean, r
}

// layerBackward sets dx from the gradient dy of y = (x-mean)*r:
//
//	dx = r*(dy - mean(dy) - y*mean(dy*y))
//
// dx may be dy.
func layerBackward[T gemm.Float](dx, dy, x []T, mean, r T) {
	n := float64(len(x))
	var s float64
	for i, v := range x {
		s += float64(dy[i]) * float64(v-mean)
	}
	a, b := T(sum(dy)/n), T(s/n)*r*r
	for i, v := range x {
		dx[i] = r * (dy[i] - a - (v-mean)*b)
	}
}

// sum adds the elements in order in float64.
func sum[T gemm.Float](x []T) float64 {
	var s float64
	for _, v := range x {
		s += float64(v)
	}
	return s
}
