package model

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
)

// rowsOfRank are those of a rank of a run, and rows of groups alike.
func rowsOfRank(n, rank, ranks int) (lo, hi int) { return n * rank / ranks, n * (rank + 1) / ranks }

// gradOfRank is what one rank computes of a batch, in micro-batches.
func gradOfRank[T gemm.Float](t *testing.T, m *Model[T], b Batch, groups, rank, ranks, micro int) []T {
	t.Helper()
	lo, hi := rowsOfRank(b.Rows, rank, ranks)
	o := LossOptions{ZLoss: 1e-3, Divisor: b.Divisor(false)}
	o.Share = Share{Groups: groups, Rows: b.Rows, First: lo, Last: hi}
	m.ReserveSums(SumsFor(m.cfg, o.Share, b.Seq, micro, ranks == 1))
	levels, heads := len(m.pending), len(m.pendingHead)
	if lo == hi {
		m.ZeroGrad()
	}
	o.Fresh = true
	for ; lo < hi; lo += micro {
		o.Share.At = lo
		if _, err := m.LossGrad(rowsOf(b, lo, min(micro, hi-lo)), o, nil); err != nil {
			t.Fatal(err)
		}
		o.Fresh = false
	}
	if len(m.pending) != levels || len(m.pendingHead) != heads {
		t.Errorf("%d and %d levels in use, %d and %d reserved", len(m.pending), len(m.pendingHead), levels, heads)
	}
	return slices.Concat(m.grads, m.lookup)
}

// gradOfRanks is the joined gradient of all ranks, whose number is a power of two.
func gradOfRanks[T gemm.Float](t *testing.T, c Config, b Batch, groups, ranks, micro int) []T {
	t.Helper()
	var sums [][]T
	m := newTest[T](t, c, 2)
	for rank := range ranks {
		sums = append(sums, gradOfRank(t, m, b, groups, rank, ranks, micro))
	}
	for len(sums) > 1 {
		for i := range len(sums) / 2 {
			for k, x := range sums[2*i+1] {
				sums[2*i][k] += x
			}
			sums[i] = sums[2*i]
		}
		sums = sums[:len(sums)/2]
	}
	copy(m.grads, sums[0])
	copy(m.lookup, sums[0][len(m.grads):])
	m.JoinGrads()
	return m.grads
}

func checkCuts[T gemm.Float](t *testing.T, c Config, rows, seq, groups int) {
	t.Helper()
	b := randomBatch(uint64(rows), rows, seq, c.VocabSize)
	want := gradOfRanks[T](t, c, b, groups, 1, rows)
	for _, ranks := range []int{1, 2, 4, 8} {
		for micro := 1; micro <= rows && ranks <= groups; micro++ {
			if seq > 90 && micro%3 != 1 { // these take long
				continue
			}
			if !slices.Equal(gradOfRanks[T](t, c, b, groups, ranks, micro), want) {
				t.Errorf("%d rows of %d in %d groups: %d ranks with micro-batches of %d rows have another gradient", rows, seq, groups, ranks, micro)
			}
		}
	}
}

// The gradient has the same bits on any number of ranks that divides the groups, and
// in micro-batches of any size, also when ranks and groups have no rows.
func TestGradientsOfRanksAndMicroBatches(t *testing.T) {
	for name, c := range variants() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, rows := range []int{1, 3, 4, 6, 7, 9} {
				checkCuts[float32](t, c, rows, 9, 4)
			}
			checkCuts[float64](t, c, 6, 70, 4)
			checkCuts[float32](t, c, 11, 3, 8)
			checkCuts[float32](t, c, 5, 7, 1)
		})
	}
}

// With a vocabulary so large that a chunk of logits is a part of a group, or of a
// sequence, and sequences of several slices of a product.
func TestGradientsOfChunks(t *testing.T) {
	c := tiny(OLMo2)
	c.NLayers, c.VocabSize = 1, 1<<14
	checkCuts[float32](t, c, 4, 520, 4)
	c.TieWordEmbeddings = true
	checkCuts[float32](t, c, 6, 100, 2)
}

