package model

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
)

// tiny is a model of a few thousand weights with odd sizes.
func tiny(arch Arch) Config {
	c := Config{Arch: arch, DModel: 20, NLayers: 3, NHeads: 6, NKVHeads: 2, HeadDim: 6, HiddenSize: 28, VocabSize: 41}
	if arch == OLMo3 {
		c.NLayers, c.SlidingWindow = 5, []int{3, 7, FullAttention}
		c.RopeScaling = RopeScaling{Kind: "yarn", Factor: 4, OldContextLen: 16}
	}
	if arch == OLMo1 {
		c.ClipQKV = 0.02
	}
	return c
}

// variants are the shapes of block that the package serves.
func variants() map[string]Config {
	tied, noQK, clip2, post := tiny(OLMo2), tiny(OLMo2), tiny(OLMo2), tiny(OLMo1)
	tied.TieWordEmbeddings = true
	noQK.QKNorm = "none"
	clip2.ClipQKV = 0.02
	post.NormPlace = PostNorm
	pre := tiny(OLMo1)
	pre.Norm, pre.ClipQKV, pre.NKVHeads = RMSNorm, 0, 6
	return map[string]Config{
		"olmo1": tiny(OLMo1), "olmo2": tiny(OLMo2), "olmo3": tiny(OLMo3), "tied": tied, "no QK-norm": noQK,
		"clip before QK-norm": clip2, "post-norm LayerNorm": post, "pre-norm RMSNorm": pre,
	}
}

func newTest[T gemm.Float](t testing.TB, c Config, threads int) *Model[T] {
	t.Helper()
	eng := gemm.New(threads)
	m, err := New[T](c, eng)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close(); eng.Close() })
	m.Init(11)
	return m
}

// randomBatch has every kind of mask.
func randomBatch(seed uint64, rows, seq, vocab int) Batch {
	rng := rand.New(rand.NewPCG(seed, 1))
	b := Batch{Rows: rows, Seq: seq}
	for range rows * seq {
		b.Tokens = append(b.Tokens, int32(rng.IntN(vocab)))
		b.LabelMask = append(b.LabelMask, rng.IntN(5) > 0)
	}
	for range rows {
		b.InstanceMask = append(b.InstanceMask, rng.IntN(4) > 0)
		var lens []int32
		for left := seq; left > 1 && rng.IntN(4) > 0; {
			n := 1 + rng.IntN(left-1)
			lens, left = append(lens, int32(n)), left-n
		}
		b.DocLens = append(b.DocLens, lens)
	}
	b.InstanceMask[0] = true
	return b
}

// Central differences of the loss along random directions agree with the
// gradients. In float64 with step h the error is of order h² from the third
// derivative and ε/h from rounding, near 1e-9 at h = 1e-6 for a loss of a few
// units. A smaller step also makes it rare that a clipped value crosses its
// bound, where the loss has a kink.
func TestGradientsAgainstDifferences(t *testing.T) {
	const seed, h = 5, 1e-6
	o := LossOptions{ZLoss: 1e-2}
	for name, c := range variants() {
		t.Run(name, func(t *testing.T) {
			m := newTest[float64](t, c, 2)
			b := randomBatch(seed, 3, 17, c.VocabSize)
			rng := rand.New(rand.NewPCG(seed, 2))
			for _, p := range m.Params() {
				for i := range p.Value { // norms are not all 1, weights not tiny
					p.Value[i] += 0.1 * rng.NormFloat64()
				}
			}
			if c.ClipQKV > 0 { // the clip cuts some values and not all
				m.cfg.ClipQKV = 0.5
			}
			if _, err := m.LossGrad(b, o, nil); err != nil {
				t.Fatal(err)
			}
			for _, p := range m.Params() {
				checkDirection(t, m, b, o, p.Name, p.Value, p.Grad, rng, h)
			}
		})
	}
}

func checkDirection(t *testing.T, m *Model[float64], b Batch, o LossOptions, name string, x, grad []float64, rng *rand.Rand, h float64) {
	t.Helper()
	dir, want := make([]float64, len(x)), 0.0
	for i := range dir {
		dir[i] = rng.NormFloat64() / math.Sqrt(float64(len(x)))
		want += dir[i] * grad[i]
	}
	kept := append([]float64(nil), x...)
	at := func(s float64) float64 {
		for i := range x {
			x[i] = kept[i] + s*dir[i]
		}
		stats, err := m.Loss(b, o)
		if err != nil {
			t.Fatal(err)
		}
		return stats.Loss
	}
	got := (at(h) - at(-h)) / (2 * h)
	copy(x, kept)
	if d := math.Abs(got - want); !(d <= 1e-8*(1+math.Abs(want))) {
		t.Errorf("seed 5: %s: difference %.12g, gradient %.12g", name, got, want)
	}
}

