package model

import (
	"math"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/gemm/vec"
)

// pass runs a model over a work: matrix products over all tokens at once, each
// with all threads, and between them row-wise passes in chunks of tokens that
// finish with a row while it is in the first-level cache. Its tasks are fields, set before each Run, so
// that a step allocates nothing.
type pass[T gemm.Float] struct {
	m *Model[T]
	w *work[T]

	chunk func(first, n int) // headChunk

	dots   dotsTask[T]
	embed  embedTask[T]
	norm   normTask[T]
	split  splitTask[T]
	attend attendTask[T]
	swiglu swigluTask[T]
	loss   lossTask[T]

	normBack   normBackTask[T]
	join       joinTask[T]
	attendBack attendBackTask[T]
	swigluBack swigluBackTask[T]
	scatter    scatterTask[T]
	adds       addTask[T]
	sum        treeSum[T] // of norms' gradients
}

func newPass[T gemm.Float](m *Model[T]) *pass[T] {
	p := &pass[T]{m: m}
	p.chunk = p.headChunk
	return p
}

// rows runs a task over chunks of the tokens.
func (p *pass[T]) rows(t gemm.Task) {
	p.m.eng.Run((p.w.tokens()+rowChunk-1)/rowChunk, t)
}

// span is the tokens of a chunk.
func span(chunk, n int) (lo, hi int) { return chunk * rowChunk, min(chunk*rowChunk+rowChunk, n) }

// fewTokens is the number of tokens below which a product reads each weight once
// from where it lies: packing a matrix costs more than using it so few times. Not in
// training, where results must not depend on how many rows are here.
const fewTokens = 4

// linear sets y = x*Wᵀ + beta*y, beta 0 or 1.
func (p *pass[T]) linear(y, x []T, w gemm.Matrix[T], beta T) {
	p.project(p.w.tokens(), y, x, w, beta)
}

// project is linear for n tokens.
func (p *pass[T]) project(n int, y, x []T, w gemm.Matrix[T], beta T) {
	if n < fewTokens && p.w.chunks == 0 {
		p.dots = dotsTask[T]{x: gemm.MatrixOf(n, w.Cols, x), w: w, y: gemm.MatrixOf(n, w.Rows, y), add: beta != 0}
		p.m.eng.Run((w.Rows+rowChunk-1)/rowChunk, &p.dots)
		return
	}
	gemm.Mul(p.m.eng, false, true, 1, gemm.MatrixOf(n, w.Cols, x), w, beta, gemm.MatrixOf(n, w.Rows, y))
}

// dotsTask sets a chunk of columns of y to dot products of rows of x and w, or
// adds them.
type dotsTask[T gemm.Float] struct {
	x, w, y gemm.Matrix[T]
	add     bool
}

func (t *dotsTask[T]) Do(chunk, _ int) {
	lo, hi := span(chunk, t.w.Rows)
	for j := lo; j < hi; j++ {
		row := t.w.Row(j)
		for i := range t.x.Rows {
			s := vec.Dot(t.x.Row(i), row)
			if t.add {
				s += t.y.At(i, j)
			}
			t.y.Set(i, j, s)
		}
	}
}

// forward runs the blocks over tokens and leaves the normalised result in
// w.normed.
func (p *pass[T]) forward(w *work[T], tokens []int32, obs Observer) {
	p.w = w
	p.embed = embedTask[T]{table: p.m.embed.value, tokens: tokens, dst: w.layers[0].x}
	p.rows(&p.embed)
	for l := range w.layers {
		if obs != nil {
			obs.PreForward(l)
		}
		p.block(l)
		if obs != nil {
			obs.PostForward(l)
		}
	}
	p.normalize(w.normed, nil, w.final, p.m.norm.value, w.nScale)
}

