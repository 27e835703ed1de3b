package gemm

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// peakRate measures the multiply-add ceiling of one thread in GFLOP/s: the
// fastest of a few short loops that touch no memory.
func peakRate[T Float](f *family[T]) float64 {
	best := 0.0
	for range 30 {
		start := time.Now()
		madds := f.peak(20000)
		best = max(best, 2*float64(madds)/time.Since(start).Seconds()/1e9)
	}
	return best
}

// report prints the rate and its share of the ceiling measured in the same run.
func report[T Float](b *testing.B, e *Engine, flops float64) {
	rate := flops * float64(b.N) / b.Elapsed().Seconds() / 1e9
	b.ReportMetric(rate, "GFLOP/s")
	b.ReportMetric(100*rate/(peakRate(kitOf[T](e).family)*float64(e.threads)), "%peak")
}

func randomSlice[T Float](n int) []T {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	x := make([]T, n)
	for i := range x {
		x[i] = T(2*r.Float64() - 1)
	}
	return x
}

// shape is one product of the benchmarks.
type shape struct {
	ta, tb  bool
	m, n, k int
}

func (s shape) String() string {
	order := map[bool]string{false: "N", true: "T"}
	return fmt.Sprintf("%s%s/m=%d/n=%d/k=%d", order[s.ta], order[s.tb], s.m, s.n, s.k)
}

func shapes() []shape {
	var list []shape
	for _, n := range []int{64, 128, 256, 512, 1024, 2048} {
		list = append(list, shape{false, false, n, n, n}, shape{false, true, n, n, n}, shape{true, false, n, n, n})
	}
	return append(list,
		shape{false, false, 512, 512, 2048}, shape{false, false, 256, 1024, 4096},
		shape{false, true, 1024, 688, 256}, shape{false, true, 1024, 256, 688},
		shape{false, true, 1024, 4096, 256}, shape{true, false, 688, 256, 1024})
}

func benchmarkGemm[T Float](b *testing.B, threads int) {
	for _, s := range shapes() {
		b.Run(fmt.Sprintf("%v/threads=%d", s, threads), func(b *testing.B) {
			e := engine(b, threads, Auto)
			x, y, z := randomSlice[T](s.m*s.k), randomSlice[T](s.k*s.n), make([]T, s.m*s.n)
			lda, ldb := s.k, s.n
			if s.ta {
				lda = s.m
			}
			if s.tb {
				ldb = s.k
			}
			b.ReportAllocs()
			for b.Loop() {
				gemm(e, s.ta, s.tb, s.m, s.n, s.k, 1, x, lda, y, ldb, 0, z, s.n)
			}
			report[T](b, e, 2*float64(s.m)*float64(s.n)*float64(s.k))
		})
	}
}

func BenchmarkSgemm(b *testing.B) {
	for _, threads := range []int{1, 2} {
		benchmarkGemm[float32](b, threads)
	}
}

func BenchmarkDgemm(b *testing.B) { benchmarkGemm[float64](b, 1) }

func BenchmarkSsyrk(b *testing.B) {
	for _, n := range []int{128, 256, 512, 1024, 2048} {
		for _, trans := range []bool{false, true} {
			b.Run(fmt.Sprintf("n=%d/trans=%v", n, trans), func(b *testing.B) {
				e := engine(b, 1, Auto)
				x, z := randomSlice[float32](n*n), make([]float32, n*n)
				for b.Loop() {
					e.Ssyrk(trans, n, n, 1, x, n, 0, z, n)
				}
				report[float32](b, e, float64(n)*float64(n+1)*float64(n))
			})
		}
	}
}

func BenchmarkSgemmBatch(b *testing.B) {
	for _, s := range []struct {
		count int
		shape
	}{{256, shape{false, false, 64, 64, 64}}, {32, shape{false, true, 256, 256, 32}}, {32, shape{false, false, 256, 32, 256}}} {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("count=%d/%v/threads=%d", s.count, s.shape, threads), func(b *testing.B) {
				e := engine(b, threads, Auto)
				bt := Batch{s.count, s.m * s.k, s.k * s.n, s.m * s.n}
				x, y, z := randomSlice[float32](bt.Count*bt.A), randomSlice[float32](bt.Count*bt.B), make([]float32, bt.Count*bt.C)
				ldb := s.n
				if s.tb {
					ldb = s.k
				}
				for b.Loop() {
					e.SgemmBatch(bt, s.ta, s.tb, s.m, s.n, s.k, 1, x, s.k, y, ldb, 0, z, s.n)
				}
				report[float32](b, e, 2*float64(s.count)*float64(s.m)*float64(s.n)*float64(s.k))
			})
		}
	}
}

func BenchmarkFactorizations(b *testing.B) {
	for _, n := range []int{256, 512, 1024} {
		e := engine(b, 1, Auto)
		spd := randomSlice[float32](n * n)
		for i := range n {
			spd[i*n+i] = float32(n)
		}
		work, rhs := make([]float32, n*n), randomSlice[float32](n*n)
		cube := float64(n) * float64(n) * float64(n)
		b.Run(fmt.Sprintf("potrf/n=%d", n), func(b *testing.B) {
			for b.Loop() {
				copy(work, spd)
				e.Spotrf(n, work, n)
			}
			report[float32](b, e, cube/3)
		})
		b.Run(fmt.Sprintf("trsm/n=%d", n), func(b *testing.B) {
			for b.Loop() {
				copy(work, rhs)
				e.Strsm(Triangle{Right: true, Trans: true}, n, n, 1, spd, n, work, n)
			}
			report[float32](b, e, cube)
		})
	}
}

func BenchmarkHandOff(b *testing.B) {
	e := engine(b, 2, Generic)
	t := nothing{}
	for b.Loop() {
		e.Run(2, t)
	}
}

type nothing struct{}

func (nothing) Do(int, int) {}

func BenchmarkPeak(b *testing.B) {
	f, _ := families(best())
	for b.Loop() {
		f.peak(1000)
	}
	b.ReportMetric(peakRate(f), "GFLOP/s")
}

// BenchmarkParts is the gradient of a weight from four parts, one after the other and
// as a tree of as many groups.
func BenchmarkParts(b *testing.B) {
	groups := []int{0, 1, 2, 3}
	for _, s := range []struct{ out, in, part int }{{768, 256, 256}, {1376, 256, 256}, {256, 688, 256}, {4096, 256, 256}, {2048, 2048, 512}} {
		for _, kind := range []string{"fold", "tree"} {
			b.Run(fmt.Sprintf("%s/%dx%d/threads=2", kind, s.out, s.in), func(b *testing.B) {
				e := engine(b, 2, Auto)
				n := 4 * s.part
				x, y, z := MatrixOf(n, s.out, randomSlice[float32](n*s.out)), MatrixOf(n, s.in, randomSlice[float32](n*s.in)), NewMatrix[float32](s.out, s.in)
				for b.Loop() {
					if kind == "tree" {
						MulTree(e, true, false, s.part, groups, 1, x, y, 0, z)
					} else {
						MulParts(e, true, false, s.part, 1, x, y, 0, z)
					}
				}
				report[float32](b, e, 2*float64(n)*float64(s.out)*float64(s.in))
			})
		}
	}
}