// bitsOf collects everything that a pass computes.
func bitsOf[T gemm.Float](t testing.TB, c Config, threads int, b Batch) []T {
	t.Helper()
	m := newTest[T](t, c, threads)
	var out []T
	for range 2 {
		s, err := m.LossGrad(b, LossOptions{ZLoss: 1e-4}, nil)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, T(s.CE), T(s.Z))
	}
	for _, p := range m.Params() {
		out = append(out, p.Value...)
		out = append(out, p.Grad...)
	}
	logits := make([]T, len(b.Tokens)*c.VocabSize)
	if err := m.Logits(b, logits); err != nil {
		t.Fatal(err)
	}
	return append(out, logits...)
}

// Weights, losses, gradients and logits have the same bits for any number of
// threads.
func TestThreadsDoNotChangeABit(t *testing.T) {
	for name, c := range variants() {
		t.Run(name, func(t *testing.T) {
			c.DModel = 160 // several column chunks of the embedding gradient
			b := randomBatch(3, 3, 150, c.VocabSize)
			want := bitsOf[float32](t, c, 1, b)
			for _, threads := range []int{2, 3} {
				for i, v := range bitsOf[float32](t, c, threads, b) {
					if math.Float32bits(v) != math.Float32bits(want[i]) {
						t.Fatalf("%d threads: number %d is %g, want %g", threads, i, v, want[i])
					}
				}
			}
		})
	}
}

