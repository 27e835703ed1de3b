package vec

import (
	"math"

	"github.com/asteria-runtime/asteria/gemm"
)

// lanes partial sums are kept in float32 reductions, doubleLanes in those that
// add float64: four AVX-512 registers either way, enough to hide the latency of
// an addition.
const (
	lanes       = 64
	doubleLanes = 32
	infBits     = 0x7f800000
)

func negInf32() float32 { return float32(math.Inf(-1)) }

// fold adds the lanes in halves.
func fold[T gemm.Float](acc []T) T {
	for w := len(acc) / 2; w > 0; w /= 2 {
		for i := range w {
			acc[i] += acc[i+w]
		}
	}
	return acc[0]
}

func sumRef[T gemm.Float](x []T) T {
	var total T
	for len(x) > 0 {
		n := min(len(x), chunk)
		var acc [lanes]T
		for i, v := range x[:n] {
			acc[i%lanes] += v
		}
		total += fold(acc[:])
		x = x[n:]
	}
	return total
}

func dotRef[T gemm.Float](x, y []T) T {
	var total T
	for len(x) > 0 {
		n := min(len(x), chunk)
		var acc [lanes]T
		for i, v := range x[:n] {
			acc[i%lanes] += T(v * y[i])
		}
		total += fold(acc[:])
		x, y = x[n:], y[n:]
	}
	return total
}

func dot3Ref[T gemm.Float](x, y, z []T) T {
	var total T
	for len(x) > 0 {
		n := min(len(x), chunk)
		var acc [lanes]T
		for i, v := range x[:n] {
			acc[i%lanes] += T(T(v*y[i]) * z[i])
		}
		total += fold(acc[:])
		x, y, z = x[n:], y[n:], z[n:]
	}
	return total
}

func squaresAboutRef[T gemm.Float](x []T, mean T) T {
	var total T
	for len(x) > 0 {
		n := min(len(x), chunk)
		var acc [lanes]T
		for i, v := range x[:n] {
			d := v - mean
			acc[i%lanes] += T(d * d)
		}
		total += fold(acc[:])
		x = x[n:]
	}
	return total
}

func expSumRef[T gemm.Float](dst, x []T, shift T) T {
	var total T
	for len(x) > 0 {
		n := min(len(x), chunk)
		var acc [lanes]T
		for i, v := range x[:n] {
			e := exp(v - shift)
			dst[i] = e
			acc[i%lanes] += e
		}
		total += fold(acc[:])
		dst, x = dst[n:], x[n:]
	}
	return total
}

func sumSquaresRef[T gemm.Float](x []T) float64 {
	var total float64
	for len(x) > 0 {
		n := min(len(x), chunk)
		var acc [doubleLanes]float64
		for i, v := range x[:n] {
			acc[i%doubleLanes] += float64(float64(v) * float64(v))
		}
		total += fold(acc[:])
		x = x[n:]
	}
	return total
}

// mostRef fixes the order too, because it decides the sign of a zero result.
func mostRef[T gemm.Float](x []T) T {
	total := T(math.Inf(-1))
	for len(x) > 0 {
		n := min(len(x), chunk)
		total = later(total, mostChunk(x[:n]))
		x = x[n:]
	}
	return total
}

func mostChunk[T gemm.Float](x []T) T {
	var acc [lanes]T
	fillRef(acc[:], T(math.Inf(-1)))
	for i, v := range x {
		if v != v {
			return v
		}
		if v > acc[i%lanes] {
			acc[i%lanes] = v
		}
	}
	for w := lanes / 2; w > 0; w /= 2 {
		for i := range w {
			if acc[i+w] > acc[i] {
				acc[i] = acc[i+w]
			}
		}
	}
	return acc[0]
}

// later returns the larger of s and t, s when they are equal, NaN if one is.
func later[T gemm.Float](s, t T) T {
	if t > s || t != t {
		return t
	}
	return s
}

func absBitsRef(x []float32) uint32 {
	var s uint32
	for _, v := range x {
		s = max(s, math.Float32bits(v)&^(1<<31))
	}
	return s
}
