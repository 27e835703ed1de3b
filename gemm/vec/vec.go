// Package vec provides element-wise kernels and reductions in a fixed order.
package vec

import (
	"math"

	"github.com/asteria-runtime/asteria/gemm"
)

// Dot returns the sum of x[i]*y[i].
func Dot[T gemm.Float](x, y []T) T {
	var s T
	for i, v := range x {
		s += v * y[i]
	}
	return s
}

// SumSquares returns the sum of x[i]² in float64.
func SumSquares[T gemm.Float](x []T) float64 {
	var s float64
	for _, v := range x {
		s += float64(v) * float64(v)
	}
	return s
}

// Finite reports whether no element is NaN or infinite.
func Finite[T gemm.Float](x []T) bool {
	for _, v := range x {
		if v-v != 0 {
			return false
		}
	}
	return true
}

// Axpy adds alpha*x to y.
func Axpy[T gemm.Float](alpha T, x, y []T) {
	for i, v := range x {
		y[i] += alpha * v
	}
}

// Scale multiplies x by alpha.
func Scale[T gemm.Float](alpha T, x []T) {
	for i := range x {
		x[i] *= alpha
	}
}

// Add sets dst = x + y.
func Add[T gemm.Float](dst, x, y []T) {
	for i := range dst {
		dst[i] = x[i] + y[i]
	}
}

// Mul sets dst = x * y element by element.
func Mul[T gemm.Float](dst, x, y []T) {
	for i := range dst {
		dst[i] = x[i] * y[i]
	}
}

// Lerp moves dst towards x: dst += w*(x-dst), the EMA with decay 1-w.
func Lerp[T gemm.Float](dst, x []T, w T) {
	for i := range dst {
		dst[i] += w * (x[i] - dst[i])
	}
}

// LerpSquare moves dst towards x²: dst = (1-w)*dst + w*x².
func LerpSquare[T gemm.Float](dst, x []T, w T) {
	for i := range dst {
		dst[i] = (1-w)*dst[i] + w*x[i]*x[i]
	}
}

// AdamDirection sets dst = m*mscale / (sqrt(v)*vscale + eps).
func AdamDirection[T gemm.Float](dst, m, v []T, mscale, vscale, eps T) {
	for i := range dst {
		dst[i] = m[i] * mscale / (T(math.Sqrt(float64(v[i])))*vscale + eps)
	}
}

// AdamW applies one decoupled-decay Adam step in one pass over memory:
// p *= decay; m, v take their EMAs of g; p -= step*m/(sqrt(v)*vscale + eps).
// g is read once and multiplied by gscale (gradient clipping).
func AdamW[T gemm.Float](p, g, m, v []T, gscale, beta1, beta2, decay, step, vscale, eps T) {
	for i := range p {
		x := g[i] * gscale
		m[i] = beta1*m[i] + (1-beta1)*x
		v[i] = beta2*v[i] + (1-beta2)*x*x
		p[i] = p[i]*decay - step*m[i]/(T(math.Sqrt(float64(v[i])))*vscale+eps)
	}
}

// Max returns the largest element, -Inf for none.
func Max[T gemm.Float](x []T) T {
	s := T(math.Inf(-1))
	for _, v := range x {
		s = max(s, v)
	}
	return s
}

// ExpSum sets dst = exp(x - shift) and returns the sum of dst.
func ExpSum[T gemm.Float](dst, x []T, shift T) T {
	var s T
	for i, v := range x {
		e := T(math.Exp(float64(v - shift)))
		dst[i] = e
		s += e
	}
	return s
}

// SwiGLU sets dst = silu(gate) * up with silu(z) = z/(1+exp(-z)).
func SwiGLU[T gemm.Float](dst, gate, up []T) {
	for i, z := range gate {
		dst[i] = T(float64(z)/(1+math.Exp(-float64(z)))) * up[i]
	}
}

// SwiGLUGrad turns dout into the gradients of gate and up: it sets
// dgate = dout*up*silu'(gate) and dup = dout*silu(gate). dgate and dup may be
// gate and up themselves.
func SwiGLUGrad[T gemm.Float](dgate, dup, gate, up, dout []T) {
	for i, z := range gate {
		s := 1 / (1 + math.Exp(-float64(z)))
		silu := float64(z) * s
		d, u := float64(dout[i]), float64(up[i])
		dgate[i] = T(d * u * (s + silu*(1-s)))
		dup[i] = T(d * silu)
	}
}
