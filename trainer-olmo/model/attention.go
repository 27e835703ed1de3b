package model

import (
	"math"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/gemm/vec"
)

// Attention works on tiles of queryBlock queries against keyBlock keys. The
// sizes fix the order of the sums, so they are constants, not tuned at run time.
const (
	queryBlock = 64
	keyBlock   = 512
)

// attention is the scratch of one worker: a tile of probabilities, a tile of
// their gradients, and the running maximum and sum of each query's softmax.
type attention[T gemm.Float] struct {
	eng      *gemm.Engine // single-threaded: the worker itself computes
	queries  int          // tile height, queryBlock except in tests
	keys     int          // tile width, keyBlock except in tests
	p, dp    []T          // queries*keys each
	packed   [3][]T       // operands copied to rows without gaps
	turned   [2][]T       // operands transposed
	peak     []T          // queries
	total    []T          // queries
	rowDotDO []T          // queries
}

func newAttention[T gemm.Float](eng *gemm.Engine, queries, keys int) *attention[T] {
	return &attention[T]{
		eng: eng, queries: queries, keys: keys,
		p: make([]T, queries*keys), dp: make([]T, queries*keys),
		peak: make([]T, queries), total: make([]T, queries), rowDotDO: make([]T, queries),
	}
}

// head is what one query head reads and writes, views of rows that all heads
// share. Query i stands at position
// first+i and sees the keys from lo[first+i] up to itself; lo never decreases.
type head[T gemm.Float] struct {
	q, k, v gemm.Matrix[T] // queries×hd, positions×hd, positions×hd
	o       gemm.Matrix[T] // queries×hd
	lse     []T            // queries: log of the softmax denominator
	lo      []int32        // positions
	first   int
	scale   T
}

// tile is a run of queries [i0, i0+n) and of keys [j0, j0+nk).
type tile struct{ i0, n, j0, nk int }

// visible returns the columns [a, b) of a tile's row r that its query sees.
func (h *head[T]) visible(t tile, r int) (a, b int) {
	pos := h.first + t.i0 + r
	return max(int(h.lo[pos])-t.j0, 0), min(pos+1-t.j0, t.nk)
}

// keyRange returns the positions [lo, hi) of the keys that a block of queries
// sees.
func (a *attention[T]) keyRange(h *head[T], i0, n int) (lo, hi int) {
	return int(h.lo[h.first+i0]), h.first + i0 + n
}

// reserve makes room for heads of rows vectors of width hd, so that forward and
// backward allocate nothing. Which worker gets which head is chance, so each runs
// one now: then its engine, too, has all the scratch that tiles can need.
func (a *attention[T]) reserve(rows, hd int) {
	if len(a.packed[0]) >= rows*hd {
		return
	}
	for i := range a.packed {
		a.packed[i] = make([]T, rows*hd)
	}
	for i := range a.turned {
		a.turned[i] = make([]T, (rows+turnGap)*hd)
	}
	n := min(rows, 2*a.keys+1)
	a.rehearse(n, n, hd)
	a.rehearse(max(1, n-1), n, hd)          // the last vector of keys is full, or it is not
	a.rehearse(min(n, queryBlock-1), n, hd) // nothing is packed
}

// rehearse runs a head of zeros for the last queries of n positions; those of two key
// blocks and one more have every shape of tile.
func (a *attention[T]) rehearse(queries, n, hd int) {
	x, y := gemm.NewMatrix[T](queries, hd), gemm.NewMatrix[T](n, hd)
	h := head[T]{q: x, k: y, v: y, o: x, lse: make([]T, queries), lo: make([]int32, n), first: n - queries, scale: 1}
	a.forward(&h)
	a.backward(&h, &headGrad[T]{do: x, dq: x, dk: y, dv: y})
}

// pack copies a view whose rows are far apart, because the right operand of a
// product is read many times and such rows share few cache sets. One tile of
// queries reads it too seldom for that.
func (a *attention[T]) pack(i int, x gemm.Matrix[T], queries int) gemm.Matrix[T] {
	if queries < queryBlock {
		return x
	}
	y := gemm.MatrixOf(x.Rows, x.Cols, a.packed[i])
	gemm.Copy(a.eng, y, x)
	return y
}

// turnGap keeps the rows of a turned operand off each other's cache sets.
const turnGap = 16

// turn transposes a right operand that the product of every tile would transpose; for
// few queries it returns the zero matrix.
func (a *attention[T]) turn(i int, x gemm.Matrix[T], queries int) gemm.Matrix[T] {
	if queries < queryBlock {
		return gemm.Matrix[T]{}
	}
	y := gemm.MatrixOf(x.Cols, x.Rows+turnGap, a.turned[i]).Slice(0, 0, x.Cols, x.Rows)
	gemm.Transpose(a.eng, y, x)
	return y
}

// across sets dst to scale*x*yᵀ for the rows of y that a tile sees; turned is yᵀ, or
// zero.
func (a *attention[T]) across(scale T, x, y, turned gemm.Matrix[T], t tile, dst gemm.Matrix[T]) {
	if turned.Rows > 0 {
		gemm.Mul(a.eng, false, false, scale, x, turned.Slice(0, t.j0, turned.Rows, t.nk), 0, dst)
		return
	}
	gemm.Mul(a.eng, false, true, scale, x, y.Slice(t.j0, 0, t.nk, y.Cols), 0, dst)
}

