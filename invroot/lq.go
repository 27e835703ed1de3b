package invroot

import (
	"math"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/gemm/vec"
)

// lq is Householder LQ on rows, A = L*Q: in row-major storage every reflector is
// a contiguous row, and LQ of Yᵀ is QR of Y. Panels are factored by recursion, so that
// nearly all work is in products (Elmroth and Gustavson 2000).
type lq[T gemm.Float] struct {
	eng   *gemm.Engine
	k     kernels[T]
	n     int
	t     gemm.Matrix[T] // triangular factors of the panels, side by side in rows
	tt    gemm.Matrix[T] // one of them transposed
	w, wt gemm.Matrix[T]
	coef  []T
	wait  pause
}

const (
	leafRows  = 8  // rows factored one reflector at a time
	panelRows = 64 // most rows of a panel
)

// newLQ returns scratch for problems of up to n columns.
func newLQ[T gemm.Float](eng *gemm.Engine, k kernels[T], n int) *lq[T] {
	return &lq[T]{
		eng: eng, k: k, n: n,
		t: scratch[T](n, panelRows), tt: scratch[T](panelRows, panelRows),
		w: scratch[T](n, panelRows), wt: scratch[T](n, panelRows),
		coef: make([]T, panelRows),
	}
}

// panelHeight returns the rows of a panel of an m-row problem.
func panelHeight(m int) int {
	if m <= 256 {
		return 32
	}
	return panelRows
}

// factor overwrites a (rows ≤ cols) with its reflectors: row i is zero before
// column i, one there, and v_i beyond. When l has rows, its lower triangle receives L.
func (f *lq[T]) factor(a, l gemm.Matrix[T]) {
	height := panelHeight(a.Rows)
	for i := 0; i < a.Rows; i += height {
		h := min(height, a.Rows-i)
		t := f.t.Slice(i, 0, h, h)
		f.wait.point()
		f.panel(a, l, i, h, t)
		f.wait.point()
		f.applyRight(a.Slice(i, i, h, a.Cols-i), t, a.Slice(i+h, i, a.Rows-i-h, a.Cols-i))
	}
}

// panel factors rows [i, i+h) of a on columns ≥ i, and sets t to the upper triangle of
// H(i)…H(i+h-1) = I - Vᵀ*T*V.
func (f *lq[T]) panel(a, l gemm.Matrix[T], i, h int, t gemm.Matrix[T]) {
	if h <= leafRows {
		f.leaf(a, l, i, h, t)
		return
	}
	h1 := max(h/2/leafRows*leafRows, leafRows)
	h2 := h - h1
	t1, t2 := t.Slice(0, 0, h1, h1), t.Slice(h1, h1, h2, h2)
	f.panel(a, l, i, h1, t1)
	f.wait.point()
	v1 := a.Slice(i, i, h1, a.Cols-i)
	f.applyRight(v1, t1, a.Slice(i+h1, i, h2, a.Cols-i))
	f.panel(a, l, i+h1, h2, t2)
	v2 := a.Slice(i+h1, i+h1, h2, a.Cols-i-h1)
	// T12 = -T1*(V1*V2ᵀ)*T2; V2 is zero left of its first column.
	inner, half := corner(f.w, h1, h2), corner(f.wt, h1, h2)
	gemm.Mul(f.eng, false, true, 1, v1.Slice(0, h1, h1, v2.Cols), v2, 0, inner)
	gemm.Mul(f.eng, false, false, 1, t1, inner, 0, half)
	gemm.Mul(f.eng, false, false, -1, half, t2, 0, t.Slice(0, h1, h1, h2))
	for r := h1; r < h; r++ {
		clear(t.Row(r)[:h1])
	}
}

// leaf factors a few rows one by one.
func (f *lq[T]) leaf(a, l gemm.Matrix[T], i, h int, t gemm.Matrix[T]) {
	for r := range h {
		at := i + r
		row := a.Row(at)[at:]
		beta, tau := f.reflector(row)
		f.store(a, l, at, beta)
		rest := a.Slice(at+1, at, h-r-1, a.Cols-at)
		c := f.coef[:rest.Rows]
		f.k.dots(c, rest, row)
		for q, d := range c {
			one := f.coef[rest.Rows : rest.Rows+1]
			one[0] = -tau * d
			f.k.axpys(rest.Row(q), one, gemm.Matrix[T]{Rows: 1, Cols: len(row), Stride: len(row), Data: row})
		}
		f.column(a, at, r, tau, t)
	}
}

