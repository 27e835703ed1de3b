package vec

import "github.com/asteria-runtime/asteria/gemm"

// Lerp moves dst towards x: dst += w*(x-dst), the EMA with decay 1-w.
func Lerp[T gemm.Float](dst, x []T, w T) {
	x = cut(len(dst), x)
	if single[T]() {
		lerp32(f32(dst), f32(x), float32(w))
		return
	}
	lerpRef(dst, x, w)
}

// LerpMul moves dst towards x*y: dst = (1-w)*dst + w*x*y.
func LerpMul[T gemm.Float](dst, x, y []T, w T) {
	x, y = cut(len(dst), x), cut(len(dst), y)
	if single[T]() {
		lerpMul32(f32(dst), f32(x), f32(y), float32(1-w), float32(w))
		return
	}
	lerpMulRef(dst, x, y, 1-w, w)
}

// LerpSquare moves dst towards x²: dst = (1-w)*dst + w*x².
func LerpSquare[T gemm.Float](dst, x []T, w T) { LerpMul(dst, x, x, w) }

// AdamDirection sets dst = m*mscale / (sqrt(v)*vscale + eps). With
// mscale = 1/(1-beta1^t) and vscale = 1/sqrt(1-beta2^t) it is Adam's direction
// (Kingma and Ba, 2015, algorithm 1).
func AdamDirection[T gemm.Float](dst, m, v []T, mscale, vscale, eps T) {
	m, v = cut(len(dst), m), cut(len(dst), v)
	if single[T]() {
		adamDirection32(f32(dst), f32(m), f32(v), float32(mscale), float32(vscale), float32(eps))
		return
	}
	adamDirectionRef(dst, m, v, mscale, vscale, eps)
}

// AdamW applies one decoupled-decay Adam step in one pass over memory:
// m and v take their EMAs of g, then p = p*decay - step*m/(sqrt(v)*vscale + eps)
// (Loshchilov and Hutter, 2019, algorithm 2). g is read once and multiplied by
// gscale (gradient clipping). The four slices must not overlap.
func AdamW[T gemm.Float](p, g, m, v []T, gscale, beta1, beta2, decay, step, vscale, eps T) {
	g, m, v = cut(len(p), g), cut(len(p), m), cut(len(p), v)
	if single[T]() {
		adamW32(f32(p), f32(g), f32(m), f32(v), float32(gscale), float32(beta1), float32(1-beta1),
			float32(beta2), float32(1-beta2), float32(decay), float32(step), float32(vscale), float32(eps))
		return
	}
	adamWRef(p, g, m, v, gscale, beta1, 1-beta1, beta2, 1-beta2, decay, step, vscale, eps)
}
