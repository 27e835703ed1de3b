package vec

import (
	"math"

	"github.com/asteria-runtime/asteria/gemm"
)

// ExpSum sets dst = exp(x - shift) and returns the sum of dst; the length is that
// of x. In float32 exp is within 2 ulp.
func ExpSum[T gemm.Float](dst, x []T, shift T) T {
	dst = cut(len(x), dst)
	if single[T]() {
		return T(expSum32(f32(dst), f32(x), float32(shift)))
	}
	return expSumRef(dst, x, shift)
}

// Softmax sets dst = exp(x) / sum(exp(x)) without overflow and returns
// log(sum(exp(x))). The length is that of x. A row of -Inf alone gives NaN.
func Softmax[T gemm.Float](dst, x []T) (logSum float64) {
	shift := Max(x)
	s := ExpSum(dst, x, shift)
	Scale(1/s, dst[:len(x)])
	return float64(shift) + math.Log(float64(s))
}

// SoftmaxGrad sets dst = alpha*p*(dp - dot), the gradient of a softmax row p with
// dot = Dot(p, dp); alpha is the factor that scaled the row's input.
func SoftmaxGrad[T gemm.Float](dst, p, dp []T, dot, alpha T) {
	p, dp = cut(len(dst), p), cut(len(dst), dp)
	if single[T]() {
		softmaxGrad32(f32(dst), f32(p), f32(dp), float32(dot), float32(alpha))
		return
	}
	softmaxGradRef(dst, p, dp, dot, alpha)
}

// CrossEntropy returns ce = lse - x[target] with lse = log(sum(exp(x))) and sets
// grad to the gradient of scale*(ce + zloss*lse²): scale*(1+2*zloss*lse)*softmax(x),
// less scale at the target. grad has at least the length of x and may be x.
func CrossEntropy[T gemm.Float](grad, x []T, target int, scale, zloss float64) (ce, lse float64) {
	shift, chosen := Max(x), float64(x[target])
	s := float64(ExpSum(grad, x, shift))
	lse = float64(shift) + math.Log(s)
	Scale(T(scale*(1+2*zloss*lse)/s), grad[:len(x)])
	grad[target] -= T(scale)
	return lse - chosen, lse
}

// SwiGLU sets dst = silu(gate) * up with silu(z) = z/(1+exp(-z)); the length is
// that of gate.
func SwiGLU[T gemm.Float](dst, gate, up []T) {
	dst, up = cut(len(gate), dst), cut(len(gate), up)
	if single[T]() {
		swiGLU32(f32(dst), f32(gate), f32(up))
		return
	}
	swiGLURef(dst, gate, up)
}

// SwiGLUGrad turns dout into the gradients of gate and up: it sets
// dgate = dout*up*silu'(gate) and dup = dout*silu(gate) over the length of gate.
// dgate and dup may be gate and up themselves.
func SwiGLUGrad[T gemm.Float](dgate, dup, gate, up, dout []T) {
	n := len(gate)
	dgate, dup, up, dout = cut(n, dgate), cut(n, dup), cut(n, up), cut(n, dout)
	if single[T]() {
		swiGLUGrad32(f32(dgate), f32(dup), f32(gate), f32(up), f32(dout))
		return
	}
	swiGLUGradRef(dgate, dup, gate, up, dout)
}

// Rotate sets dst to x under rotary position embedding in the half-split layout:
// (a, b) becomes (a*cos - b*sin, b*cos + a*sin), a and b the halves of each head
// of 2*len(cos) elements (Su et al., 2021). x holds one or more heads, dst and sin
// have the lengths of x and cos. dst may be x.
func Rotate[T gemm.Float](dst, x, cos, sin []T) {
	h := rotation(dst, x, cos, sin)
	for ; len(x) > 0; dst, x = dst[2*h:], x[2*h:] {
		if single[T]() {
			rotate32(f32(dst[:h]), f32(dst[h:2*h]), f32(x[:h]), f32(x[h:2*h]), f32(cos), f32(sin))
			continue
		}
		rotateRef(dst[:h], dst[h:2*h], x[:h], x[h:2*h], cos, sin)
	}
}

