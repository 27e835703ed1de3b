package model

import (
	"slices"
	"unsafe"

	"github.com/asteria-runtime/asteria/gemm"
)

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
	chunks    int // partial sums that they hold, 0 without a backward pass
	layers    []layerActs[T]
	final     []T // [N, d] input of the final norm
	normed    []T // [N, d] its output
	nScale    []T

	docStart []int32
	lo       [][]int32 // by window: first visible position of each token
	logits   []T       // a chunk of rows
	ce, z    []float64 // [N] by token
	rowCE    []float64 // by row
	rowZ     []float64
	rowCount []int

	// Backward only.
	dx, dy     []T // [N, d]
	do         []T // [N, q width]
	dqkv, dact []T
	partial    []T     // [rows, chunks of a row, widest norm] parts of the norms' gradients
	total      []T     // [maxLevels, widest norm] of a tree of them
	groups     []int   // of each row, see Share
	at         int     // first row in the global batch
	chain      []int32 // by token: the next one with the same id, -1 for the last
	heads      []int32 // tokens that are the first ones with their id
	table      []int32 // by id: scratch of chains, -1 between uses
}

// plan is the shape of a work.
type plan struct {
	rows, seq, capacity int
	keep                bool // activations of every layer, and the backward pass's buffers
	decode              bool // no losses
}

// rowChunk is the number of tokens in one task of a row-wise pass. Partial sums over
// tokens have one part a chunk, and then chunks end with a row.
const rowChunk = 64

// rowChunks is the number of such chunks in a row of seq tokens.
func rowChunks(seq int) int { return (seq + rowChunk - 1) / rowChunk }

// rowSpan is the tokens of a chunk that ends with a row of seq tokens.
func rowSpan(chunk, seq int) (lo, hi int) {
	row, in := chunk/rowChunks(seq), chunk%rowChunks(seq)*rowChunk
	return row*seq + in, row*seq + min(in+rowChunk, seq)
}

// logitBudget is the number of logits that exist at a time, unless that is fewer
// than logitLeast tokens: each chunk reads the head and its gradient once.
const (
	logitBudget = 1 << 22
	logitLeast  = 256
)

// logitRows is the number of tokens whose logits exist at a time.
func logitRows(tokens, vocab int) int {
	return min(max(logitBudget/vocab/rowChunk*rowChunk, logitLeast), tokens)
}

// arena allocates, or only counts.
type arena struct {
	bytes int64
	dry   bool
}

// reserve returns n zeros, or nil when the arena is dry.
func reserve[E any](a *arena, n int) []E {
	var e E
	a.bytes += int64(n) * int64(unsafe.Sizeof(e))
	if a.dry {
		return nil
	}
	return gemm.OnHugePages(make([]E, n))
}

// WorkBytes is the memory in bytes that [Model.LossGrad] needs for rows sequences
// of seq tokens on a number of threads, beside the parameters and gradients: the
// activations of all layers, the buffers of the backward pass, a chunk of logits
// and the workers' scratch. A matrix product packs its operands on top of that.
func WorkBytes[T gemm.Float](c Config, rows, seq, threads int) int64 {
	c = c.Resolved()
	a := arena{dry: true}
	windows := c.windows()
	slices.Sort(windows)
	newWork[T](c, len(slices.Compact(windows)), plan{rows: rows, seq: seq, capacity: seq, keep: true}, &a)
	tiles := 2*queryBlock*keyBlock + 3*queryBlock + (5*seq+2*turnGap)*c.HeadDim
	widest := max(c.qWidth()+2*c.kvWidth(), c.DModel)
	reserve[T](&a, threads*(tiles+2*widest))
	return a.bytes
}

// LossBytes is the memory in bytes that [Model.Loss] needs for rows sequences of
// seq tokens, beside the parameters and the scratch that WorkBytes counts.
func LossBytes[T gemm.Float](c Config, rows, seq int) int64 {
	c = c.Resolved()
	a := arena{dry: true}
	windows := c.windows()
	slices.Sort(windows)
	newWork[T](c, len(slices.Compact(windows)), plan{rows: rows, seq: seq, capacity: seq}, &a)
	return a.bytes
}

// newWork allocates the buffers of a plan. Without keep all layers share one
// set, and the residual stream is updated in place.
func newWork[T gemm.Float](c Config, windows int, p plan, m *arena) *work[T] {
	n := p.rows * p.seq
	w := &work[T]{rows: p.rows, seq: p.seq, capacity: p.capacity, room: n}
	w.layers = make([]layerActs[T], c.NLayers)
	if p.keep {
		for i := range w.layers {
			w.layers[i] = newLayerActs[T](c, n, m)
			w.layers[i].h = reserve[T](m, n*c.DModel)
		}
		w.final = reserve[T](m, n*c.DModel)
		w.allocateBackward(c, n, m)
	} else {
		shared := newLayerActs[T](c, n, m)
		shared.h, w.final = shared.x, shared.x
		for i := range w.layers {
			w.layers[i] = shared
		}
	}
	w.normed, w.nScale = reserve[T](m, n*c.DModel), reserve[T](m, n)
	w.docStart = reserve[int32](m, n)
	for range windows {
		w.lo = append(w.lo, reserve[int32](m, p.rows*p.capacity))
	}
	if !p.decode {
		w.logits = reserve[T](m, logitRows(n, c.VocabSize)*c.VocabSize)
		w.ce, w.z = reserve[float64](m, n), reserve[float64](m, n)
		w.rowCE, w.rowZ, w.rowCount = reserve[float64](m, n), reserve[float64](m, n), reserve[int](m, n)
	}
	return w
}

// newLayerActs allocates all but h, which may be x, for n tokens.
func newLayerActs[T gemm.Float](c Config, n int, m *arena) layerActs[T] {
	of := func(width int) []T { return reserve[T](m, n*width) }
	a := layerActs[T]{
		x: of(c.DModel), a: of(c.DModel), b: of(c.DModel),
		qkv: of(c.qWidth() + 2*c.kvWidth()), o: of(c.qWidth()), lse: of(c.NHeads),
		gu: of(2 * c.HiddenSize), act: of(c.HiddenSize),
		aScale: of(1), bScale: of(1), qScale: of(1), kScale: of(1),
	}
	a.att = a.qkv
	if c.QKNorm == "full" || c.ClipQKV > 0 {
		a.att = of(c.attWidth())
	}
	return a
}

func (w *work[T]) allocateBackward(c Config, n int, m *arena) {
	of := func(width int) []T { return reserve[T](m, n*width) }
	w.dx, w.dy, w.do = of(c.DModel), of(c.DModel), of(c.qWidth())
	w.dqkv, w.dact = of(c.qWidth()+2*c.kvWidth()), of(c.HiddenSize)
	widest := max(c.DModel, c.qWidth()+c.kvWidth())
	w.chunks = w.rows * rowChunks(w.seq)
	w.partial = reserve[T](m, w.chunks*widest)
	w.total = reserve[T](m, maxLevels*widest)
	w.groups = reserve[int](m, n)
	w.chain, w.heads, w.table = reserve[int32](m, n), reserve[int32](m, n), reserve[int32](m, c.VocabSize)
	for i := range w.table {
		w.table[i] = -1
	}
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
	if w == nil || rows*seq > w.room || w.chunks > 0 && rows*rowChunks(seq) > w.chunks {
		return false
	}
	w.rows, w.seq, w.capacity = rows, seq, seq
	return true
}