// forward sets h.o and h.lse: o = softmax(scale*q*kᵀ, masked)*v.
func (a *attention[T]) forward(h *head[T]) {
	v, kt := a.pack(0, h.v, h.q.Rows), a.turn(0, h.k, h.q.Rows)
	for i0 := 0; i0 < h.q.Rows; i0 += a.queries {
		n := min(a.queries, h.q.Rows-i0)
		lo, hi := a.keyRange(h, i0, n)
		for j0 := lo; j0 < hi; j0 += a.keys {
			t := tile{i0, n, j0, min(a.keys, hi-j0)}
			p := a.scores(h, kt, t)
			o := h.o.Slice(i0, 0, n, h.o.Cols)
			a.online(h, t, p, o, j0 == lo)
			gemm.Mul(a.eng, false, false, 1, p, v.Slice(j0, 0, t.nk, v.Cols), beta[T](j0 != lo), o)
		}
		a.normalize(h, i0, n)
	}
}

func beta[T gemm.Float](add bool) T {
	if add {
		return 1
	}
	return 0
}

// scores sets a tile to scale*q*kᵀ, mask not applied; kt is kᵀ, or zero.
func (a *attention[T]) scores(h *head[T], kt gemm.Matrix[T], t tile) gemm.Matrix[T] {
	p := gemm.MatrixOf(t.n, t.nk, a.p)
	a.across(h.scale, h.q.Slice(t.i0, 0, t.n, h.q.Cols), h.k, kt, t, p)
	return p
}

// online turns scores into exp(score - peak), zero where masked, and keeps peak
// and total of each row over the key blocks seen so far. When a later block
// raises the peak, what was summed before is scaled down.
func (a *attention[T]) online(h *head[T], t tile, p, o gemm.Matrix[T], fresh bool) {
	for r := range t.n {
		if fresh {
			a.peak[r], a.total[r] = T(math.Inf(-1)), 0
		}
		row := p.Row(r)
		lo, hi := h.visible(t, r)
		if lo >= hi {
			clear(row)
			continue
		}
		peak := max(a.peak[r], vec.Max(row[lo:hi]))
		s := vec.ExpSum(row[lo:hi], row[lo:hi], peak)
		clear(row[:lo])
		clear(row[hi:])
		if !fresh {
			shrink := T(math.Exp(float64(a.peak[r] - peak)))
			s += a.total[r] * shrink
			vec.Scale(shrink, o.Row(r))
		}
		a.peak[r], a.total[r] = peak, s
	}
}

// normalize divides by the totals, once a row and not once a key block.
func (a *attention[T]) normalize(h *head[T], i0, n int) {
	for r := range n {
		vec.Scale(1/a.total[r], h.o.Row(i0+r))
		h.lse[i0+r] = a.peak[r] + T(math.Log(float64(a.total[r])))
	}
}

// headGrad is what backward adds to: dq is set; dk and dv are added to, because
// the query heads of a group share them.
type headGrad[T gemm.Float] struct {
	do         gemm.Matrix[T] // queries×hd
	dq, dk, dv gemm.Matrix[T]
}

// backward computes the probabilities again from h.lse. With p the
// probabilities, dp = do*vᵀ and ds = scale*p*(dp - rowsum(do*o)):
//
//	dv += pᵀ*do    dq = ds*k    dk += dsᵀ*q
func (a *attention[T]) backward(h *head[T], g *headGrad[T]) {
	n := h.q.Rows
	kt, vt := a.turn(0, h.k, n), a.turn(1, h.v, n)
	h.q, h.k, g.do = a.pack(0, h.q, n), a.pack(1, h.k, n), a.pack(2, g.do, n)
	for i0 := 0; i0 < h.q.Rows; i0 += a.queries {
		n := min(a.queries, h.q.Rows-i0)
		for r := range n {
			a.rowDotDO[r] = vec.Dot(g.do.Row(i0+r), h.o.Row(i0+r))
		}
		lo, hi := a.keyRange(h, i0, n)
		for j0 := lo; j0 < hi; j0 += a.keys {
			a.backwardTile(h, g, kt, vt, tile{i0, n, j0, min(a.keys, hi-j0)}, j0 == lo)
		}
	}
}

// backwardTile adds one tile's part. fresh is the first tile of its queries, which
// sets dq; kt and vt are kᵀ and vᵀ, or zero.
func (a *attention[T]) backwardTile(h *head[T], g *headGrad[T], kt, vt gemm.Matrix[T], t tile, fresh bool) {
	hd := h.q.Cols
	do := g.do.Slice(t.i0, 0, t.n, hd)
	p, dp := a.scores(h, kt, t), gemm.MatrixOf(t.n, t.nk, a.dp)
	a.across(1, do, h.v, vt, t, dp)
	for r := range t.n {
		a.softmaxGrad(h, t, r, p.Row(r), dp.Row(r))
	}
	gemm.Mul(a.eng, true, false, 1, p, do, 1, g.dv.Slice(t.j0, 0, t.nk, hd))
	gemm.Mul(a.eng, false, false, 1, dp, h.k.Slice(t.j0, 0, t.nk, hd), beta[T](!fresh), g.dq.Slice(t.i0, 0, t.n, hd))
	gemm.Mul(a.eng, true, false, 1, dp, h.q.Slice(t.i0, 0, t.n, hd), 1, g.dk.Slice(t.j0, 0, t.nk, hd))
}

// softmaxGrad turns a row of scores into probabilities and a row of dp into ds,
// both zero where masked.
func (a *attention[T]) softmaxGrad(h *head[T], t tile, r int, p, dp []T) {
	lo, hi := h.visible(t, r)
	if lo >= hi {
		clear(p)
		clear(dp)
		return
	}
	vec.ExpSum(p[lo:hi], p[lo:hi], h.lse[t.i0+r])
	vec.SoftmaxGrad(dp[lo:hi], p[lo:hi], dp[lo:hi], a.rowDotDO[r], h.scale)
	for _, x := range [2][]T{p, dp} {
		clear(x[:lo])
		clear(x[hi:])
	}
}
