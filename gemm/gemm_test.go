package gemm

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

func naive[T Float](ta, tb, lower bool, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int) {
	for i := range m {
		for j := range n {
			if lower && j > i {
				break
			}
			var s float64
			for l := range k {
				x, y := i*lda+l, l*ldb+j
				if ta {
					x = l*lda + i
				}
				if tb {
					y = j*ldb + l
				}
				s += float64(a[x]) * float64(b[y])
			}
			s *= float64(alpha)
			if beta != 0 {
				s += float64(beta) * float64(c[i*ldc+j])
			}
			c[i*ldc+j] = T(s)
		}
	}
}

func randSlice[T Float](r *rand.Rand, n int) []T {
	x := make([]T, n)
	for i := range x {
		x[i] = T(2*r.Float64() - 1)
	}
	return x
}

func TestQuick(t *testing.T) {
	for _, k := range []Kernel{Generic, AVX2, AVX512} {
		e, err := NewWith(Options{Threads: 2, Kernel: k})
		if errors.Is(err, errors.ErrUnsupported) {
			continue
		}
		t.Run(k.String(), func(t *testing.T) { quick(t, e) })
		e.Close()
	}
}

func quick(t *testing.T, e *Engine) {
	r := rand.New(rand.NewPCG(1, 2))
	for it := range 400 {
		m, n, k := 1+r.IntN(90), 1+r.IntN(90), 1+r.IntN(300)
		ta, tb := it&1 > 0, it&2 > 0
		lda, ldb, ldc := k, n, n+3
		if ta {
			lda = m
		}
		if tb {
			ldb = k
		}
		la, lb := m*k, k*n
		a, b, c := randSlice[float32](r, la), randSlice[float32](r, lb), randSlice[float32](r, m*ldc)
		w := append([]float32(nil), c...)
		e.Sgemm(ta, tb, m, n, k, 1.5, a, lda, b, ldb, 0.5, c, ldc)
		naive(ta, tb, false, m, n, k, 1.5, a, lda, b, ldb, 0.5, w, ldc)
		for i := range c {
			if math.Abs(float64(c[i]-w[i])) > 1e-5*float64(k) {
				t.Fatal(it, m, n, k, i, c[i], w[i])
			}
		}
		if !tb {
			m = n
		}
		ldc = n + 2
		c = randSlice[float32](r, n*ldc)
		w = append([]float32(nil), c...)
		e.Ssyrk(!tb, n, k, 1.5, b, ldb, 0.5, c, ldc)
		naive(!tb, tb, true, n, n, k, 1.5, b, ldb, b, ldb, 0.5, w, ldc)
		for i := range c {
			if math.Abs(float64(c[i]-w[i])) > 1e-5*float64(k) {
				t.Fatal("syrk", it, n, k, i, c[i], w[i])
			}
		}
	}
}

func BenchmarkSgemm512(b *testing.B) {
	e := New(1)
	defer e.Close()
	n := 512
	x, y, c := make([]float32, n*n), make([]float32, n*n), make([]float32, n*n)
	for b.Loop() {
		e.Sgemm(false, false, n, n, n, 1, x, n, y, n, 0, c, n)
	}
	b.ReportMetric(2*float64(n*n*n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}
