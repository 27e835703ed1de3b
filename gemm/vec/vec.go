package vec

import (
	"math"
	"unsafe"

	"github.com/asteria-runtime/asteria/gemm"
)

// chunk bounds one assembly call, which the scheduler cannot interrupt: 32768
// elements take well under a millisecond from memory. It is part of the
// specification of reductions.
const chunk = 1 << 15

// single reports whether T is float32; it is constant in each instance.
func single[T gemm.Float]() bool { return unsafe.Sizeof(T(0)) == 4 }

// f32 views x, whose element type is known to be float32.
func f32[T gemm.Float](x []T) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// cut returns the first n elements of x.
func cut[T gemm.Float](n int, x []T) []T {
	if len(x) < n {
		panic("vec: slice too short")
	}
	return x[:n]
}

// Fill sets dst = alpha.
func Fill[T gemm.Float](dst []T, alpha T) {
	if single[T]() {
		fill32(f32(dst), float32(alpha))
		return
	}
	fillRef(dst, alpha)
}

// Add sets dst = x + y. Its length is that of dst, as in all functions below
// that have one and say nothing else.
func Add[T gemm.Float](dst, x, y []T) {
	x, y = cut(len(dst), x), cut(len(dst), y)
	if single[T]() {
		add32(f32(dst), f32(x), f32(y))
		return
	}
	addRef(dst, x, y)
}

// Sub sets dst = x - y.
func Sub[T gemm.Float](dst, x, y []T) {
	x, y = cut(len(dst), x), cut(len(dst), y)
	if single[T]() {
		sub32(f32(dst), f32(x), f32(y))
		return
	}
	subRef(dst, x, y)
}

// Mul sets dst = x * y element by element.
func Mul[T gemm.Float](dst, x, y []T) {
	x, y = cut(len(dst), x), cut(len(dst), y)
	if single[T]() {
		mul32(f32(dst), f32(x), f32(y))
		return
	}
	mulRef(dst, x, y)
}

// Div sets dst = x / y element by element.
func Div[T gemm.Float](dst, x, y []T) {
	x, y = cut(len(dst), x), cut(len(dst), y)
	if single[T]() {
		div32(f32(dst), f32(x), f32(y))
		return
	}
	divRef(dst, x, y)
}

// MulAdd adds x * y to dst.
func MulAdd[T gemm.Float](dst, x, y []T) {
	x, y = cut(len(dst), x), cut(len(dst), y)
	if single[T]() {
		mulAdd32(f32(dst), f32(x), f32(y))
		return
	}
	mulAddRef(dst, x, y)
}

// Axpy adds alpha*x to y; the length is that of x.
func Axpy[T gemm.Float](alpha T, x, y []T) {
	y = cut(len(x), y)
	if single[T]() {
		axpy32(f32(y), f32(x), float32(alpha))
		return
	}
	axpyRef(y, x, alpha)
}

// Axpby sets y = alpha*x + beta*y; the length is that of x.
func Axpby[T gemm.Float](alpha T, x []T, beta T, y []T) {
	y = cut(len(x), y)
	if single[T]() {
		axpby32(f32(y), f32(x), float32(alpha), float32(beta))
		return
	}
	axpbyRef(y, x, alpha, beta)
}

// Scale multiplies x by alpha.
func Scale[T gemm.Float](alpha T, x []T) { ScaleTo(x, alpha, x) }

// ScaleTo sets dst = alpha*x.
func ScaleTo[T gemm.Float](dst []T, alpha T, x []T) {
	x = cut(len(dst), x)
	if single[T]() {
		scaleTo32(f32(dst), f32(x), float32(alpha))
		return
	}
	scaleToRef(dst, x, alpha)
}

// ScaledMul sets dst = (alpha*x) * y: a row of diag(l)*X*diag(r), with alpha = l_i
// and y = r.
func ScaledMul[T gemm.Float](dst []T, alpha T, x, y []T) {
	x, y = cut(len(dst), x), cut(len(dst), y)
	if single[T]() {
		scaledMul32(f32(dst), f32(x), f32(y), float32(alpha))
		return
	}
	scaledMulRef(dst, x, y, alpha)
}

// ScaledMulAdd sets dst = (alpha*x)*y + r.
func ScaledMulAdd[T gemm.Float](dst, r []T, alpha T, x, y []T) {
	r, x, y = cut(len(dst), r), cut(len(dst), x), cut(len(dst), y)
	if single[T]() {
		scaledMulAdd32(f32(dst), f32(r), f32(x), f32(y), float32(alpha))
		return
	}
	scaledMulAddRef(dst, r, x, y, alpha)
}

// Combine sets dst = alpha*x + beta*y + gamma.
func Combine[T gemm.Float](dst []T, alpha T, x []T, beta T, y []T, gamma T) {
	x, y = cut(len(dst), x), cut(len(dst), y)
	if single[T]() {
		combine32(f32(dst), f32(x), f32(y), float32(alpha), float32(beta), float32(gamma))
		return
	}
	combineRef(dst, x, y, alpha, beta, gamma)
}

// Center sets dst = (x - mean) * inv.
func Center[T gemm.Float](dst, x []T, mean, inv T) {
	x = cut(len(dst), x)
	if single[T]() {
		center32(f32(dst), f32(x), float32(mean), float32(inv))
		return
	}
	centerRef(dst, x, mean, inv)
}

// Clamp sets dst = x limited to [lo, hi]; a NaN stays one.
func Clamp[T gemm.Float](dst, x []T, lo, hi T) {
	x = cut(len(dst), x)
	if single[T]() {
		clamp32(f32(dst), f32(x), float32(lo), float32(hi))
		return
	}
	clampRef(dst, x, lo, hi)
}

// ClampGrad sets dst = dy where lo <= x <= hi and 0 elsewhere, the gradient of
// [Clamp]; where x is NaN it is dy.
func ClampGrad[T gemm.Float](dst, x, dy []T, lo, hi T) {
	x, dy = cut(len(dst), x), cut(len(dst), dy)
	if single[T]() {
		clampGrad32(f32(dst), f32(x), f32(dy), float32(lo), float32(hi))
		return
	}
	clampGradRef(dst, x, dy, lo, hi)
}

// Sqrt sets dst = sqrt(x).
func Sqrt[T gemm.Float](dst, x []T) {
	x = cut(len(dst), x)
	if single[T]() {
		sqrt32(f32(dst), f32(x))
		return
	}
	sqrtRef(dst, x)
}

// InvSqrt sets dst = 1/sqrt(x); both operations are correctly rounded.
func InvSqrt[T gemm.Float](dst, x []T) {
	x = cut(len(dst), x)
	if single[T]() {
		invSqrt32(f32(dst), f32(x))
		return
	}
	invSqrtRef(dst, x)
}

// FromBF16 widens bfloat16 bit patterns, exactly; the length is that of dst.
func FromBF16(dst []float32, src []uint16) {
	if len(src) < len(dst) {
		panic("vec: slice too short")
	}
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(src[i]) << 16)
	}
}