// Unrotate is the inverse of [Rotate], and its gradient.
func Unrotate[T gemm.Float](dst, x, cos, sin []T) {
	h := rotation(dst, x, cos, sin)
	for ; len(x) > 0; dst, x = dst[2*h:], x[2*h:] {
		if single[T]() {
			unrotate32(f32(dst[:h]), f32(dst[h:2*h]), f32(x[:h]), f32(x[h:2*h]), f32(cos), f32(sin))
			continue
		}
		unrotateRef(dst[:h], dst[h:2*h], x[:h], x[h:2*h], cos, sin)
	}
}

func rotation[T gemm.Float](dst, x, cos, sin []T) int {
	h := len(cos)
	if len(sin) != h || len(dst) != len(x) || h == 0 || len(x)%(2*h) != 0 {
		panic("vec: rotation does not fit the heads")
	}
	return h
}

// RMSNorm sets dst = w * x * inv with inv = 1/sqrt(mean(x²) + eps) and returns
// inv, which [RMSNormGrad] needs (Zhang and Sennrich, 2019). The length is that
// of x.
func RMSNorm[T gemm.Float](dst, x, w []T, eps float64) (inv T) {
	inv = InvRMS(x, eps)
	ScaledMul(cut(len(x), dst), inv, x, w)
	return inv
}

// RMSNormAdd sets dst = r + w*x*inv and returns inv: [RMSNorm] and the residual
// connection in one pass.
func RMSNormAdd[T gemm.Float](dst, r, x, w []T, eps float64) (inv T) {
	inv = InvRMS(x, eps)
	ScaledMulAdd(cut(len(x), dst), r, inv, x, w)
	return inv
}

// InvRMS returns 1/sqrt(mean(x²) + eps).
func InvRMS[T gemm.Float](x []T, eps float64) T {
	return T(1 / math.Sqrt(float64(Dot(x, x))/float64(len(x))+eps))
}

// RMSNormGrad sets dx and adds to dw the gradients of [RMSNorm] at x with weight
// w, where dy is the gradient of its result:
// dx = inv*(w*dy - x*inv²*mean(w*dy*x)) and dw += dy*x*inv. dx may be dy.
func RMSNormGrad[T gemm.Float](dx, dw, dy, x, w []T, inv T) {
	n := len(x)
	dx, dw, dy, w = cut(n, dx), cut(n, dw), cut(n, dy), cut(n, w)
	beta := inv * inv * inv * Dot3(dy, w, x) / T(n)
	if single[T]() {
		rmsNormGrad32(f32(dx), f32(dw), f32(dy), f32(x), f32(w), float32(inv), float32(beta))
		return
	}
	rmsNormGradRef(dx, dw, dy, x, w, inv, beta)
}

// LayerNorm sets dst = (x-mean)*inv with inv = 1/sqrt(var(x) + eps), var the biased
// variance, and returns inv: layer normalisation without weight (Ba et al., 2016).
// The length is that of x.
func LayerNorm[T gemm.Float](dst, x []T, eps float64) (inv T) {
	n := float64(len(x))
	mean := T(float64(Sum(x)) / n)
	inv = T(1 / math.Sqrt(float64(SquaresAbout(x, mean))/n+eps))
	Center(cut(len(x), dst), x, mean, inv)
	return inv
}

// LayerNormGrad sets dx = inv*(dy - mean(dy) - y*mean(dy*y)), the gradient of
// [LayerNorm] whose result was y. dx may be dy.
func LayerNormGrad[T gemm.Float](dx, dy, y []T, inv T) {
	n := T(len(y))
	dy = cut(len(y), dy)
	mean, along := Sum(dy)/n, Dot(dy, y)/n
	Combine(cut(len(y), dx), inv, dy, -inv*along, y, -inv*mean)
}
