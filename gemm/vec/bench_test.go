package vec

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// measure runs f over n elements that move bytes of memory each and reports
// ns/element and GB/s.
func measure(b *testing.B, n, bytes int, f func()) {
	b.ReportAllocs()
	for b.Loop() {
		f()
	}
	perElement := b.Elapsed().Seconds() / float64(b.N) / float64(n)
	b.ReportMetric(perElement*1e9, "ns/element")
	b.ReportMetric(float64(bytes)/perElement/1e9, "GB/s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkKernels works in L1 (4 Ki elements would leave it), in L2 and in memory.
func BenchmarkKernels(b *testing.B) {
	for _, n := range []int{1 << 10, 1 << 15, 1 << 22} {
		r := rand.New(rand.NewPCG(1, 1))
		s, _ := arena(r, 5, n, 0, false)
		x, y, z, w, o := s[0], s[1], s[2], s[3], s[4]
		run := func(name string, bytes int, f func()) {
			b.Run(fmt.Sprintf("%s/n=%d", name, n), func(b *testing.B) { measure(b, n, bytes, f) })
		}
		run("Add", 12, func() { Add(o, x, y) })
		run("Axpy", 12, func() { Axpy(0.5, x, y) })
		run("Dot", 8, func() { Dot(x, y) })
		run("SumSquares", 4, func() { SumSquares(x) })
		run("Max", 4, func() { Max(x) })
		run("Finite", 4, func() { Finite(x) })
		run("ExpSum", 8, func() { ExpSum(o, x, 3) })
		run("SwiGLU", 12, func() { SwiGLU(o, x, y) })
		run("SwiGLUGrad", 20, func() { SwiGLUGrad(o, w, x, y, z) })
		run("RMSNormAdd", 16, func() { RMSNormAdd(o, z, x, y, 1e-6) })
		run("RMSNormGrad", 24, func() { RMSNormGrad(o, w, x, y, z, 1) })
		run("LerpSquare", 12, func() { LerpSquare(o, x, 0.1) })
		Mul(w, x, x)
		run("AdamW", 28, func() { AdamW(o, x, z, w, 1, 0.9, 0.95, 1, 1e-9, 1, 1e-8) })
	}
}

// BenchmarkLevels compares the instruction sets on one kernel of each kind.
func BenchmarkLevels(b *testing.B) {
	const n = 1 << 12
	x, y, o := make([]float32, n), make([]float32, n), make([]float32, n)
	for l, top := portable, level(); l <= top; l++ {
		b.Run(l.String(), func(b *testing.B) {
			force(b, l)
			b.Run("Dot", func(b *testing.B) { measure(b, n, 8, func() { Dot(x, y) }) })
			b.Run("ExpSum", func(b *testing.B) { measure(b, n, 8, func() { ExpSum(o, x, 1) }) })
			b.Run("SwiGLU", func(b *testing.B) { measure(b, n, 12, func() { SwiGLU(o, x, y) }) })
		})
	}
}

// BenchmarkShort shows what a call costs beside its work.
func BenchmarkShort(b *testing.B) {
	x, y := make([]float32, 64), make([]float32, 64)
	for _, n := range []int{1, 16, 40} {
		b.Run(fmt.Sprintf("Add/n=%d", n), func(b *testing.B) {
			for b.Loop() {
				Add(x[:n], x[:n], y[:n])
			}
		})
		b.Run(fmt.Sprintf("ExpSum/n=%d", n), func(b *testing.B) {
			for b.Loop() {
				ExpSum(y[:n], x[:n], 1)
			}
		})
	}
}
