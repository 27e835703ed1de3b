package model

import (
	"errors"
	"fmt"
	"slices"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// Model holds a model's parameters, their gradients and the buffers of a step.
type Model[T gemm.Float] struct {
	cfg     Config
	eng     *gemm.Engine
	params  []param.Param[T]
	offsets []int // of each parameter in values and grads
	values  []T   // all parameters, in the order of params, tensors padded apart
	grads   []T
	embed   tensor[T]
	blocks  []block[T]
	norm    vector[T] // final norm
	out     tensor[T] // head, or the embeddings when tied

	// windows lists the distinct attention windows, window the index of each
	// layer's in it; ropes has the table of each layer.
	windows []int
	window  []int
	ropes   []*ropeTable[T]

	workers []*worker[T]
	train   *work[T] // activations kept for the backward pass
	eval    *work[T] // activations of one layer only
	run     *pass[T]
	batch   Batch // of the current call

	// Partial sums, see Note: the order of a gradient's sum.
	body, head  sumPlan
	pending     [][]T // by level - 1: like grads without the head's
	pendingHead [][]T
	lookup      []T // gradient of tied embeddings as a table, nil where it goes to theirs at once
}

// tensor is a weight [out, in] and its gradient.
type tensor[T gemm.Float] struct {
	value, grad gemm.Matrix[T]
	at          int  // of its first element in values and grads
	head        bool // it makes logits
}

// block is one layer's parameters. qkv stacks the rows of q, k and v, gateUp
// those of gate and up; the vectors are empty where the block has no such norm.
type block[T gemm.Float] struct {
	qkv, o, gateUp, down           tensor[T]
	qNorm, kNorm, attNorm, mlpNorm vector[T]
}

// vector is a norm's weight and its gradient.
type vector[T gemm.Float] struct {
	value, grad []T
	at          int // of its first element in values and grads
}

// worker is what one thread computes with.
type worker[T gemm.Float] struct {
	eng *gemm.Engine // of one thread
	att *attention[T]
	row []T // a row of q, k and v
	tmp []T
	sum treeSum[T] // of rows of the embeddings' gradient
}

// align is the padding of tensors in elements, a cache line of float32.
const align = 16

// New allocates the parameters, zero, and the gradients of a model; see
// [Model.Init]. eng does the work of all calls and outlives the model.
func New[T gemm.Float](c Config, eng *gemm.Engine) (*Model[T], error) {
	if eng == nil {
		return nil, errors.New("model: no engine")
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	m := &Model[T]{cfg: c.Resolved(), eng: eng}
	m.allocate()
	m.bind()
	m.chooseTables()
	for range eng.Threads() {
		m.workers = append(m.workers, newWorker[T](m.cfg))
	}
	m.run = newPass(m)
	return m, nil
}

func newWorker[T gemm.Float](c Config) *worker[T] {
	eng := gemm.New(1)
	widest := max(c.qWidth()+2*c.kvWidth(), c.DModel)
	return &worker[T]{
		eng: eng, att: newAttention[T](eng, queryBlock, keyBlock),
		row: make([]T, widest), tmp: make([]T, widest),
		sum: treeSum[T]{rows: make([]T, maxLevels*scatterCols)},
	}
}

// Close releases the engines of the workers.
func (m *Model[T]) Close() {
	for _, w := range m.workers {
		w.eng.Close()
	}
}

// continues reports whether the tensor continues the one before it without
// padding: k and v follow q, up follows gate.
func continues(before, t Tensor) bool {
	return before.Layer == t.Layer && before.Role == param.Matrix && t.Role == param.Matrix &&
		before.Shape[1] == t.Shape[1]
}

// allocate lays out all tensors in one buffer for the values and one for the
// gradients. Shapes puts q, k, v and gate, up next to each other, and no padding
// goes between neighbours of equal width, so that a group is one matrix.
func (m *Model[T]) allocate() {
	shapes := m.cfg.Shapes()
	m.offsets = make([]int, len(shapes))
	total := 0
	for i, t := range shapes {
		if i > 0 && !continues(shapes[i-1], t) {
			total = roundUp(total, align)
		}
		m.offsets[i] = total
		total += int(t.Len())
	}
	m.values, m.grads = gemm.OnHugePages(make([]T, total)), gemm.OnHugePages(make([]T, total))
	m.params = make([]param.Param[T], len(shapes))
	for i, t := range shapes {
		lo := m.offsets[i]
		end := lo + int(t.Len())
		m.params[i] = param.Param[T]{
			Name: t.Name, Shape: t.Shape, Role: t.Role, Layer: t.Layer,
			Value: m.values[lo:end:end], Grad: m.grads[lo:end:end],
		}
	}
}

// bind makes the views that the passes use. It walks params in the order of
// Shapes.
func (m *Model[T]) bind() {
	c, next := m.cfg, 0
	take := func(n int) int { next += n; return next - n }
	m.embed = m.stack(take(1), 1)
	for range c.NLayers {
		var b block[T]
		b.qkv, b.o = m.stack(take(3), 3), m.stack(take(1), 1)
		if c.QKNorm == "full" {
			b.qNorm, b.kNorm = m.vector(take(1)), m.vector(take(1))
		}
		b.gateUp, b.down = m.stack(take(2), 2), m.stack(take(1), 1)
		if c.hasNormWeights() {
			b.attNorm, b.mlpNorm = m.vector(take(1)), m.vector(take(1))
		}
		m.blocks = append(m.blocks, b)
	}
	if c.hasNormWeights() {
		m.norm = m.vector(take(1))
	}
	m.out = m.embed
	if !c.TieWordEmbeddings {
		m.out = m.stack(take(1), 1)
	}
	m.out.head = true
}

// stack views n neighbouring tensors of equal width as one.
func (m *Model[T]) stack(first, n int) tensor[T] {
	cols, rows := m.params[first].Shape[1], 0
	for _, p := range m.params[first : first+n] {
		rows += p.Shape[0]
	}
	at := m.offsets[first]
	return tensor[T]{
		value: gemm.MatrixOf(rows, cols, m.values[at:at+rows*cols]),
		grad:  gemm.MatrixOf(rows, cols, m.grads[at:at+rows*cols]),
		at:    at,
	}
}

func (m *Model[T]) vector(i int) vector[T] {
	return vector[T]{m.params[i].Value, m.params[i].Grad, m.offsets[i]}
}

// chooseTables numbers the distinct windows and gives each layer its rotary
// table: scaled where attention is full, plain where it slides.
func (m *Model[T]) chooseTables() {
	c := m.cfg
	plain := newRopeTable[T](RopeScaling{}, c.HeadDim, c.RopeTheta)
	scaled := plain
	if c.RopeScaling.Kind != "" {
		scaled = newRopeTable[T](c.RopeScaling, c.HeadDim, c.RopeTheta)
	}
	for i := range c.NLayers {
		w := c.Window(i)
		at := slices.Index(m.windows, w)
		if at < 0 {
			at = len(m.windows)
			m.windows = append(m.windows, w)
		}
		m.window = append(m.window, at)
		if w == FullAttention {
			m.ropes = append(m.ropes, scaled)
		} else {
			m.ropes = append(m.ropes, plain)
		}
	}
}

// Config returns the model's configuration with defaults written out.
func (m *Model[T]) Config() Config { return m.cfg }

// Params lists the parameters in the order of [Config.Shapes]. The slices keep
// their address for the model's life.
func (m *Model[T]) Params() []param.Param[T] { return m.params }

// ZeroGrad clears all gradients.
func (m *Model[T]) ZeroGrad() {
	clear(m.grads)
	clear(m.lookup)
}

// Observer is told where a pass is. Layers count from 0.
type Observer interface {
	PreForward(layer int)
	PostForward(layer int)
	PreBackward(layer int)
	// PostBackward says that the gradients of a layer are complete, as far as
	// this micro-batch goes.
	PostBackward(layer int)
}

// LossGrad runs a micro-batch forward and backward and adds its gradients to
// those of [Model.Params], or sets them when o says so. The loss is (CE + ZLoss*Z)/Divisor. obs may be nil.
func (m *Model[T]) LossGrad(b Batch, o LossOptions, obs Observer) (LossStats, error) {
	if err := b.check(m.cfg.VocabSize); err != nil {
		return LossStats{}, err
	}
	m.batch = b
	if !m.train.reshape(b.Rows, b.Seq) {
		m.train = newWork[T](m.cfg, len(m.windows), plan{rows: b.Rows, seq: b.Seq, capacity: b.Seq, keep: true}, &arena{})
	}
	m.prepare(m.train)
	m.begin(o)
	m.run.forward(m.train, b.Tokens, obs)
	s := m.run.head(&m.batch, o, true)
	m.run.backward(b.Tokens, obs)
	return s, nil
}

// begin plans how the gradients of the call's batch join those of the step.
func (m *Model[T]) begin(o LossOptions) {
	s := o.Share
	if s.Rows == 0 {
		s = Share{Groups: 1, Rows: m.batch.Rows, Last: m.batch.Rows}
	}
	if s.At == s.First {
		m.body.start(s, o.Fresh)
		m.head.start(s, o.Fresh)
	}
	m.body.next(s.At, s.At+m.batch.Rows, true)
	for i := range m.batch.Rows {
		m.train.groups[i] = s.group(s.At + i)
	}
	m.train.at = s.At
	m.ReserveSums(Sums{Levels: m.body.most - 1})
}

// Loss is the forward half of [Model.LossGrad]; it keeps one layer's
// activations.
func (m *Model[T]) Loss(b Batch, o LossOptions) (LossStats, error) {
	if err := m.infer(b); err != nil {
		return LossStats{}, err
	}
	return m.run.head(&m.batch, o, false), nil
}

// Logits sets dst, of Rows*Seq*VocabSize elements, to the logits of every
// position.
func (m *Model[T]) Logits(b Batch, dst []T) error {
	n, v := b.Rows*b.Seq, m.cfg.VocabSize
	if len(dst) != n*v {
		return fmt.Errorf("model: logits of %d tokens need %d elements, got %d", n, n*v, len(dst))
	}
	if err := m.infer(b); err != nil {
		return err
	}
	m.run.linear(dst, m.eval.normed, m.out.value, 0)
	return nil
}

// infer runs the blocks forward without keeping activations.
func (m *Model[T]) infer(b Batch) error {
	if err := b.check(m.cfg.VocabSize); err != nil {
		return err
	}
	m.batch = b
	if !m.eval.reshape(b.Rows, b.Seq) {
		m.eval = newWork[T](m.cfg, len(m.windows), plan{rows: b.Rows, seq: b.Seq, capacity: b.Seq}, &arena{})
	}
	m.prepare(m.eval)
	m.run.forward(m.eval, b.Tokens, nil)
	return nil
}

// prepare fills the tables that depend on the batch's shape and documents, before
// the threads start.
func (m *Model[T]) prepare(w *work[T]) {
	for _, r := range m.ropes {
		r.grow(w.seq)
	}
	for _, worker := range m.workers {
		worker.att.reserve(w.seq, m.cfg.HeadDim)
	}
	m.batch.docStarts(w.docStart)
	for i, window := range m.windows {
		visibleFrom(w.lo[i], w.docStart[:w.tokens()], w.seq, window)
	}
}

// visibleFrom sets lo to the first position that each token attends to.
func visibleFrom(lo, docStart []int32, seq, window int) {
	for i, start := range docStart {
		lo[i] = start
		if pos := i % seq; window != FullAttention {
			lo[i] = max(start, int32(pos-window+1))
		}
	}
}

// Span is the gradients of one layer, or of neighbours outside of the layers, in
// one piece of memory; padding between tensors is zero and stays so. The one that
// [Sums].Apart adds is the last.
type Span[T gemm.Float] struct {
	Layer int // -1 outside of the layers
	Grad  []T
}

// GradSpans lists all gradients in the order of memory, for whoever exchanges them
// between replicas. The slices keep their address for the model's life.
func (m *Model[T]) GradSpans() []Span[T] {
	var spans []Span[T]
	lo := 0
	for i, p := range m.params {
		end := m.offsets[i] + len(p.Grad)
		if i+1 < len(m.params) && m.params[i+1].Layer == p.Layer {
			continue
		}
		spans = append(spans, Span[T]{Layer: p.Layer, Grad: m.grads[lo:end:end]})
		if i+1 < len(m.params) {
			lo = m.offsets[i+1]
		}
	}
	if m.lookup != nil {
		spans = append(spans, Span[T]{Layer: -1, Grad: m.lookup})
	}
	return spans
}
