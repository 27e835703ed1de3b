package model

import (
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
)

// naive is attention by its definition for one head, with its gradients: the
// whole matrix of probabilities, no tiles.
func naive(h *head[float64], do gemm.Matrix[float64]) (o, dq, dk, dv gemm.Matrix[float64], lse []float64) {
	n, keys, hd := h.q.Rows, h.k.Rows, h.q.Cols
	p, ds := gemm.NewMatrix[float64](n, keys), gemm.NewMatrix[float64](n, keys)
	lse = make([]float64, n)
	for i := range n {
		pos, total := h.first+i, 0.0
		for j := int(h.lo[pos]); j <= pos; j++ {
			s := 0.0
			for x := range hd {
				s += h.q.At(i, x) * h.k.At(j, x)
			}
			p.Set(i, j, math.Exp(h.scale*s))
			total += p.At(i, j)
		}
		lse[i] = math.Log(total)
		for j := range keys {
			p.Set(i, j, p.At(i, j)/total)
		}
	}
	eng := gemm.New(1)
	o, dq, dk, dv = gemm.NewMatrix[float64](n, hd), gemm.NewMatrix[float64](n, hd), gemm.NewMatrix[float64](keys, hd), gemm.NewMatrix[float64](keys, hd)
	gemm.Mul(eng, false, false, 1, p, h.v, 0, o)
	gemm.Mul(eng, false, true, 1, do, h.v, 0, ds)
	for i := range n {
		dot := 0.0
		for x := range hd {
			dot += do.At(i, x) * o.At(i, x)
		}
		for j := range keys {
			ds.Set(i, j, h.scale*p.At(i, j)*(ds.At(i, j)-dot))
		}
	}
	gemm.Mul(eng, true, false, 1, p, do, 0, dv)
	gemm.Mul(eng, false, false, 1, ds, h.k, 0, dq)
	gemm.Mul(eng, true, false, 1, ds, h.q, 0, dk)
	return o, dq, dk, dv, lse
}

// Tiles of any size give the definition's result, for windows, documents and a
// first position. Values are of order one and sums have at most 150 terms.
func TestAttentionTilesAgainstDefinition(t *testing.T) {
	const seed = 21
	rng := rand.New(rand.NewPCG(seed, 0))
	random := func(rows, cols int) gemm.Matrix[float64] {
		m := gemm.NewMatrix[float64](rows, cols)
		for i := range m.Data {
			m.Data[i] = 3 * rng.NormFloat64()
		}
		return m
	}
	for trial := range 60 {
		n, first, hd := 1+rng.IntN(150), rng.IntN(2)*rng.IntN(100), 2*(1+rng.IntN(6))
		window := FullAttention
		if rng.IntN(2) == 0 {
			window = 1 + rng.IntN(40)
		}
		b := randomBatch(uint64(trial), 1, first+n, 3)
		starts, lo := make([]int32, first+n), make([]int32, first+n)
		b.docStarts(starts)
		visibleFrom(lo, starts, first+n, window)
		h := head[float64]{
			q: random(n, hd), k: random(first+n, hd), v: random(first+n, hd), o: gemm.NewMatrix[float64](n, hd),
			lse: make([]float64, n), lo: lo, first: first, scale: 1 / math.Sqrt(float64(hd)),
		}
		do := random(n, hd)
		o, dq, dk, dv, lse := naive(&h, do)
		a := newAttention[float64](gemm.New(1), 1+rng.IntN(70), 1+rng.IntN(70))
		a.reserve(first+n, hd)
		g := headGrad[float64]{do: do, dq: gemm.NewMatrix[float64](n, hd), dk: gemm.NewMatrix[float64](first+n, hd), dv: gemm.NewMatrix[float64](first+n, hd)}
		a.forward(&h)
		a.backward(&h, &g)
		for what, x := range map[string][2][]float64{
			"o": {h.o.Data, o.Data}, "lse": {h.lse, lse}, "dq": {g.dq.Data, dq.Data}, "dk": {g.dk.Data, dk.Data}, "dv": {g.dv.Data, dv.Data},
		} {
			near(t, what, x[0], x[1], tolerance{abs: 1e-11, rel: 1e-11})
		}
		if t.Failed() {
			t.Fatalf("seed %d trial %d: %d queries from %d, window %d, tiles %d×%d", seed, trial, n, first, window, a.queries, a.keys)
		}
	}
}

