package invroot

import (
	"context"
	"math"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/gemm/vec"
)

// tridiagonal reduces a symmetric matrix, A = H(n-1)…H(1)*T*H(1)…H(n-1), in
// one stage and from the last row up: in row-major storage every reflector is
// then a contiguous piece of a row. Columns are handled in panels.
// Inside a panel the matrix is left alone and corrected through the panel's
// vectors V and W (LAPACK latrd); after it, A -= VᵀW + WᵀV is one product.
type tridiagonal[T gemm.Float] struct {
	eng *gemm.Engine
	k   kernels[T]
	// d and e are the diagonal and the subdiagonal of T, e[i] between i and i+1.
	d, e []float64
	// tau[r] is the scale of the reflector that lies in row r; 0 means none.
	tau []T
	// pairs holds V and W as rows 2q and 2q+1, swapped as W and V: the product of
	// the first, transposed, with the second is VᵀW + WᵀV.
	pairs, swapped gemm.Matrix[T]
	x, y, coef     []T
	symv           symvTask[T]
	wait           pause
}

// maxPanel bounds the columns of a panel.
const maxPanel = 32

func newTridiagonal[T gemm.Float](eng *gemm.Engine, k kernels[T], n int) *tridiagonal[T] {
	return &tridiagonal[T]{
		eng: eng, k: k,
		d: make([]float64, n), e: make([]float64, n), tau: make([]T, n),
		pairs: scratch[T](2*maxPanel, n), swapped: scratch[T](2*maxPanel, n),
		x: make([]T, n), y: make([]T, n), coef: make([]T, 2*maxPanel),
		symv: symvTask[T]{k: k, part: scratch[T](symvChunks, n)},
	}
}

// panelWidth trades the level-2 work inside panels, which grows with it, against
// the traffic of the updates between them.
func panelWidth(n int) int {
	switch {
	case n < 192:
		return 16
	case n < 768:
		return 24
	}
	return maxPanel
}

// reduce overwrites a, of which the lower triangle and the diagonal blocks of
// width lanes hold the matrix. Afterwards row r holds its reflector in [0, r).
func (t *tridiagonal[T]) reduce(ctx context.Context, a gemm.Matrix[T]) error {
	n := a.Rows
	for top := n - 1; top > 0; {
		if err := t.wait.poll(ctx); err != nil {
			return err
		}
		width := min(panelWidth(n), top)
		for q := range width {
			t.column(a, top-q, q)
			t.wait.point()
		}
		t.update(a, top+1-width, width)
		top -= width
	}
	if n > 0 {
		t.d[0] = float64(a.Data[0])
	}
	return nil
}

// column brings row r up to date, turns it into a reflector and appends the
// pair (V, W) number q of the panel.
func (t *tridiagonal[T]) column(a gemm.Matrix[T], r, q int) {
	row := a.Row(r)[:r+1]
	c := t.coef[:2*q]
	for i := range q {
		c[2*i] = -t.pairs.At(2*i+1, r)
		c[2*i+1] = -t.pairs.At(2*i, r)
	}
	t.k.axpys(row, c, t.pairs)
	t.d[r] = float64(row[r])
	v, w := t.pairs.Row(2 * q)[:r], t.pairs.Row(2*q + 1)[:r]
	beta, tau := t.reflector(row[:r])
	t.e[r-1], t.tau[r] = beta, tau
	copy(v, row[:r])
	if tau == 0 {
		clear(w)
		return
	}
	t.symv.run(t.eng, a, v, w)
	// The panel's earlier pairs have not been applied to a: correct the product.
	s := t.coef[:2*q]
	t.k.dots(s, t.pairs, v)
	for i := range q {
		s[2*i], s[2*i+1] = -s[2*i+1], -s[2*i]
	}
	t.k.axpys(w, s, t.pairs)
	t.finish(w, v, tau)
}

// finish turns w = A*v into tau*(w - tau/2*(wᵀv)*v), the W of the update.
func (t *tridiagonal[T]) finish(w, v []T, tau T) {
	dot := t.coef[:1]
	t.k.dots(dot, gemm.Matrix[T]{Rows: 1, Cols: len(w), Stride: len(w), Data: w}, v)
	half := -tau * tau * dot[0] / 2
	vec.Axpby(half, v, tau, w)
}

