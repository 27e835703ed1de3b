package model

import (
	"fmt"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
)

// benchConfig is the model of the step benchmark: 5.26M parameters.
func benchConfig() Config {
	return Config{DModel: 256, NLayers: 4, NHeads: 8, HiddenSize: 688, VocabSize: 4096}
}

// benchBatch has rows of seq tokens that repeat little.
func benchBatch(rows, seq, vocab int) Batch {
	b := Batch{Rows: rows, Seq: seq, Tokens: make([]int32, rows*seq)}
	for i := range b.Tokens {
		b.Tokens[i] = int32(i * 7919 % vocab)
	}
	return b
}

func benchModel[T gemm.Float](b testing.TB, c Config, threads int) *Model[T] {
	eng := gemm.New(threads)
	m, err := New[T](c, eng)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { m.Close(); eng.Close() })
	m.Init(1)
	return m
}

// BenchmarkLossGrad is forward and backward of 4 rows of 256 tokens, all in one group
// or one a group. GFLOP/s counts 6 operations for each parameter and token.
func BenchmarkLossGrad(b *testing.B) {
	for _, threads := range []int{1, 2} {
		for _, groups := range []int{1, 4} {
			b.Run(fmt.Sprintf("threads=%d/groups=%d", threads, groups), func(b *testing.B) {
				m, batch := benchModel[float32](b, benchConfig(), threads), benchBatch(4, 256, 4096)
				o := LossOptions{ZLoss: 1e-5, Fresh: true, Share: Share{Groups: groups, Rows: 4, Last: 4}}
				if _, err := m.LossGrad(batch, o, nil); err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				for b.Loop() {
					m.LossGrad(batch, o, nil)
				}
				_, n := m.Config().ParamCount()
				b.ReportMetric(6*float64(n)*1024*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}

// BenchmarkDecode is one token after 100 to 255 others; now and then it reads the
// first 100 again.
func BenchmarkDecode(b *testing.B) {
	m := benchModel[float32](b, benchConfig(), 1)
	d, err := m.NewDecoder(256)
	if err != nil {
		b.Fatal(err)
	}
	logits, prompt := make([]float32, 4096), benchBatch(1, 100, 4096).Tokens
	b.ReportAllocs()
	for b.Loop() {
		if d.Len()+1 > d.Room() || d.Len() == 0 {
			d.Reset()
			if err := d.Append(prompt, logits); err != nil {
				b.Fatal(err)
			}
		}
		if err := d.Append(prompt[:1], logits); err != nil {
			b.Fatal(err)
		}
	}
}