// After a first call a step allocates nothing, in training and evaluation, also
// when a smaller batch comes between.
func TestStepAllocatesNothing(t *testing.T) {
	for name, c := range variants() {
		m := newTest[float32](t, c, 2)
		b, small := randomBatch(1, 4, 90, c.VocabSize), randomBatch(2, 2, 30, c.VocabSize)
		logits := make([]float32, len(b.Tokens)*c.VocabSize)
		step := func() {
			m.ZeroGrad()
			for _, x := range []Batch{b, small, b} {
				if _, err := m.LossGrad(x, LossOptions{ZLoss: 1e-5}, nopObserver{}); err != nil {
					t.Fatal(err)
				}
				if _, err := m.Loss(x, LossOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			if err := m.Logits(b, logits); err != nil {
				t.Fatal(err)
			}
		}
		step()
		if n := testing.AllocsPerRun(5, step); n != 0 {
			t.Errorf("%s: %g allocations in a step", name, n)
		}
	}
}

type nopObserver struct{}

func (nopObserver) PreForward(int)   {}
func (nopObserver) PostForward(int)  {}
func (nopObserver) PreBackward(int)  {}
func (nopObserver) PostBackward(int) {}

// recorder writes down what an observer is told.
type recorder struct{ log []string }

func (r *recorder) PreForward(l int)   { r.log = append(r.log, fmt.Sprint("f", l)) }
func (r *recorder) PostForward(l int)  { r.log = append(r.log, fmt.Sprint("F", l)) }
func (r *recorder) PreBackward(l int)  { r.log = append(r.log, fmt.Sprint("b", l)) }
func (r *recorder) PostBackward(l int) { r.log = append(r.log, fmt.Sprint("B", l)) }

func TestObserverOrder(t *testing.T) {
	m := newTest[float32](t, tiny(OLMo2), 1)
	var r recorder
	if _, err := m.LossGrad(randomBatch(1, 1, 5, 41), LossOptions{}, &r); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(r.log, " "); got != "f0 F0 f1 F1 f2 F2 b2 B2 b1 B1 b0 B0" {
		t.Error(got)
	}
}

// The gradients of micro-batches, each with the whole batch's divisor, add up to
// the batch's. Sums are in another order, so float64 agrees within rounding:
// 1e-13 for values of order one.
func TestMicroBatchesAddUp(t *testing.T) {
	for name, c := range variants() {
		t.Run(name, func(t *testing.T) {
			b := randomBatch(9, 6, 23, c.VocabSize)
			for _, legacy := range []bool{false, true} {
				checkMicroBatches(t, c, b, LossOptions{Legacy: legacy, ZLoss: 1e-3, Divisor: b.Divisor(legacy)})
			}
		})
	}
}

func checkMicroBatches(t *testing.T, c Config, b Batch, o LossOptions) {
	t.Helper()
	whole, parts := newTest[float64](t, c, 1), newTest[float64](t, c, 1)
	want, err := whole.LossGrad(b, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	loss, labels := 0.0, 0
	for row := 0; row < b.Rows; {
		n := min(1+row, b.Rows-row)
		s, err := parts.LossGrad(rowsOf(b, row, n), o, nil)
		if err != nil {
			t.Fatal(err)
		}
		loss, labels, row = loss+s.Loss, labels+s.Labels, row+n
	}
	if math.Abs(loss-want.Loss) > 1e-13*want.Loss || labels != want.Labels {
		t.Errorf("loss %.17g of %d labels, want %.17g of %d", loss, labels, want.Loss, want.Labels)
	}
	for i, p := range whole.Params() {
		near(t, p.Name, parts.Params()[i].Grad, p.Grad, tolerance{abs: 1e-13})
	}
}

// rowsOf is part of a batch.
func rowsOf(b Batch, row, n int) Batch {
	b.Tokens, b.LabelMask = b.Tokens[row*b.Seq:(row+n)*b.Seq], b.LabelMask[row*b.Seq:(row+n)*b.Seq]
	b.InstanceMask, b.DocLens = b.InstanceMask[row:row+n], b.DocLens[row:row+n]
	b.Rows = n
	return b
}

// Reading tokens one by one, or in pieces, gives the logits of reading them all:
// each token sees the same keys. Sums differ in order, so the bound is rounding.
// Fresh gradients are those that cleared ones would have become, whatever was there.
func TestFreshSetsGradients(t *testing.T) {
	for name, c := range variants() {
		t.Run(name, func(t *testing.T) {
			m := newTest[float32](t, c, 2)
			b := randomBatch(7, 3, 9, c.VocabSize)
			var want, got []float32
			for _, fresh := range []bool{false, true} {
				for _, p := range m.Params() {
					clear(p.Grad)
					if fresh {
						p.Grad[0], p.Grad[len(p.Grad)-1] = float32(math.NaN()), 5
					}
				}
				if _, err := m.LossGrad(b, LossOptions{Fresh: fresh}, nil); err != nil {
					t.Fatal(err)
				}
				for _, p := range m.Params() {
					if fresh {
						got = append(got, p.Grad...)
					} else {
						want = append(want, p.Grad...)
					}
				}
			}
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("gradient element %d is %g, want %g", i, got[i], want[i])
				}
			}
		})
	}
}

func TestDecoderAgreesWithLogits(t *testing.T) {
	for name, c := range variants() {
		t.Run(name, func(t *testing.T) {
			m := newTest[float64](t, c, 2)
			const seq = 2*decodeChunk + 20
			b := randomBatch(4, 1, seq, c.VocabSize)
			b.DocLens = nil
			want := make([]float64, seq*c.VocabSize)
			if err := m.Logits(b, want); err != nil {
				t.Fatal(err)
			}
			d, err := m.NewDecoder(seq)
			if err != nil {
				t.Fatal(err)
			}
			got := make([]float64, c.VocabSize)
			for _, pieces := range [][]int{{seq}, {1, 2, decodeChunk + 5, 1, 1, 30}, {seq - 3, 1, 1, 1}} {
				d.Reset()
				for _, n := range pieces {
					if err := d.Append(b.Tokens[d.Len():d.Len()+n], got); err != nil {
						t.Fatal(err)
					}
					at := (d.Len() - 1) * c.VocabSize
					near(t, "logits", got, want[at:at+c.VocabSize], tolerance{abs: 1e-13})
				}
			}
			checkDecoderFaults(t, d, got)
		})
	}
}

func checkDecoderFaults(t *testing.T, d *Decoder[float64], logits []float64) {
	t.Helper()
	d.Reset()
	for want, err := range map[string]error{
		"no tokens":        d.Append(nil, logits),
		"room for 1":       d.Append([]int32{1}, logits[:1]),
		"do not fit":       d.Append(make([]int32, d.Room()+1), logits),
		"token 41 at":      d.Append([]int32{1, 41}, logits),
		"token -1 at posi": d.Append([]int32{-1}, logits),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if d.Len() != 0 {
		t.Error("a refused call moved the decoder")
	}
}

func TestDecoderAllocatesNothing(t *testing.T) {
	m := newTest[float32](t, tiny(OLMo3), 2)
	d, err := m.NewDecoder(1000)
	if err != nil {
		t.Fatal(err)
	}
	logits, token := make([]float32, 41), []int32{7}
	step := func() {
		if err := d.Append(token, logits); err != nil {
			t.Fatal(err)
		}
	}
	for d.Len() < d.Room() { // scratch grows with the keys
		step()
	}
	d.Reset()
	if n := testing.AllocsPerRun(200, step); n != 0 {
		t.Errorf("%g allocations a token", n)
	}
}
