package invroot

import (
	"unsafe"

	"github.com/asteria-runtime/asteria/gemm"
)

// lanes is the width of the diagonal blocks that the symmetric product reads in
// full: one vector of the widest instruction set, 16 float32 or 8 float64.
func lanes[T gemm.Float]() int { return 64 / int(unsafe.Sizeof(T(0))) }

// unit returns the unit roundoff of T: 2^-24 or 2^-53.
func unit[T gemm.Float]() float64 {
	if unsafe.Sizeof(T(0)) == 4 {
		return 0x1p-24
	}
	return 0x1p-53
}

// kernels holds the choice of vector code: that of the engine, so that one name
// ("avx512", "avx2", "generic") tells which bits to expect of a run. The zero
// value runs the portable specification.
type kernels[T gemm.Float] struct {
	level2 *level2[T] // nil: portable
	set    kernelSet
}

// kernelSet selects the kernels of the secular equation.
type kernelSet uint8

const (
	portable kernelSet = iota
	avx2
	avx512
)

// level2 are the kernels on rows; lda and diag as in the generator's comments,
// lda in bytes.
type level2[T gemm.Float] struct {
	dots1, dots4   func(n int, a *T, lda int, x, out *T)
	axpys1, axpys4 func(n int, c, a *T, lda int, y *T)
	symv1, symv4   func(n, diag int, a *T, lda int, x, y, xi, out *T)
	rotate         func(n int, x, y *T, c, s T)
}

// dots sets out[i] = rows.Row(i)[:len(x)]·x.
func (k kernels[T]) dots(out []T, rows gemm.Matrix[T], x []T) {
	n, count := len(x), len(out)
	if k.level2 == nil || n == 0 || count == 0 {
		dotsGeneric(out, rows, x)
		return
	}
	lda := rows.Stride * int(unsafe.Sizeof(x[0]))
	_ = rows.Data[(count-1)*rows.Stride+n-1]
	i := 0
	for ; i+4 <= count; i += 4 {
		k.level2.dots4(n, &rows.Data[i*rows.Stride], lda, &x[0], &out[i])
	}
	for ; i < count; i++ {
		k.level2.dots1(n, &rows.Data[i*rows.Stride], lda, &x[0], &out[i])
	}
}

// axpys adds the sum of c[i]*rows.Row(i)[:len(y)] to y.
func (k kernels[T]) axpys(y, c []T, rows gemm.Matrix[T]) {
	n, count := len(y), len(c)
	if k.level2 == nil || n == 0 || count == 0 {
		axpysGeneric(y, c, rows)
		return
	}
	lda := rows.Stride * int(unsafe.Sizeof(y[0]))
	_ = rows.Data[(count-1)*rows.Stride+n-1]
	i := 0
	for ; i+4 <= count; i += 4 {
		k.level2.axpys4(n, &c[i], &rows.Data[i*rows.Stride], lda, &y[0])
	}
	for ; i < count; i++ {
		k.level2.axpys1(n, &c[i], &rows.Data[i*rows.Stride], lda, &y[0])
	}
}

// symvRows adds to y the part of A*x that rows [lo, hi) carry; see symvRowsGeneric.
// lo is a multiple of the lanes.
func (k kernels[T]) symvRows(y []T, a gemm.Matrix[T], x []T, lo, hi int) {
	if k.level2 == nil {
		symvRowsGeneric(y, a, x, lo, hi)
		return
	}
	w := lanes[T]()
	lda := a.Stride * int(unsafe.Sizeof(x[0]))
	for i := lo; i < hi; {
		kernel, rows := k.level2.symv4, 4
		if i+4 > hi {
			kernel, rows = k.level2.symv1, 1
		}
		split := i - i%w
		diag := min(split+w, len(x)) - split
		_ = a.Data[(i+rows-1)*a.Stride+split+diag-1]
		kernel(split, diag, &a.Data[i*a.Stride], lda, &x[0], &y[0], &x[i], &y[i])
		i += rows
	}
}

// rotate applies a plane rotation: x, y = c*x+s*y, c*y-s*x.
func (k kernels[T]) rotate(x, y []T, c, s T) {
	if k.level2 == nil || len(x) == 0 {
		rotateGeneric(x, y, c, s)
		return
	}
	_ = y[len(x)-1]
	k.level2.rotate(len(x), &x[0], &y[0], c, s)
}

// The portable kernels. They are the specification of the assembly and are
// always compiled, so that tests can compare the two.

// dots sets out[i] = rows.Row(i)[:len(x)]·x.
func dotsGeneric[T gemm.Float](out []T, rows gemm.Matrix[T], x []T) {
	for i := range out {
		row := rows.Data[i*rows.Stride:][:len(x)]
		var s T
		for j, v := range x {
			s += v * row[j]
		}
		out[i] = s
	}
}

// axpys adds the sum of c[i]*rows.Row(i)[:len(y)] to y.
func axpysGeneric[T gemm.Float](y []T, c []T, rows gemm.Matrix[T]) {
	for i, v := range c {
		row := rows.Data[i*rows.Stride:][:len(y)]
		for j, r := range row {
			y[j] += v * r
		}
	}
}

// symvRowsGeneric adds to y the part of A*x that rows [lo, hi) of the lower triangle
// carry. Left of the diagonal block of an element, A[i][j] serves both y[i] and
// y[j]; inside the block (width lanes, ending at len(x)) it serves y[i] alone, because both
// triangles of the block are stored.
func symvRowsGeneric[T gemm.Float](y []T, a gemm.Matrix[T], x []T, lo, hi int) {
	w := lanes[T]()
	for i := lo; i < hi; i++ {
		row := a.Data[i*a.Stride:]
		split := i - i%w
		var s T
		for j, v := range row[:split] {
			s += v * x[j]
			y[j] += v * x[i]
		}
		for j := split; j < min(split+w, len(x)); j++ {
			s += row[j] * x[j]
		}
		y[i] += s
	}
}

// rotateGeneric applies a plane rotation: x, y = c*x+s*y, c*y-s*x.
func rotateGeneric[T gemm.Float](x, y []T, c, s T) {
	for i, v := range x {
		w := y[i]
		x[i] = c*v + s*w
		y[i] = c*w - s*v
	}
}

// secularGeneric returns the sum of z2[i]/((d[i]-origin)-offset) and of
// z2[i]/((d[i]-origin)-offset)².
func secularGeneric(d, z2 []float64, origin, offset float64) (sum, slope float64) {
	for i, v := range d {
		r := 1 / ((v - origin) - offset)
		w := z2[i] * r
		sum += w
		slope += w * r
	}
	return sum, slope
}

// loewnerGeneric multiplies prod[i] by ((origin-d[i])+offset)/(pole-d[i]).
func loewnerGeneric(prod, d []float64, origin, offset, pole float64) {
	for i, v := range d {
		prod[i] *= ((origin - v) + offset) / (pole - v)
	}
}

// vectorGeneric sets out[i] = z[i]/((d[i]-origin)-offset) and returns the sum of squares.
func vectorGeneric[T gemm.Float](out []T, d, z []float64, origin, offset float64) float64 {
	var s float64
	for i, v := range d {
		x := z[i] / ((v - origin) - offset)
		s += x * x
		out[i] = T(x)
	}
	return s
}
