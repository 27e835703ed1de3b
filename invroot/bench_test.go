package invroot

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/asteria-runtime/asteria/gemm"
)

// gram returns G*Gᵀ/n for a random G: the spectrum of a factor after many samples.
func gram[T gemm.Float](eng *gemm.Engine, n int) gemm.Matrix[T] {
	rng := rand.New(rand.NewPCG(11, uint64(n)))
	g, a := gemm.NewMatrix[T](n, n), gemm.NewMatrix[T](n, n)
	for i := range g.Data {
		g.Data[i] = T(rng.NormFloat64())
	}
	gemm.Mul(eng, false, true, 1/T(n), g, g, 0, a)
	return a
}

// each runs f for the orders and thread counts that benchmarks cover.
func each(b *testing.B, f func(b *testing.B, eng *gemm.Engine, n int)) {
	for _, n := range []int{64, 128, 256, 512, 1024, 2048} {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("n=%d/threads=%d", n, threads), func(b *testing.B) {
				eng := gemm.New(threads)
				defer eng.Close()
				f(b, eng, n)
			})
		}
	}
}

func BenchmarkEigenSym(b *testing.B) {
	b.Run("float32", func(b *testing.B) { each(b, benchEigen[float32]) })
	b.Run("float64", func(b *testing.B) { each(b, benchEigen[float64]) })
}

func benchEigen[T gemm.Float](b *testing.B, eng *gemm.Engine, n int) {
	a := gram[T](eng, n)
	s, err := NewSolver[T](eng, n, Options{Precision: Single})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	q, w := gemm.NewMatrix[T](n, n), make([]T, n)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.EigenSym(context.Background(), q, w, a, true); err != nil {
			b.Fatal(err)
		}
	}
	// 4/3 n³ to tridiagonal, 4/3 n³ in the merges, 2 n³ back.
	rate(b, eng, n, 14.0/3)
}

func BenchmarkInverseRoot(b *testing.B) {
	for _, m := range []Method{Eigen, CoupledNewton, HigherOrder} {
		b.Run("method="+m.String(), func(b *testing.B) {
			each(b, func(b *testing.B, eng *gemm.Engine, n int) {
				if m != Eigen && n > 512 {
					b.Skip("iterative methods cost ten times the default")
				}
				benchRoot(b, eng, n, Options{Method: m, Precision: Single, Ridge: Ridge{Value: 1e-4}})
			})
		})
	}
}

func benchRoot(b *testing.B, eng *gemm.Engine, n int, opts Options) {
	a := gram[float32](eng, n)
	s, err := NewSolver[float32](eng, n, opts)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	x := gemm.NewMatrix[float32](n, n)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.InverseRoot(context.Background(), x, a, 4); err != nil {
			b.Fatal(err)
		}
	}
	rate(b, eng, n, 14.0/3+1)
}

func BenchmarkQR(b *testing.B) {
	each(b, func(b *testing.B, eng *gemm.Engine, n int) {
		a := gram[float32](eng, n)
		s, err := NewSolver[float32](eng, n, Options{})
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		q := gemm.NewMatrix[float32](n, n)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.QR(context.Background(), q, a); err != nil {
				b.Fatal(err)
			}
		}
		rate(b, eng, n, 8.0/3)
	})
}

func BenchmarkRefreshBasis(b *testing.B) {
	each(b, func(b *testing.B, eng *gemm.Engine, n int) {
		a := gram[float32](eng, n)
		s, err := NewSolver[float32](eng, n, Options{})
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		q, perm := gemm.NewMatrix[float32](n, n), make([]int, n)
		setIdentity(q)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.RefreshBasis(context.Background(), q, a, perm); err != nil {
				b.Fatal(err)
			}
		}
		rate(b, eng, n, 2+8.0/3)
	})
}

// rate reports GFLOP/s for cubes*n³ operations, and the share of the GEMM rate
// at the same order.
func rate(b *testing.B, eng *gemm.Engine, n int, cubes float64) {
	work := cubes * float64(n) * float64(n) * float64(n)
	got := work * float64(b.N) / b.Elapsed().Seconds() / 1e9
	b.ReportMetric(got, "GFLOP/s")
	b.ReportMetric(100*got/gemmRate(eng, n), "%gemm")
}

// gemmRate measures the best GFLOP/s of a product of order n over a few tries.
func gemmRate(eng *gemm.Engine, n int) float64 {
	x, y := gram[float32](eng, n), gemm.NewMatrix[float32](n, n)
	best := math.Inf(1)
	for range 5 {
		start := time.Now()
		gemm.Mul(eng, false, false, 1, x, x, 0, y)
		best = min(best, time.Since(start).Seconds())
	}
	return 2 * float64(n) * float64(n) * float64(n) / best / 1e9
}
