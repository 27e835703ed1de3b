package model

import (
	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/gemm/vec"
)

// backward runs the blocks in reverse. w.dx holds the gradient of the final
// norm's output at the start, and of the residual stream from then on.
func (p *pass[T]) backward(tokens []int32, obs Observer) {
	w := p.w
	p.normGrad(w.dx, false, w.dx, w.final, p.m.norm, w.nScale)
	for l := len(w.layers) - 1; l >= 0; l-- {
		if obs != nil {
			obs.PreBackward(l)
		}
		p.mlpBackward(l)
		p.attentionBackward(l)
		if obs != nil {
			obs.PostBackward(l)
		}
	}
	p.lookupGrad(tokens)
}

// mlpBackward takes w.dx, the gradient of a block's output, to that of the stream
// between attention and MLP. gate and up turn into their gradients in place.
func (p *pass[T]) mlpBackward(l int) {
	w, a, b := p.w, &p.w.layers[l], &p.m.blocks[l]
	dout := p.outputGrad(a.b, b.mlpNorm, a.bScale)
	p.linearGrad(w.dact, dout, a.act, b.down)
	p.swigluBack = swigluBackTask[T]{hidden: p.m.cfg.HiddenSize, n: w.tokens(), gu: a.gu, dact: w.dact}
	p.rows(&p.swigluBack)
	p.inputGrad(a.gu, a.h, a.b, b.gateUp, b.mlpNorm, a.bScale)
}

// attentionBackward takes w.dx on to the gradient of the block's input. The
// residual branch costs nothing: its gradient is what w.dx already holds.
func (p *pass[T]) attentionBackward(l int) {
	w, a, b := p.w, &p.w.layers[l], &p.m.blocks[l]
	dout := p.outputGrad(a.a, b.attNorm, a.aScale)
	p.linearGrad(w.do, dout, a.o, b.o)
	p.attendBack = attendBackTask[T]{attendTask[T]{m: p.m, w: w, layer: l}}
	p.m.eng.Run(w.rows*p.m.cfg.NKVHeads, &p.attendBack)
	p.join = joinTask[T]{m: p.m, w: w, layer: l}
	p.m.eng.Run(w.rows*rowChunks(w.seq), &p.join)
	if p.m.cfg.QKNorm == "full" {
		qw, kw := p.m.cfg.qWidth(), p.m.cfg.kvWidth()
		p.addParts(b.qNorm, 0, qw+kw)
		p.addParts(b.kNorm, qw, qw+kw)
	}
	p.inputGrad(w.dqkv, a.x, a.a, b.qkv, b.attNorm, a.aScale)
}

// outputGrad returns the gradient of what attention or MLP put out before the
// residual sum: through the norm in a post-norm block, the stream's own
// gradient in a pre-norm block.
func (p *pass[T]) outputGrad(kept []T, norm vector[T], scale []T) []T {
	if p.m.cfg.NormPlace == PreNorm {
		return p.w.dx
	}
	p.normGrad(p.w.dy, false, p.w.dx, kept, norm, scale)
	return p.w.dy
}

// inputGrad adds to the weight's gradient, and adds dy*W to the stream's
// gradient: directly, or through the norm of a pre-norm block. x is the stream
// there, normed what the norm made of it.
func (p *pass[T]) inputGrad(dy, x, normed []T, t tensor[T], norm vector[T], scale []T) {
	if p.m.cfg.NormPlace == PostNorm {
		p.weightGrad(dy, x, t)
		p.linearBack(p.w.dx, dy, t, 1)
		return
	}
	p.weightGrad(dy, normed, t)
	p.linearBack(p.w.dy, dy, t, 0)
	p.normGrad(p.w.dx, true, p.w.dy, x, norm, scale)
}

// linearGrad is the gradient of y = x*Wᵀ: it sets dx and adds to W's gradient.
func (p *pass[T]) linearGrad(dx, dy, x []T, t tensor[T]) {
	p.linearBack(dx, dy, t, 0)
	p.weightGrad(dy, x, t)
}

// linearBack sets dx = dy*W + beta*dx.
func (p *pass[T]) linearBack(dx, dy []T, t tensor[T], beta T) {
	n := p.w.tokens()
	gemm.Mul(p.m.eng, false, false, 1, gemm.MatrixOf(n, t.value.Rows, dy), t.value, beta, gemm.MatrixOf(n, t.value.Cols, dx))
}