// block runs layer l from its x to the next layer's. What the backward pass needs
// stays in the layer's buffers; in evaluation all layers share them, and dst and
// res of residual are then the same slice.
func (p *pass[T]) block(l int) {
	a, b := &p.w.layers[l], &p.m.blocks[l]
	pre := p.m.cfg.NormPlace == PreNorm
	in := a.x
	if pre {
		p.normalize(a.a, nil, a.x, b.attNorm.value, a.aScale)
		in = a.a
	}
	p.linear(a.qkv, in, b.qkv.value, 0)
	p.split = splitTask[T]{m: p.m, w: p.w, layer: l}
	p.rows(&p.split)
	p.attend = attendTask[T]{m: p.m, w: p.w, layer: l}
	p.m.eng.Run(p.w.rows*p.m.cfg.NHeads, &p.attend)
	p.residual(a.h, a.x, a.o, b.o.value, a.a, b.attNorm.value, a.aScale)

	in = a.h
	if pre {
		p.normalize(a.b, nil, a.h, b.mlpNorm.value, a.bScale)
		in = a.b
	}
	p.linear(a.gu, in, b.gateUp.value, 0)
	p.swiglu = swigluTask[T]{hidden: p.m.cfg.HiddenSize, n: p.w.tokens(), gu: a.gu, act: a.act}
	p.rows(&p.swiglu)
	p.residual(p.w.output(l), a.h, a.act, b.down.value, a.b, b.mlpNorm.value, a.bScale)
}

// residual sets dst = res + norm(x*Wᵀ), keeping x*Wᵀ in kept, or without the
// norm in a pre-norm block. dst may be res.
func (p *pass[T]) residual(dst, res, x []T, w gemm.Matrix[T], kept, weight, scale []T) {
	if p.m.cfg.NormPlace == PostNorm {
		p.linear(kept, x, w, 0)
		p.normalize(dst, res, kept, weight, scale)
		return
	}
	n := p.w.tokens() * w.Rows
	copy(dst[:n], res[:n])
	p.linear(dst, x, w, 1)
}

// normalize sets dst = norm(src), plus res when it is not nil.
func (p *pass[T]) normalize(dst, res, src, weight, scale []T) {
	p.norm = normTask[T]{
		workers: p.m.workers, kind: p.m.cfg.Norm, eps: p.m.cfg.NormEps, width: p.m.cfg.DModel, n: p.w.tokens(),
		dst: dst, res: res, src: src, weight: weight, scale: scale,
	}
	p.rows(&p.norm)
}

// embedTask gathers rows of the embeddings, x = E[ids].
type embedTask[T gemm.Float] struct {
	table  gemm.Matrix[T]
	tokens []int32
	dst    []T
}

func (t *embedTask[T]) Do(chunk, _ int) {
	lo, hi := span(chunk, len(t.tokens))
	d := t.table.Cols
	for i := lo; i < hi; i++ {
		copy(t.dst[i*d:(i+1)*d], t.table.Row(int(t.tokens[i])))
	}
}

// normTask normalises rows.
type normTask[T gemm.Float] struct {
	workers                      []*worker[T]
	kind                         NormKind
	eps                          float64
	width, n                     int
	dst, res, src, weight, scale []T
}

func (t *normTask[T]) Do(chunk, worker int) {
	lo, hi := span(chunk, t.n)
	for i := lo; i < hi; i++ {
		at, end := i*t.width, (i+1)*t.width
		src, dst := t.src[at:end], t.dst[at:end]
		switch {
		case t.kind == RMSNorm && t.res == nil:
			t.scale[i] = vec.RMSNorm(dst, src, t.weight, t.eps)
		case t.kind == RMSNorm:
			t.scale[i] = vec.RMSNormAdd(dst, t.res[at:end], src, t.weight, t.eps)
		case t.res == nil:
			vec.LayerNorm(dst, src, t.eps)
		default:
			tmp := t.workers[worker].tmp[:t.width]
			vec.LayerNorm(tmp, src, t.eps)
			vec.Add(dst, t.res[at:end], tmp)
		}
	}
}

// splitTask turns rows of the q, k, v projection into what attention reads:
// clip, QK-norm, rotation.
type splitTask[T gemm.Float] struct {
	m     *Model[T]
	w     *work[T]
	layer int
}

func (t *splitTask[T]) Do(chunk, _ int) {
	lo, hi := span(chunk, t.w.tokens())
	for i := lo; i < hi; i++ {
		t.row(i)
	}
}

