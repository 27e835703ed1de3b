package vec

import (
	"math"

	"github.com/asteria-runtime/asteria/gemm"
)

// Sum returns the sum of x.
func Sum[T gemm.Float](x []T) T {
	if single[T]() {
		return T(sum32(f32(x)))
	}
	return sumRef(x)
}

// Dot returns the sum of x[i]*y[i] over the length of x.
func Dot[T gemm.Float](x, y []T) T {
	y = cut(len(x), y)
	if single[T]() {
		return T(dot32(f32(x), f32(y)))
	}
	return dotRef(x, y)
}

// Dot3 returns the sum of x[i]*y[i]*z[i] over the length of x.
func Dot3[T gemm.Float](x, y, z []T) T {
	y, z = cut(len(x), y), cut(len(x), z)
	if single[T]() {
		return T(dot332(f32(x), f32(y), f32(z)))
	}
	return dot3Ref(x, y, z)
}

// SquaresAbout returns the sum of (x[i]-mean)².
func SquaresAbout[T gemm.Float](x []T, mean T) T {
	if single[T]() {
		return T(squaresAbout32(f32(x), float32(mean)))
	}
	return squaresAboutRef(x, mean)
}

// SumSquares returns the sum of x[i]² in float64; float32 squares are exact in it.
func SumSquares[T gemm.Float](x []T) float64 {
	if single[T]() {
		return sumSquares32(f32(x))
	}
	return sumSquaresRef(x)
}

// Max returns the largest element, -Inf for none, NaN if any is NaN.
func Max[T gemm.Float](x []T) T {
	if single[T]() {
		return T(most32(f32(x)))
	}
	return mostRef(x)
}

// Min returns the smallest element, +Inf for none, NaN if any is NaN.
func Min[T gemm.Float](x []T) T {
	s := T(math.Inf(1))
	for _, v := range x {
		s = min(s, v)
	}
	return s
}

// MaxAbs returns the largest |x[i]|, 0 for none, NaN if any is NaN.
func MaxAbs[T gemm.Float](x []T) T {
	if single[T]() {
		return T(math.Float32frombits(absBits32(f32(x))))
	}
	var s T
	for _, v := range x {
		s = max(s, T(math.Abs(float64(v))))
	}
	return s
}

// Finite reports whether no element is NaN or infinite.
func Finite[T gemm.Float](x []T) bool {
	if single[T]() {
		return absBits32(f32(x)) < infBits
	}
	for _, v := range x {
		if v-v != 0 {
			return false
		}
	}
	return true
}