// weightGrad adds dyᵀ*x to the weight's gradient: one sequence after the other, so that
// the sum has the same order, and the same bits, however a batch is cut into
// micro-batches.
func (p *pass[T]) weightGrad(dy, x []T, t tensor[T]) {
	for i := range p.m.body.ops {
		op := &p.m.body.ops[i]
		p.addOuter(op, op.first, op.first*p.w.seq, op.rows*p.w.seq, p.w.seq, dy, x, t)
	}
}

// headGrad is weightGrad for n tokens from first on, whole sequences or a part of one.
func (p *pass[T]) headGrad(first, n int, dy, x []T) {
	seq, row := p.w.seq, first/p.w.seq
	plan, at := &p.m.head, p.w.at+row
	plan.next(at, at+(n+seq-1)/seq, (first+n)%seq == 0)
	p.m.ReserveSums(Sums{HeadLevels: plan.most - 1})
	part := seq
	if n%seq != 0 {
		part = n
	}
	for i := range plan.ops {
		op := &plan.ops[i]
		p.addOuter(op, row+op.first, op.first*part, op.rows*part, part, dy, x, p.m.out)
	}
}

// addOuter does an operation of a weight's gradient over n tokens from first on, in
// parts of one sequence, of which row is the first.
func (p *pass[T]) addOuter(op *sumOp, row, first, n, part int, dy, x []T, t tensor[T]) {
	out, in := t.value.Rows, t.value.Cols
	a, b := gemm.MatrixOf(n, out, dy[first*out:]), gemm.MatrixOf(n, in, x[first*in:])
	c := p.m.level(t, op.level)
	if op.tree {
		gemm.MulTree(p.m.eng, true, false, part, p.w.groups[row:row+op.rows], 1, a, b, beta[T](op.add), c)
	} else {
		gemm.MulParts(p.m.eng, true, false, part, 1, a, b, beta[T](op.add), c)
	}
	p.mergeLevels(op, t)
}

// normGrad sets dx, or adds to it, from the gradient dy of norm(x), and adds to
// the weight's gradient.
func (p *pass[T]) normGrad(dx []T, add bool, dy, x []T, norm vector[T], scale []T) {
	d := p.m.cfg.DModel
	p.normBack = normBackTask[T]{
		workers: p.m.workers, kind: p.m.cfg.Norm, width: d, seq: p.w.seq, add: add,
		dx: dx, dy: dy, x: x, weight: norm.value, scale: scale, eps: p.m.cfg.NormEps, parts: p.w.partial,
	}
	p.m.eng.Run(p.w.rows*rowChunks(p.w.seq), &p.normBack)
	p.addParts(norm, 0, d)
}

// addParts adds the chunks' parts of a norm's gradient in order. Parts have width
// elements; those of this norm start at column at.
func (p *pass[T]) addParts(v vector[T], at, width int) {
	if v.grad == nil {
		return
	}
	for i := range p.m.body.ops {
		op := &p.m.body.ops[i]
		dst := p.m.vectorLevel(v, op.level)
		if !op.add {
			clear(dst)
		}
		p.addRows(op, dst, at, width)
		for l := op.level; l > op.level-op.merges; l-- {
			lower := p.m.vectorLevel(v, l-1)
			vec.Add(lower, lower, p.m.vectorLevel(v, l))
		}
	}
}

// addRows adds the parts of an operation's rows to dst.
func (p *pass[T]) addRows(op *sumOp, dst []T, at, width int) {
	per := rowChunks(p.w.seq)
	p.sum.rows, p.sum.width, p.sum.n = p.w.total, len(dst), 0
	end := (op.first + op.rows) * per
	for c := op.first * per; c < end; c++ {
		part := p.w.partial[c*width+at:][:len(dst)]
		if !op.tree {
			vec.Add(dst, dst, part)
			continue
		}
		next := -1
		if c+1 < end {
			next = p.w.groups[(c+1)/per]
		}
		p.sum.add(part, p.w.groups[c/per], next)
	}
	if op.tree {
		vec.Add(dst, dst, p.sum.row(0))
	}
}