// A worker that has never had a head allocates nothing for its first one. The counter
// is the process's, and the collector may allocate meanwhile: what the worker itself
// allocates, it allocates for each new worker.
func TestAttentionAllocatesNothingAfterReserve(t *testing.T) {
	for _, c := range [][2]int{{1, 1}, {63, 63}, {64, 64}, {200, 200}, {700, 700}, {1300, 1300}, {704, 699}, {704, 40}, {705, 640}} {
		room, n := c[0], c[1]
		least := firstHeadAllocates(room, n)
		for range 4 {
			least = min(least, firstHeadAllocates(room, n))
		}
		if least != 0 {
			t.Errorf("%d of %d positions: %d allocations", n, room, least)
		}
	}
}

// firstHeadAllocates counts what is allocated while a new worker with room for so many
// positions has its first head, of n.
func firstHeadAllocates(room, n int) uint64 {
	const hd = 32
	a := newAttention[float32](gemm.New(1), queryBlock, keyBlock)
	a.reserve(room, hd)
	m := func() gemm.Matrix[float32] { return gemm.NewMatrix[float32](n, hd) }
	h := head[float32]{q: m(), k: m(), v: m(), o: m(), lse: make([]float32, n), lo: make([]int32, n), scale: 1}
	g := headGrad[float32]{do: m(), dq: m(), dk: m(), dv: m()}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	a.forward(&h)
	a.backward(&h, &g)
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs
}

// logitsOf runs a model on a batch.
func logitsOf(t *testing.T, m *Model[float64], b Batch) []float64 {
	t.Helper()
	x := make([]float64, len(b.Tokens)*m.cfg.VocabSize)
	if err := m.Logits(b, x); err != nil {
		t.Fatal(err)
	}
	return x
}

// changed lists the positions of a row whose logits differ after token t changed.
func changed(t *testing.T, m *Model[float64], b Batch, at int) map[int]bool {
	t.Helper()
	before := logitsOf(t, m, b)
	c := b
	c.Tokens = append([]int32(nil), b.Tokens...)
	c.Tokens[at] = (c.Tokens[at] + 1) % int32(m.cfg.VocabSize)
	after, out := logitsOf(t, m, c), map[int]bool{}
	for i := range before {
		if before[i] != after[i] {
			out[i/m.cfg.VocabSize] = true
		}
	}
	return out
}

// A token changes its own and later positions of its row and document, and as
// far as windows reach, no others, bit for bit.
func TestWhoSeesWhom(t *testing.T) {
	const seq = 40
	one := tiny(OLMo2)
	one.NLayers = 1
	window := one
	window.SlidingWindow, window.SlidingLastLayer = []int{5}, true
	two := window
	two.NLayers = 2
	docs := [][]int32{{10, 0, 25}, {7}}
	for name, c := range map[string]struct {
		cfg   Config
		docs  [][]int32
		reach int // positions after the changed one, itself included
	}{
		"causal": {one, nil, seq}, "window": {window, nil, 5}, "two windows": {two, nil, 9}, "documents": {one, docs, seq}, "documents and windows": {two, docs, 9},
	} {
		t.Run(name, func(t *testing.T) {
			m := newTest[float64](t, c.cfg, 1)
			b := randomBatch(8, 2, seq, 41)
			b.DocLens = c.docs
			for _, at := range []int{0, 9, 10, 12, 34, 35, 39, 40, 46, 47, 79} {
				got := changed(t, m, b, at)
				for pos := range 2 * seq {
					want := pos >= at && pos < at+c.reach && pos/seq == at/seq && (c.docs == nil || docOf(c.docs, at, seq) == docOf(c.docs, pos, seq))
					if got[pos] != want {
						t.Errorf("token %d changes position %d: %v", at, pos, got[pos])
					}
				}
			}
		})
	}
}

// docOf numbers the document of a position.
func docOf(docs [][]int32, pos, seq int) int {
	row, at := pos/seq, 0
	for i, n := range docs[row] {
		if at += int(n); pos%seq < at {
			return row*100 + i
		}
	}
	return row*100 + 99
}

// Under a document mask each document has the logits it has alone: rotary
// positions are relative. Rounding of the angles is all that differs.
func TestDocumentsAreIndependent(t *testing.T) {
	m := newTest[float64](t, tiny(OLMo3), 1)
	b := randomBatch(8, 1, 60, 41)
	b.DocLens = [][]int32{{13, 1, 30}}
	all := logitsOf(t, m, b)
	at := 0
	for _, n := range []int{13, 1, 30, 16} {
		alone := logitsOf(t, m, Batch{Rows: 1, Seq: n, Tokens: b.Tokens[at : at+n]})
		near(t, "document", all[at*41:(at+n)*41], alone, tolerance{abs: 1e-12})
		at += n
	}
}