// row does token i. Clip comes before the norm and rotation after it, as in
// OLMo-core; values are only clipped.
func (t *splitTask[T]) row(i int) {
	c, a, b := &t.m.cfg, &t.w.layers[t.layer], &t.m.blocks[t.layer]
	qw, kw := c.qWidth(), c.kvWidth()
	x := a.qkv[i*(qw+2*kw) : (i+1)*(qw+2*kw)]
	att := a.att[i*c.attWidth() : (i+1)*c.attWidth()]
	if c.ClipQKV > 0 {
		vec.Clamp(att, x, T(-c.ClipQKV), T(c.ClipQKV))
		x = att
	}
	q, k := att[:qw], att[qw:qw+kw]
	if c.QKNorm == "full" {
		a.qScale[i] = vec.RMSNorm(q, x[:qw], b.qNorm.value, c.NormEps)
		a.kScale[i] = vec.RMSNorm(k, x[qw:qw+kw], b.kNorm.value, c.NormEps)
	}
	pos := t.w.first + i%t.w.seq
	cos, sin := t.m.ropes[t.layer].at(pos)
	vec.Rotate(att[:qw+kw], att[:qw+kw], cos, sin) // queries and keys are neighbours
	if a.k != nil {
		copy(a.k[pos*kw:(pos+1)*kw], k)
		copy(a.v[pos*kw:(pos+1)*kw], x[qw+kw:])
	}
}

// attWidth is the width of the rows that attention reads. Without clip the
// values stay where the projection put them, and without a norm, too, queries
// and keys are rotated there.
func (c *Config) attWidth() int {
	if c.QKNorm == "full" && c.ClipQKV == 0 {
		return c.qWidth() + c.kvWidth()
	}
	return c.qWidth() + 2*c.kvWidth()
}

// attendTask is attention of one row and query head. Chunks are handed out
// dynamically, so that a slow thread takes fewer heads.
type attendTask[T gemm.Float] struct {
	m     *Model[T]
	w     *work[T]
	layer int
}

func (t *attendTask[T]) Do(chunk, worker int) {
	h := t.head(chunk/t.m.cfg.NHeads, chunk%t.m.cfg.NHeads)
	t.m.workers[worker].att.forward(&h)
}

// head views what one query head reads and writes.
func (t *attendTask[T]) head(row, h int) head[T] {
	c, w, a := &t.m.cfg, t.w, &t.w.layers[t.layer]
	hd, qw, kw := c.HeadDim, c.qWidth(), c.kvWidth()
	kvAt := h / (c.NHeads / c.NKVHeads) * hd
	first, lseAt := row*w.seq, (row*c.NHeads+h)*w.seq
	x := head[T]{
		q:     columns(a.att, w.seq, c.attWidth(), first, h*hd, hd),
		o:     columns(a.o, w.seq, qw, first, h*hd, hd),
		lse:   a.lse[lseAt : lseAt+w.seq],
		lo:    w.lo[t.m.window[t.layer]][row*w.capacity:],
		first: w.first,
		scale: T(1 / math.Sqrt(float64(hd))),
	}
	if a.k != nil {
		x.k = columns(a.k, w.first+w.seq, kw, 0, kvAt, hd)
		x.v = columns(a.v, w.first+w.seq, kw, 0, kvAt, hd)
		return x
	}
	x.k = columns(a.att, w.seq, c.attWidth(), first, qw+kvAt, hd)
	if c.ClipQKV > 0 {
		x.v = columns(a.att, w.seq, c.attWidth(), first, qw+kw+kvAt, hd)
	} else {
		x.v = columns(a.qkv, w.seq, qw+2*kw, first, qw+kw+kvAt, hd)
	}
	return x
}

// columns views rows [first, first+rows) and columns [at, at+cols) of a buffer
// whose rows have width elements.
func columns[T gemm.Float](buf []T, rows, width, first, at, cols int) gemm.Matrix[T] {
	lo := first*width + at
	return gemm.Matrix[T]{Rows: rows, Cols: cols, Stride: width, Data: buf[lo : lo+(rows-1)*width+cols]}
}

// swigluTask sets act = silu(gate)*up.
type swigluTask[T gemm.Float] struct {
	hidden, n int
	gu, act   []T
}

func (t *swigluTask[T]) Do(chunk, _ int) {
	lo, hi := span(chunk, t.n)
	for i := lo; i < hi; i++ {
		gu := t.gu[2*i*t.hidden : 2*(i+1)*t.hidden]
		vec.SwiGLU(t.act[i*t.hidden:(i+1)*t.hidden], gu[:t.hidden], gu[t.hidden:])
	}
}