// normBackTask is the gradient of normTask.
type normBackTask[T gemm.Float] struct {
	workers                  []*worker[T]
	kind                     NormKind
	eps                      float64
	width, seq               int
	add                      bool
	dx, dy, x, weight, scale []T
	parts                    []T // [chunks, width] of the weight's gradient
}

func (t *normBackTask[T]) Do(chunk, worker int) {
	lo, hi := rowSpan(chunk, t.seq)
	wk := t.workers[worker]
	part := t.parts[chunk*t.width : (chunk+1)*t.width]
	clear(part)
	for i := lo; i < hi; i++ {
		at, end := i*t.width, (i+1)*t.width
		out := t.dx[at:end]
		if t.add {
			out = wk.row[:t.width]
		}
		if t.kind == RMSNorm {
			vec.RMSNormGrad(out, part, t.dy[at:end], t.x[at:end], t.weight, t.scale[i])
		} else { // the result is computed again, not kept
			y := wk.tmp[:t.width]
			inv := vec.LayerNorm(y, t.x[at:end], t.eps)
			vec.LayerNormGrad(out, t.dy[at:end], y, inv)
		}
		if t.add {
			vec.Add(t.dx[at:end], t.dx[at:end], out)
		}
	}
}

// swigluBackTask turns gate and up into their gradients.
type swigluBackTask[T gemm.Float] struct {
	hidden, n int
	gu, dact  []T
}

func (t *swigluBackTask[T]) Do(chunk, _ int) {
	lo, hi := span(chunk, t.n)
	for i := lo; i < hi; i++ {
		gate := t.gu[2*i*t.hidden : (2*i+1)*t.hidden]
		up := t.gu[(2*i+1)*t.hidden : 2*(i+1)*t.hidden]
		vec.SwiGLUGrad(gate, up, gate, up, t.dact[i*t.hidden:(i+1)*t.hidden])
	}
}

// attendBackTask is the gradient of one row and key head, over the query heads
// that share it.
type attendBackTask[T gemm.Float] struct{ attendTask[T] }

func (t *attendBackTask[T]) Do(chunk, worker int) {
	c, w := &t.m.cfg, t.w
	row, kv := chunk/c.NKVHeads, chunk%c.NKVHeads
	hd, group, qw, kw := c.HeadDim, c.NHeads/c.NKVHeads, c.qWidth(), c.kvWidth()
	view := func(at int) gemm.Matrix[T] { return columns(w.dqkv, w.seq, qw+2*kw, row*w.seq, at, hd) }
	g := headGrad[T]{dk: view(qw + kv*hd), dv: view(qw + kw + kv*hd)}
	for r := range w.seq {
		clear(g.dk.Row(r))
		clear(g.dv.Row(r))
	}
	// One task does the whole group, so that its sums into dk and dv have an order.
	for h := kv * group; h < (kv+1)*group; h++ {
		in := t.head(row, h)
		g.dq = view(h * hd)
		g.do = columns(w.do, w.seq, qw, row*w.seq, h*hd, hd)
		t.m.workers[worker].att.backward(&in, &g)
	}
}

// joinTask is the gradient of splitTask: it takes rows of the gradient of what
// attention read back through rotation, QK-norm and clip, in place.
type joinTask[T gemm.Float] struct {
	m     *Model[T]
	w     *work[T]
	layer int
}

func (t *joinTask[T]) Do(chunk, worker int) {
	lo, hi := rowSpan(chunk, t.w.seq)
	c := &t.m.cfg
	width := c.qWidth() + c.kvWidth()
	part := t.w.partial[chunk*width : (chunk+1)*width]
	clear(part)
	for i := lo; i < hi; i++ {
		t.row(i, t.m.workers[worker], part)
	}
}

