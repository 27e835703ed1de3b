package invroot

import (
	"math"
	"unsafe"

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
	return gemm.Matrix[T]{Rows: rows, Cols: cols, Stride: ld, Data: gemm.OnHugePages(make([]T, rows*ld))}
}

// corner returns the leading rows×cols part of m.
func corner[T gemm.Float](m gemm.Matrix[T], rows, cols int) gemm.Matrix[T] {
	return m.Slice(0, 0, rows, cols)
}

// convert sets dst = src*scale element by element, between precisions.
func convert[U, T gemm.Float](dst gemm.Matrix[U], src gemm.Matrix[T], scale U) {
	for i := range src.Rows {
		convertRow(dst.Row(i), src.Row(i), scale)
	}
}

// convertRow is convert for one row of len(src) elements.
func convertRow[U, T gemm.Float](dst []U, src []T, scale U) {
	if same, ok := any(src).([]U); ok {
		vec.ScaleTo(dst[:len(src)], scale, same)
		return
	}
	for j, v := range src {
		dst[j] = U(v) * scale
	}
}

// convertLower sets the lower triangle of dst, and its diagonal blocks of width lanes in
// full, to src*scale, reading the lower triangle of src only.
func convertLower[U, T gemm.Float](dst gemm.Matrix[U], src gemm.Matrix[T], scale U) {
	w := lanes[U]()
	for i := range src.Rows {
		d := dst.Row(i)[:i+1]
		convertRow(d, src.Row(i)[:i+1], scale)
		for j := i - i%w; j < i; j++ {
			dst.Data[j*dst.Stride+i] = d[j]
		}
	}
}

// spread sets dst to the symmetric matrix whose lower triangle is src's, times scale. It
// writes dst along its rows, tile by tile: dst belongs to the caller and may have a
// stride at which columns collide in the cache.
func spread[U, T gemm.Float](dst gemm.Matrix[T], src gemm.Matrix[U], scale float64) {
	const tile = 16
	n := src.Rows
	for i0 := 0; i0 < n; i0 += tile {
		i1 := min(i0+tile, n)
		for i := i0; i < i1; i++ {
			d := dst.Row(i)
			for j, v := range src.Row(i)[:i+1] {
				d[j] = T(float64(v) * scale)
			}
		}
		for j := range i1 {
			d := dst.Row(j)[:i1]
			for i := max(i0, j+1); i < i1; i++ {
				d[i] = T(float64(src.Data[i*src.Stride+j]) * scale)
			}
		}
	}
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

// transpose sets dst = srcᵀ; the two must not overlap.
func transpose[U, T gemm.Float](dst gemm.Matrix[U], src gemm.Matrix[T]) {
	transposeOrdered(dst, src, false)
}

// transposeOrdered is transpose, with the columns of dst in reverse order when
// reversed. It writes dst along its rows, a cache line at a time, for the
// reason given at spread.
func transposeOrdered[U, T gemm.Float](dst gemm.Matrix[U], src gemm.Matrix[T], reversed bool) {
	const tile = 16
	for i0 := 0; i0 < src.Rows; i0 += tile {
		k := min(tile, src.Rows-i0)
		from, step := i0*src.Stride, src.Stride
		to := i0
		if reversed {
			from, step = (i0+k-1)*src.Stride, -src.Stride
			to = src.Rows - i0 - k
		}
		for j := range src.Cols {
			d := dst.Data[j*dst.Stride+to:][:k]
			at := from + j
			for i := range d {
				d[i] = U(src.Data[at])
				at += step
			}
		}
	}
}

// finite reports whether all elements of m are finite.
func finite[T gemm.Float](m gemm.Matrix[T]) bool { return !math.IsInf(maxAbs(m), 1) }

// maxAbs returns the largest magnitude in m, infinity when an element is a NaN. One
// pass so serves both the scale and the check of finiteness.
func maxAbs[T gemm.Float](m gemm.Matrix[T]) float64 {
	var s T
	for i := range m.Rows {
		s = max(s, maxAbsRow(m.Row(i)))
	}
	return float64(s)
}

// maxAbsRow is maxAbs for one row. Without the sign, floats order as their bits do, and
// NaNs above infinity; integer maxima need no branches.
func maxAbsRow[T gemm.Float](x []T) T {
	if unsafe.Sizeof(T(0)) == 4 {
		if s := vec.MaxAbs(x); s == s {
			return s
		}
		return T(math.Inf(1))
	}
	bits := maxBits(unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(x))), len(x)), 1<<63-1)
	return T(math.Float64frombits(min(bits, 0x7ff0000000000000)))
}

// maxBits returns the largest masked word; four maxima hide their latency.
func maxBits(x []uint64, mask uint64) uint64 {
	var s0, s1, s2, s3 uint64
	for len(x) >= 4 {
		s0, s1 = max(s0, x[0]&mask), max(s1, x[1]&mask)
		s2, s3 = max(s2, x[2]&mask), max(s3, x[3]&mask)
		x = x[4:]
	}
	for _, v := range x {
		s0 = max(s0, v&mask)
	}
	return max(s0, s1, s2, s3)
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

// requireSquare panics unless m is n×n: a shape is the caller's mistake.
func requireSquare[T gemm.Float](m gemm.Matrix[T], n int) {
	if m.Rows != n || m.Cols != n || (n > 0 && m.Stride < n) {
		panic("invroot: matrix is not n×n")
	}
}

// clearUpper zeroes m above the diagonal.
func clearUpper[T gemm.Float](m gemm.Matrix[T]) {
	for i := range m.Rows {
		clear(m.Row(i)[i+1:])
	}
}

func scaleRow[T gemm.Float](row []T, s T) { vec.Scale(s, row) }