// A masked target changes neither the others' losses nor anything's logits, and a
// batch without targets has no loss and no gradient.
func TestLabelMasks(t *testing.T) {
	m := newTest[float64](t, tiny(OLMo2), 1)
	b := randomBatch(8, 2, 12, 41)
	b.LabelMask, b.InstanceMask, b.DocLens = nil, nil, nil
	o := LossOptions{ZLoss: 0.1, Divisor: 1}
	all, _ := m.Loss(b, o)
	rows := append([]float64(nil), all.RowCE...)
	b.InstanceMask = []bool{true, false}
	half, _ := m.Loss(b, o)
	if half.RowCE[0] != rows[0] || half.RowCE[1] != 0 || half.CE != rows[0] || half.Labels != 11 || half.RowLabels[1] != 0 {
		t.Errorf("with one row masked: %+v, all rows %v", half, rows)
	}
	if d := b.Divisor(false); d != 11+12 {
		t.Errorf("divisor %g", d)
	}
	b.InstanceMask = nil
	b.LabelMask = make([]bool, 24)
	b.LabelMask[0], b.LabelMask[5] = true, true // token 0 is no target
	one, _ := m.Loss(b, o)
	if one.Labels != 1 || one.CE <= 0 {
		t.Errorf("one target: %+v", one)
	}
	b.LabelMask[5] = false
	m.ZeroGrad()
	none, err := m.LossGrad(b, LossOptions{ZLoss: 1}, nil)
	if err != nil || none.Loss != 0 || none.Divisor != 0 || none.CE != 0 || none.Z != 0 {
		t.Errorf("no targets: %+v, %v", none, err)
	}
	for _, p := range m.Params() {
		for _, g := range p.Grad {
			if g != 0 {
				t.Fatalf("no targets, but %s has gradient %g", p.Name, g)
			}
		}
	}
}

func TestBatchFaults(t *testing.T) {
	good := func() Batch {
		return Batch{Rows: 2, Seq: 3, Tokens: []int32{1, 2, 3, 4, 5, 6}, LabelMask: make([]bool, 6), InstanceMask: make([]bool, 2), DocLens: [][]int32{{3}, {1, 2}}}
	}
	m := newTest[float32](t, tiny(OLMo2), 1)
	for want, change := range map[string]func(*Batch){
		"2 rows of 3 has 5 tokens": func(b *Batch) { b.Tokens = b.Tokens[:5] },
		"0 rows":                   func(b *Batch) { b.Rows = 0 },
		"label mask has 5":         func(b *Batch) { b.LabelMask = b.LabelMask[:5] },
		"instance mask has 3":      func(b *Batch) { b.InstanceMask = make([]bool, 3) },
		"for 1 rows, want 2":       func(b *Batch) { b.DocLens = b.DocLens[:1] },
		"row 1 have 4 tokens":      func(b *Batch) { b.DocLens[1][0] = 2 },
		"row 0 has a document":     func(b *Batch) { b.DocLens[0][0] = -1 },
		"token 41 at position 4":   func(b *Batch) { b.Tokens[4] = 41 },
		"token -7 at position 0":   func(b *Batch) { b.Tokens[0] = -7 },
	} {
		b := good()
		change(&b)
		_, err := m.LossGrad(b, LossOptions{}, nil)
		_, err2 := m.Loss(b, LossOptions{})
		for _, e := range []error{err, err2} {
			if e == nil || !strings.Contains(e.Error(), want) {
				t.Errorf("got %v, want %q", e, want)
			}
		}
	}
	if err := m.Logits(good(), make([]float32, 3)); err == nil {
		t.Error("short logits were accepted")
	}
	if _, err := m.LossGrad(good(), LossOptions{}, nil); err != nil {
		t.Error(err)
	}
}

// A NaN weight becomes a NaN loss: bad numbers are not hidden.
func TestNaNIsSeen(t *testing.T) {
	for name := range variants() {
		m := newTest[float32](t, variants()[name], 1)
		m.blocks[1].qkv.value.Data[3] = float32(math.NaN())
		s, err := m.LossGrad(randomBatch(1, 2, 9, 41), LossOptions{}, nil)
		if err != nil || s.Loss == s.Loss {
			t.Errorf("%s: loss %g, %v", name, s.Loss, err)
		}
	}
}