// The places where sums wait are as few as the order allows.
func TestLevelsOfSums(t *testing.T) {
	for _, k := range []struct {
		rows, micro, groups, first, last int
		want                             int
	}{
		{4, 4, 4, 0, 4, 0}, {4, 2, 4, 0, 4, 0}, {4, 1, 4, 0, 4, 1}, {4, 2, 4, 0, 2, 0}, {4, 1, 4, 2, 4, 0}, {8, 1, 4, 0, 8, 2},
		{8, 1, 1, 0, 8, 0}, {8, 8, 1024, 0, 8, 0}, {9, 9, 4, 3, 6, 0},
	} {
		c := tiny(OLMo2)
		got := SumsFor(c, Share{Groups: k.groups, Rows: k.rows, First: k.first, Last: k.last}, 8, k.micro, true)
		if got != (Sums{Levels: k.want, HeadLevels: k.want}) {
			t.Errorf("%v: %+v", k, got)
		}
	}
}

// A plan's operations cover each row once and leave one level, whatever the sizes.
func TestPlansOfSums(t *testing.T) {
	const seed = 3
	r := rand.New(rand.NewPCG(seed, 1))
	for range 2000 {
		rows, groups, micro := 1+r.IntN(40), 1<<r.IntN(11), 1+r.IntN(12)
		lo, hi := rowsOfRank(rows, r.IntN(3), 3)
		s := Share{Groups: groups, Rows: rows, First: lo, Last: hi}
		var p sumPlan
		p.start(s, true)
		for at := lo; at < hi; at += micro {
			end := min(at+micro, hi)
			p.next(at, end, true)
			covered := 0
			for _, op := range p.ops {
				if op.first != covered || op.rows < 1 || op.level-op.merges < 0 {
					t.Fatalf("seed %d: %+v: operations %+v", seed, s, p.ops)
				}
				covered += op.rows
			}
			if covered != end-at {
				t.Fatalf("seed %d: %+v: operations %+v for rows %d to %d", seed, s, p.ops, at, end)
			}
		}
		if lo < hi && p.n != 1 {
			t.Fatalf("seed %d: %+v in micro-batches of %d: %d levels are left", seed, s, micro, p.n)
		}
	}
}

// The group of a row is the one whose rows hold it, and ranks hold whole groups.
func TestGroupsOfRows(t *testing.T) {
	for rows := range 41 {
		for _, groups := range []int{1, 2, 4, 8, 64} {
			s := Share{Groups: groups, Rows: rows, Last: rows}
			for g := range groups {
				lo, hi := rowsOfRank(rows, g, groups)
				for row := lo; row < hi; row++ {
					if s.group(row) != g || s.end(g) != hi {
						t.Fatalf("%d rows, %d groups: row %d is in group %d that ends before %d", rows, groups, row, s.group(row), s.end(g))
					}
				}
			}
		}
	}
}

// Sums of any share allocate nothing after the first step.
func TestPendingSumsAllocateNothing(t *testing.T) {
	for _, tied := range []bool{false, true} {
		c := tiny(OLMo2)
		c.TieWordEmbeddings = tied
		m, b := newTest[float32](t, c, 2), randomBatch(1, 6, 20, c.VocabSize)
		rows := make([]Batch, b.Rows)
		for i := range rows {
			rows[i] = rowsOf(b, i, 1)
		}
		s := Share{Groups: 4, Rows: 6, Last: 6}
		m.ReserveSums(SumsFor(c, s, b.Seq, 1, true))
		step := func() {
			for at, x := range rows {
				s.At = at
				if _, err := m.LossGrad(x, LossOptions{Fresh: at == 0, Share: s}, nil); err != nil {
					t.Fatal(err)
				}
			}
			m.JoinGrads()
		}
		step()
		if n := testing.AllocsPerRun(5, step); n != 0 {
			t.Errorf("tied %v: %g allocations in a step", tied, n)
		}
	}
}

// What Elements counts is what ReserveSums allocates.
func TestElementsOfSums(t *testing.T) {
	for _, tied := range []bool{false, true} {
		c := tiny(OLMo2)
		c.TieWordEmbeddings = tied
		m := newTest[float32](t, c, 1)
		s := Sums{Levels: 2, HeadLevels: 3, Apart: tied}
		m.ReserveSums(s)
		got := len(m.lookup)
		for _, x := range append(slices.Clone(m.pending), m.pendingHead...) {
			got += len(x)
		}
		padding := s.Levels * align * len(m.params)
		if want := int(s.Elements(c)); got < want || got > want+padding {
			t.Errorf("tied %v: %d elements, want %d", tied, got, want)
		}
	}
}
