package model

import "github.com/asteria-runtime/asteria/gemm"

// layerActs is what a block's forward pass leaves for its backward pass. Buffers
// are for all tokens, row-major; N is their number.
type layerActs[T gemm.Float] struct {
	x   []T // [N, d] input of the block
	a   []T // [N, d] post-norm: attention's output; pre-norm: attention's input
	h   []T // [N, d] residual stream between attention and MLP
	b   []T // [N, d] as a, of the MLP
	qkv []T // [N, qkv width] projections before clip, norm and rotation
	att []T // [N, attWidth] queries and keys as attention reads them; may be qkv
	k   []T // [capacity, kv width] keys and values of a decoder, else nil
	v   []T
	o   []T // [N, q width] attention's result
	lse []T // [rows, heads, seq]
	gu  []T // [N, 2I] gate and up
	act []T // [N, I]

	aScale, bScale, qScale, kScale []T // [N] reciprocal root mean squares
}

// work is the buffers of one kind of pass, for rows*seq tokens.
type work[T gemm.Float] struct {
	rows, seq int
	capacity  int // positions of a row of k and v
	first     int // position of the first token
	room      int // tokens that the buffers hold
	layers    []layerActs[T]
	final     []T // [N, d] input of the final norm
	normed    []T // [N, d] its output
	nScale    []T

	docStart []int32
	lo       [][]int32 // by window: first visible position of each token
	logits   []T       // a chunk of rows
	ce, z    []float64 // [N] by token
	rowCE    []float64 // by row
	rowCount []int

	// Backward only.
	dx, dy     []T // [N, d]
	do         []T // [N, q width]
	dqkv, dact []T
	partial    []T // [row chunks, widest norm] parts of the norms' gradients
}

// plan is the shape of a work.
type plan struct {
	rows, seq, capacity, first int
	keep                       bool // activations of every layer, and the backward pass's buffers
}

// rowChunk is the number of tokens in one task of a row-wise pass; partial sums
// over tokens have one part a chunk.
const rowChunk = 64

// logitBudget bounds the elements of a chunk of logits.
const logitBudget = 1 << 21

// logitRows is the number of tokens whose logits exist at a time.
func logitRows(tokens, vocab int) int {
	return min(max(logitBudget/vocab/rowChunk*rowChunk, rowChunk), tokens)
}

// newWork allocates the buffers of a plan. Without keep all layers share one
// set, and the residual stream is updated in place.
func newWork[T gemm.Float](c Config, windows int, p plan) *work[T] {
	n := p.rows * p.seq
	w := &work[T]{rows: p.rows, seq: p.seq, capacity: p.capacity, first: p.first, room: n}
	w.layers = make([]layerActs[T], c.NLayers)
	if p.keep {
		for i := range w.layers {
			w.layers[i] = newLayerActs[T](c, p)
			w.layers[i].h = make([]T, n*c.DModel)
		}
		w.final = make([]T, n*c.DModel)
	} else {
		shared := newLayerActs[T](c, p)
		shared.h = shared.x
		for i := range w.layers {
			w.layers[i] = shared
		}
		w.final = shared.x
	}
	w.normed = make([]T, n*c.DModel)
	w.nScale = make([]T, n)
	w.docStart = make([]int32, n)
	for range windows {
		w.lo = append(w.lo, make([]int32, p.rows*p.capacity))
	}
	w.logits = make([]T, logitRows(n, c.VocabSize)*c.VocabSize)
	w.ce, w.z = make([]float64, n), make([]float64, n)
	w.rowCE, w.rowCount = make([]float64, n), make([]int, n)
	if p.keep {
		w.allocateBackward(c, n, p)
	}
	return w
}

// newLayerActs allocates all but h, which may be x.
func newLayerActs[T gemm.Float](c Config, p plan) layerActs[T] {
	n := p.rows * p.seq
	of := func(n, width int) []T { return make([]T, n*width) }
	a := layerActs[T]{
		x: of(n, c.DModel), a: of(n, c.DModel), b: of(n, c.DModel),
		qkv: of(n, c.qWidth()+2*c.kvWidth()),
		o:   of(n, c.qWidth()), lse: of(n, c.NHeads),
		gu: of(n, 2*c.HiddenSize), act: of(n, c.HiddenSize),
		aScale: of(n, 1), bScale: of(n, 1), qScale: of(n, 1), kScale: of(n, 1),
	}
	a.att = a.qkv
	if c.QKNorm == "full" || c.ClipQKV > 0 {
		a.att = of(n, c.attWidth())
	}
	return a
}

func (w *work[T]) allocateBackward(c Config, n int, p plan) {
	of := func(width int) []T { return make([]T, n*width) }
	w.dx, w.dy = of(c.DModel), of(c.DModel)
	w.do = of(c.qWidth())
	w.dqkv, w.dact = of(c.qWidth()+2*c.kvWidth()), of(c.HiddenSize)
	parts := (n + rowChunk - 1) / rowChunk
	w.partial = make([]T, parts*max(c.DModel, c.qWidth()+c.kvWidth()))
}

// output is where layer l writes its result.
func (w *work[T]) output(l int) []T {
	if l+1 < len(w.layers) {
		return w.layers[l+1].x
	}
	return w.final
}

// tokens is the number of tokens of the pass.
func (w *work[T]) tokens() int { return w.rows * w.seq }

// reshape sets the shape of the next pass and reports whether the buffers hold
// it.
func (w *work[T]) reshape(rows, seq int) bool {
	if w == nil || rows*seq > w.room {
		return false
	}
	w.rows, w.seq, w.capacity = rows, seq, seq
	return true
}