// row does token i; part collects the gradients of the two norms' weights.
func (t *joinTask[T]) row(i int, wk *worker[T], part []T) {
	c, w := &t.m.cfg, t.w
	qw, kw := c.qWidth(), c.kvWidth()
	width := qw + 2*kw
	dx := w.dqkv[i*width : (i+1)*width]
	q, k := dx[:qw], dx[qw:qw+kw]
	cos, sin := t.m.ropes[t.layer].at(i % w.seq)
	vec.Unrotate(dx[:qw+kw], dx[:qw+kw], cos, sin)
	a, b := &w.layers[t.layer], &t.m.blocks[t.layer]
	raw := a.qkv[i*width : (i+1)*width]
	x := raw
	if c.ClipQKV > 0 && c.QKNorm == "full" {
		x = wk.row[:width]
		vec.Clamp(x, raw, T(-c.ClipQKV), T(c.ClipQKV))
	}
	if c.QKNorm == "full" {
		vec.RMSNormGrad(q, part[:qw], q, x[:qw], b.qNorm.value, a.qScale[i])
		vec.RMSNormGrad(k, part[qw:], k, x[qw:qw+kw], b.kNorm.value, a.kScale[i])
	}
	if c.ClipQKV > 0 {
		vec.ClampGrad(dx, raw, dx, T(-c.ClipQKV), T(c.ClipQKV))
	}
}

// lookupGrad adds w.dx to the gradient of the embeddings as a table of tokens.
func (p *pass[T]) lookupGrad(tokens []int32) {
	w, chunks := p.w, (p.m.cfg.DModel+scatterCols-1)/scatterCols
	joined := p.m.cfg.TieWordEmbeddings && p.m.lookup == nil // the head's gradient is there
	for i := range p.m.body.ops {
		op := &p.m.body.ops[i]
		lo, hi := op.first*w.seq, (op.first+op.rows)*w.seq
		p.scatter = scatterTask[T]{
			workers: p.m.workers, heads: w.chains(tokens, lo, hi), next: w.chain, groups: w.groups, seq: w.seq,
			set: !op.add && !(joined && op.level == 0), own: op.tree || joined,
			tokens: tokens, grad: p.m.lookupLevel(op.level), dx: w.dx,
		}
		p.m.eng.Run(chunks, &p.scatter)
		for l := op.level; l > op.level-op.merges; l-- {
			p.addLevel(p.m.lookupLevel(l-1).Data, p.m.lookupLevel(l).Data)
		}
	}
}

// chains links the tokens of equal id in [lo, hi), in order, and returns the first ones.
func (w *work[T]) chains(tokens []int32, lo, hi int) []int32 {
	for i := hi - 1; i >= lo; i-- {
		w.chain[i] = w.table[tokens[i]]
		w.table[tokens[i]] = int32(i)
	}
	heads := w.heads[:0]
	for i := lo; i < hi; i++ {
		if first := &w.table[tokens[i]]; *first == int32(i) {
			heads = append(heads, int32(i))
			*first = -1
		}
	}
	return heads
}

// scatterCols is the number of columns in one task of scatterTask.
const scatterCols = 128

// scatterTask adds rows of dx to the rows of the embeddings' gradient, id by id and its
// tokens in order, a range of columns at a time: a token that repeats is added up in the
// same order whoever has the columns.
type scatterTask[T gemm.Float] struct {
	workers     []*worker[T]
	heads, next []int32
	groups      []int // by row
	seq         int
	set         bool // clears its columns first
	own         bool // the sum of an id is rounded on its own, by groups
	tokens      []int32
	grad        gemm.Matrix[T]
	dx          []T
}

func (t *scatterTask[T]) Do(chunk, worker int) {
	d := t.grad.Cols
	lo, hi := chunk*scatterCols, min((chunk+1)*scatterCols, d)
	for i := 0; t.set && i < t.grad.Rows; i++ {
		clear(t.grad.Row(i)[lo:hi])
	}
	for _, first := range t.heads {
		row := t.grad.Row(int(t.tokens[first]))[lo:hi]
		if t.own && t.next[first] >= 0 {
			vec.Add(row, row, t.sum(&t.workers[worker].sum, first, lo, hi))
			continue
		}
		for i := first; i >= 0; i = t.next[i] {
			vec.Add(row, row, t.dx[int(i)*d+lo:int(i)*d+hi])
		}
	}
}

// sum adds up the columns of a chain in the tree of its groups.
func (t *scatterTask[T]) sum(s *treeSum[T], first int32, lo, hi int) []T {
	s.width, s.n = hi-lo, 0
	d := t.grad.Cols
	for i := first; i >= 0; i = t.next[i] {
		next := -1
		if n := t.next[i]; n >= 0 {
			next = t.groups[int(n)/t.seq]
		}
		s.add(t.dx[int(i)*d+lo:int(i)*d+hi], t.groups[int(i)/t.seq], next)
	}
	return s.row(0)
}
