package model

import (
	"runtime"
	"testing"
)

// What WorkBytes counts is what a first step allocates; matrix products add
// packing buffers and slices round up to size classes.
func TestWorkBytesIsWhatAStepAllocates(t *testing.T) {
	for name, c := range variants() {
		c.DModel, c.HiddenSize, c.VocabSize = 64, 200, 300
		if name == "olmo3" {
			c.SlidingWindow = []int{3, 30, FullAttention}
		}
		const rows, seq = 3, 400
		var before, after runtime.MemStats
		m := newTest[float32](t, c, 1)
		workers := int64(4 * (2*queryBlock*keyBlock + 3*queryBlock)) // made by New
		runtime.ReadMemStats(&before)
		if _, err := m.LossGrad(randomBatch(1, rows, seq, c.VocabSize), LossOptions{}, nil); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		got, want := int64(after.TotalAlloc-before.TotalAlloc), WorkBytes[float32](c, rows, seq, 1)-workers
		if got < want || got > want+want/10+1<<20 {
			t.Errorf("%s: a step allocated %d bytes, WorkBytes says %d", name, got, want)
		}
	}
}

// Twice the sequence needs twice the memory, not four times.
func TestWorkGrowsLinearly(t *testing.T) {
	c := tiny(OLMo2)
	c.VocabSize = 1 << 14 // logits are bounded
	a, b := WorkBytes[float32](c, 1, 4096, 1), WorkBytes[float32](c, 1, 8192, 1)
	if b > 2*a {
		t.Errorf("%d bytes at 4096, %d at 8192", a, b)
	}
	if d := WorkBytes[float64](c, 1, 4096, 1); d < 3*a/2 {
		t.Errorf("%d bytes in float64, %d in float32", d, a)
	}
}

func TestLogitRows(t *testing.T) {
	for _, c := range []struct{ tokens, vocab, want int }{
		{1024, 4096, 1024}, {4096, 4096, 1024}, {100, 4096, 100}, {4096, 100352, 256}, {1 << 20, 37, 1 << 22 / 37 / 64 * 64},
	} {
		if got := logitRows(c.tokens, c.vocab); got != c.want {
			t.Errorf("%d tokens, %d words: %d rows, want %d", c.tokens, c.vocab, got, c.want)
		}
	}
}

// What LossBytes counts is what a first evaluation allocates.
func TestLossBytesIsWhatALossAllocates(t *testing.T) {
	for name, c := range variants() {
		c.DModel, c.HiddenSize, c.VocabSize = 64, 200, 300
		const rows, seq = 3, 400
		m := newTest[float32](t, c, 1)
		if _, err := m.LossGrad(randomBatch(1, 1, seq, c.VocabSize), LossOptions{}, nil); err != nil {
			t.Fatal(err) // the workers' scratch is shared with training
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := m.Loss(randomBatch(2, rows, seq, c.VocabSize), LossOptions{}); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		got, want := int64(after.TotalAlloc-before.TotalAlloc), LossBytes[float32](c, rows, seq)
		if got < want || got > want+want/10+1<<20 {
			t.Errorf("%s: a loss allocated %d bytes, LossBytes says %d", name, got, want)
		}
	}
}
