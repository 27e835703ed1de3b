package vec

import (
	"math"

	"github.com/asteria-runtime/asteria/gemm"
)

// The specification of the element-wise kernels. A conversion T(…) around a
// product forbids the compiler to fuse it with the addition that follows, as it
// would on arm64 and under GOAMD64=v3.

func fillRef[T gemm.Float](dst []T, alpha T) {
	for i := range dst {
		dst[i] = alpha
	}
}

func addRef[T gemm.Float](dst, x, y []T) {
	for i := range dst {
		dst[i] = x[i] + y[i]
	}
}

func subRef[T gemm.Float](dst, x, y []T) {
	for i := range dst {
		dst[i] = x[i] - y[i]
	}
}

func mulRef[T gemm.Float](dst, x, y []T) {
	for i := range dst {
		dst[i] = x[i] * y[i]
	}
}

func divRef[T gemm.Float](dst, x, y []T) {
	for i := range dst {
		dst[i] = x[i] / y[i]
	}
}

func mulAddRef[T gemm.Float](dst, x, y []T) {
	for i := range dst {
		dst[i] = T(x[i]*y[i]) + dst[i]
	}
}

func axpyRef[T gemm.Float](dst, x []T, alpha T) {
	for i := range dst {
		dst[i] = T(alpha*x[i]) + dst[i]
	}
}

func axpbyRef[T gemm.Float](dst, x []T, alpha, beta T) {
	for i := range dst {
		dst[i] = T(alpha*x[i]) + T(beta*dst[i])
	}
}

func scaleToRef[T gemm.Float](dst, x []T, alpha T) {
	for i := range dst {
		dst[i] = alpha * x[i]
	}
}

func scaledMulRef[T gemm.Float](dst, x, y []T, alpha T) {
	for i := range dst {
		dst[i] = T(alpha*x[i]) * y[i]
	}
}

func scaledMulAddRef[T gemm.Float](dst, r, x, y []T, alpha T) {
	for i := range dst {
		dst[i] = T(T(alpha*x[i])*y[i]) + r[i]
	}
}

func combineRef[T gemm.Float](dst, x, y []T, alpha, beta, gamma T) {
	for i := range dst {
		dst[i] = T(T(alpha*x[i])+T(beta*y[i])) + gamma
	}
}

func centerRef[T gemm.Float](dst, x []T, mean, inv T) {
	for i := range dst {
		dst[i] = T(x[i]-mean) * inv
	}
}

func clampRef[T gemm.Float](dst, x []T, lo, hi T) {
	for i := range dst {
		v := x[i]
		if lo > v {
			v = lo
		}
		if hi < v {
			v = hi
		}
		dst[i] = v
	}
}

func clampGradRef[T gemm.Float](dst, x, dy []T, lo, hi T) {
	for i := range dst {
		d := dy[i]
		if x[i] < lo || x[i] > hi {
			d = 0
		}
		dst[i] = d
	}
}

// root is the correctly rounded square root: rounding twice, through float64,
// is harmless for it, and the compiler emits one instruction.
func root[T gemm.Float](x T) T { return T(math.Sqrt(float64(x))) }

func sqrtRef[T gemm.Float](dst, x []T) {
	for i := range dst {
		dst[i] = root(x[i])
	}
}

func invSqrtRef[T gemm.Float](dst, x []T) {
	for i := range dst {
		dst[i] = 1 / root(x[i])
	}
}