// reflector turns x into v of H = I - tau*v*vᵀ with H*x = beta*e_last and v_last = 1.
// The matrix is scaled to about 1, so a tail below tiny is rounding noise of
// no consequence and gives tau = 0.
func (t *tridiagonal[T]) reflector(x []T) (beta float64, tau T) {
	last := len(x) - 1
	dot := t.coef[:1]
	t.k.dots(dot, gemm.Matrix[T]{Rows: 1, Cols: last, Stride: last, Data: x[:last]}, x[:last])
	alpha, s := float64(x[last]), float64(dot[0])
	if s <= negligible[T]() {
		clear(x)
		return alpha, 0
	}
	beta = -math.Copysign(math.Sqrt(alpha*alpha+s), alpha)
	vec.Scale(T(1/(alpha-beta)), x[:last])
	x[last] = 1
	return beta, T((beta - alpha) / beta)
}

// negligible is the square of a length that does not count beside 1: far below
// the roundoff, far above the denormals.
func negligible[T gemm.Float]() float64 { return unit[T]() * unit[T]() * 0x1p-40 }

// update applies the width pairs of a panel to the leading m×m part, strip by
// strip, so that only a staircase above the diagonal is computed in vain.
func (t *tridiagonal[T]) update(a gemm.Matrix[T], m, width int) {
	if m == 0 {
		return
	}
	for q := range width {
		copy(t.swapped.Row(2 * q)[:m], t.pairs.Row(2*q + 1)[:m])
		copy(t.swapped.Row(2*q + 1)[:m], t.pairs.Row(2 * q)[:m])
	}
	strip := stripHeight(m)
	for i := 0; i < m; i += strip {
		h := min(strip, m-i)
		t.wait.point()
		gemm.Mul(t.eng, true, false, -1, t.pairs.Slice(0, i, 2*width, h),
			t.swapped.Slice(0, 0, 2*width, i+h), 1, a.Slice(i, 0, h, i+h))
	}
}

// stripHeight is a multiple of every lane count: strips must cover whole
// diagonal blocks.
func stripHeight(m int) int {
	if m <= 256 {
		return 64
	}
	return 128
}

// extremes returns the smallest and the largest eigenvalue of the reduced matrix of
// order n by bisection on Sturm counts, to 2^-steps of the norm.
func (t *tridiagonal[T]) extremes(n, steps int) (lo, hi float64) {
	if n == 0 {
		return 0, 0
	}
	left, right := t.gershgorin(n)
	return t.bisect(n, 1, steps, left, right), t.bisect(n, n, steps, left, right)
}

// bisect returns the smallest x, to 2^-steps of the interval, with at least count
// eigenvalues below it.
func (t *tridiagonal[T]) bisect(n, count, steps int, left, right float64) float64 {
	for range steps {
		mid := (left + right) / 2
		if t.below(n, mid) >= count {
			right = mid
		} else {
			left = mid
		}
	}
	return right
}

// below returns how many eigenvalues of the leading n×n part are less than x: the number of
// negative pivots of T - xI (Sylvester's law of inertia).
func (t *tridiagonal[T]) below(n int, x float64) int {
	count, pivot := 0, 1.0
	for i, d := range t.d[:n] {
		off := 0.0
		if i > 0 {
			off = t.e[i-1]
		}
		pivot = d - x - off*off/pivot
		if pivot == 0 {
			pivot = -0x1p-1000
		}
		if pivot < 0 {
			count++
		}
	}
	return count
}

// gershgorin returns an interval that holds the spectrum: the union of the
// discs around the diagonal.
func (t *tridiagonal[T]) gershgorin(n int) (lo, hi float64) {
	lo, hi = math.Inf(1), math.Inf(-1)
	for i, d := range t.d[:n] {
		r := 0.0
		if i > 0 {
			r += math.Abs(t.e[i-1])
		}
		if i < n-1 {
			r += math.Abs(t.e[i])
		}
		lo, hi = min(lo, d-r), max(hi, d+r)
	}
	return lo, hi
}