// store moves the finished part of row at into l and leaves the clean reflector.
func (f *lq[T]) store(a, l gemm.Matrix[T], at int, beta T) {
	row := a.Row(at)
	if l.Rows > 0 {
		copy(l.Row(at), row[:at])
		l.Row(at)[at] = beta
	}
	clear(row[:at])
	row[at] = 1
}

// column extends t by the reflector number r of the leaf: -tau*T*(V*v), tau.
func (f *lq[T]) column(a gemm.Matrix[T], at, r int, tau T, t gemm.Matrix[T]) {
	prev := a.Slice(at-r, at, r, a.Cols-at)
	g := f.coef[:r]
	f.k.dots(g, prev, a.Row(at)[at:])
	for q := range r {
		row := t.Row(q)
		var s T
		for p := q; p < r; p++ {
			s += row[p] * g[p]
		}
		row[r] = -tau * s
	}
	clear(t.Row(r)[:r])
	t.Row(r)[r] = tau
}

// reflector turns x into v of H = I - tau*v*vᵀ with H*x = beta*e_0 and v_0 = 1.
// Rows of a singular matrix are rounding of rounding by then: x is scaled up where
// its squares would lose digits to underflow, or H would not be orthogonal.
func (f *lq[T]) reflector(x []T) (beta, tau T) {
	scale := 1.0
	s := f.square(x[1:])
	if limit := tiny[T](); s < limit {
		if m := float64(maxAbsRow(x)); m > limit {
			scale = powerOfTwo(m)
			vec.Scale(T(scale), x)
			s = f.square(x[1:])
		} else {
			s = 0
		}
	}
	beta, tau = reflect(x, s)
	return T(float64(beta) / scale), tau
}

// tiny is a square below which float sums of squares lose digits.
func tiny[T gemm.Float]() float64 {
	if unit[T]() > 0x1p-30 {
		return 0x1p-90
	}
	return 0x1p-900
}

// square returns x·x.
func (f *lq[T]) square(x []T) float64 {
	dot := f.coef[:1]
	f.k.dots(dot, gemm.Matrix[T]{Rows: 1, Cols: len(x), Stride: len(x), Data: x}, x)
	return float64(dot[0])
}

// reflect is reflector for a tail whose square is s.
func reflect[T gemm.Float](x []T, s float64) (beta, tau T) {
	tail, alpha := x[1:], float64(x[0])
	if s == 0 {
		clear(tail)
		x[0] = 1
		return T(alpha), 0
	}
	b := -math.Copysign(math.Sqrt(alpha*alpha+s), alpha)
	vec.Scale(T(1/(alpha-b)), tail)
	x[0] = 1
	return T(b), T((b - alpha) / b)
}

// applyRight sets b = b*(I - Vᵀ*T*V).
func (f *lq[T]) applyRight(v, t, b gemm.Matrix[T]) {
	if b.Rows == 0 {
		return
	}
	w, wt := corner(f.w, b.Rows, v.Rows), corner(f.wt, b.Rows, v.Rows)
	gemm.Mul(f.eng, false, true, 1, b, v, 0, w)
	gemm.Mul(f.eng, false, false, 1, w, t, 0, wt)
	gemm.Mul(f.eng, false, false, -1, wt, v, 1, b)
}

// form sets q (rows×cols, orthonormal rows) to Q = (H(0)…H(m-1))ᵀ from the
// reflectors that factor left in a. Panels are applied last first: each touches
// only the rows and columns beyond its own start.
func (f *lq[T]) form(q, a gemm.Matrix[T]) {
	for i := range q.Rows {
		row := q.Row(i)
		clear(row)
		row[i] = 1
	}
	height := panelHeight(a.Rows)
	if a.Rows == 0 {
		return
	}
	for i := (a.Rows - 1) / height * height; i >= 0; i -= height {
		h := min(height, a.Rows-i)
		f.wait.point()
		t := corner(f.tt, h, h)
		transpose(t, f.t.Slice(i, 0, h, h))
		f.applyRight(a.Slice(i, i, h, a.Cols-i), t, q.Slice(i, i, a.Rows-i, a.Cols-i))
	}
}
