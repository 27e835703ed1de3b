package invroot

import (
	"math"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/gemm/vec"
)

// stride returns the row stride of scratch of order n: a multiple of a cache
// line, but never of a page, where equal columns of many rows would fall into
// the same few cache sets.
func stride[T gemm.Float](n int) int {
	w := lanes[T]()
	s := (n + w - 1) / w * w
	if s%(8*w) == 0 && s > 0 {
		s += w
	}
	return s
}

// scratch returns a rows×cols matrix whose rows start on cache lines.
func scratch[T gemm.Float](rows, cols int) gemm.Matrix[T] {
	ld := stride[T](cols)
	return gemm.Matrix[T]{Rows: rows, Cols: cols, Stride: ld, Data: make([]T, rows*ld)}
}

// corner returns the leading rows×cols part of m.
func corner[T gemm.Float](m gemm.Matrix[T], rows, cols int) gemm.Matrix[T] {
	return m.Slice(0, 0, rows, cols)
}

// convert sets dst = src*scale element by element, between precisions.
func convert[U, T gemm.Float](dst gemm.Matrix[U], src gemm.Matrix[T], scale U) {
	for i := range src.Rows {
		d := dst.Row(i)
		for j, v := range src.Row(i) {
			d[j] = U(v) * scale
		}
	}
}

// convertLower is convert for the lower triangle of a square src; dst gets both.
func convertLower[U, T gemm.Float](dst gemm.Matrix[U], src gemm.Matrix[T], scale U) {
	for i := range src.Rows {
		d := dst.Row(i)
		for j, v := range src.Row(i)[:i+1] {
			d[j] = U(v) * scale
		}
	}
	mirror(dst)
}

// mirror copies the lower triangle of m to the upper one, tile by tile so that
// both sides stay in cache.
func mirror[T gemm.Float](m gemm.Matrix[T]) {
	const tile = 32
	for i0 := 0; i0 < m.Rows; i0 += tile {
		for j0 := 0; j0 <= i0; j0 += tile {
			for i := i0; i < min(i0+tile, m.Rows); i++ {
				row := m.Data[i*m.Stride:]
				for j := j0; j < min(j0+tile, i); j++ {
					m.Data[j*m.Stride+i] = row[j]
				}
			}
		}
	}
}

// transpose sets dst = srcᵀ, tile by tile; the two must not overlap.
func transpose[U, T gemm.Float](dst gemm.Matrix[U], src gemm.Matrix[T]) {
	const tile = 16
	for i0 := 0; i0 < src.Rows; i0 += tile {
		for j0 := 0; j0 < src.Cols; j0 += tile {
			for i := i0; i < min(i0+tile, src.Rows); i++ {
				row := src.Data[i*src.Stride:]
				for j := j0; j < min(j0+tile, src.Cols); j++ {
					dst.Data[j*dst.Stride+i] = U(row[j])
				}
			}
		}
	}
}

// finite reports whether all elements of m are finite.
func finite[T gemm.Float](m gemm.Matrix[T]) bool {
	for i := range m.Rows {
		if !vec.Finite(m.Row(i)) {
			return false
		}
	}
	return true
}

// maxAbs returns the largest magnitude in the lower triangle of a square m.
func maxAbs[T gemm.Float](m gemm.Matrix[T]) float64 {
	var s T
	for i := range m.Rows {
		s = max(s, maxAbsRow(m.Row(i)[:i+1]))
	}
	return float64(s)
}

func maxAbsRow[T gemm.Float](x []T) T {
	var s T
	for _, v := range x {
		s = max(s, v, -v)
	}
	return s
}

// frobenius returns ‖m‖_F, summed in float64.
func frobenius[T gemm.Float](m gemm.Matrix[T]) float64 {
	var s float64
	for i := range m.Rows {
		s += vec.SumSquares(m.Row(i))
	}
	return math.Sqrt(s)
}

// powerOfTwo returns the power of two s with 0.5 ≤ s*x < 1, exactly
// representable in both element types, and 1 for x = 0. Multiplying by it
// rounds nothing, so that cA gives the same digits as A for such c.
func powerOfTwo(x float64) float64 {
	if x == 0 {
		return 1
	}
	_, e := math.Frexp(x)
	return math.Ldexp(1, -min(max(e, -126), 126))
}

func requireSquare[T gemm.Float](m gemm.Matrix[T], n int) {
	if m.Rows != n || m.Cols != n || (n > 0 && m.Stride < n) {
		panic("invroot: matrix is not n×n")
	}
}
