package invroot

import (
	"context"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
)

// hardTridiagonal draws a tridiagonal matrix of a kind that breaks eigensolvers:
// equal diagonals, couplings over twenty decades, glued Wilkinson blocks, splits.
func hardTridiagonal(rng *rand.Rand, n int) (d, e []float64) {
	d, e = make([]float64, n), make([]float64, max(n-1, 0))
	kind := rng.IntN(5)
	for i := range d {
		switch kind {
		case 0:
			d[i] = float64(rng.IntN(3))
		case 1:
			d[i] = math.Abs(float64(i%21) - 10) // Wilkinson blocks W21+, glued below
		case 2:
			d[i] = math.Pow(10, -12*rng.Float64())
		case 3:
			d[i] = 2
		case 4:
			d[i] = rng.NormFloat64()
		}
	}
	for i := range e {
		switch {
		case kind == 1 && i%21 == 20:
			e[i] = 1e-8
		case kind == 1:
			e[i] = 1
		case kind == 3:
			e[i] = -1
		default:
			e[i] = math.Pow(10, -20*rng.Float64()) * (1 - 2*float64(rng.IntN(2)))
		}
		if rng.IntN(50) == 0 {
			e[i] = 0
		}
	}
	return d, e
}

func TestDivideAndConquerOnHardTridiagonals(t *testing.T) {
	rounds := 40
	if os.Getenv("ASTERIA_LONG") != "" {
		rounds = 2000
	}
	for seed := range rounds {
		n := 1 + (seed*37)%230
		t.Run("", func(t *testing.T) {
			divideAndConquer[float32](t, uint64(seed), n)
			divideAndConquer[float64](t, uint64(seed), n)
		})
	}
}

func divideAndConquer[T gemm.Float](t *testing.T, seed uint64, n int) {
	t.Helper()
	eng := gemm.New(1)
	defer eng.Close()
	d, e := hardTridiagonal(rand.New(rand.NewPCG(seed, 51)), n)
	c := newCore[T](eng, n)
	defer c.close()
	w := append([]float64(nil), d...)
	if err := c.div.solve(context.Background(), w, append([]float64(nil), e...)); err != nil {
		t.Fatalf("seed=%d n=%d: %v", seed, n, err)
	}
	z := corner(c.z, n, n)
	norm := 0.0
	for _, v := range w {
		norm = max(norm, math.Abs(v))
	}
	tol := 20 * math.Sqrt(float64(n)+8) * unit[T]()
	if o := orthogonality(transposed(z)); !(o <= tol) {
		t.Errorf("seed=%d n=%d: rows are orthonormal to %.1e, want %.1e", seed, n, o, tol)
	}
	for i := range n {
		row := z.Row(i)
		for j := range n {
			r := (d[j] - w[i]) * float64(row[j])
			if j > 0 {
				r += e[j-1] * float64(row[j-1])
			}
			if j < n-1 {
				r += e[j] * float64(row[j+1])
			}
			if !(math.Abs(r) <= tol*max(norm, 1)) {
				t.Fatalf("seed=%d n=%d: pair %d has residual %.1e, norm %.1e", seed, n, i, r, norm)
			}
		}
		if i > 0 && w[i] < w[i-1] {
			t.Fatalf("seed=%d n=%d: eigenvalues %d out of order", seed, n, i)
		}
	}
}

// Sturm counts are an independent check of the eigenvalues.
func TestEigenvaluesAgreeWithSturmCounts(t *testing.T) {
	for seed := range uint64(20) {
		n := 5 + int(seed)*9
		d, e := hardTridiagonal(rand.New(rand.NewPCG(seed, 52)), n)
		eng := gemm.New(1)
		c := newCore[float64](eng, n)
		w := append([]float64(nil), d...)
		if err := c.div.solve(context.Background(), w, append([]float64(nil), e...)); err != nil {
			t.Fatal(err)
		}
		copy(c.tri.d, d)
		copy(c.tri.e, e)
		norm := max(math.Abs(w[0]), math.Abs(w[n-1]), 1)
		for i, v := range w {
			slack := 40 * float64(n) * 0x1p-53 * norm
			if lo, hi := c.tri.below(n, v-slack), c.tri.below(n, v+slack); lo > i || hi < i+1 {
				t.Fatalf("seed=%d n=%d: eigenvalue %d is %v, but %d lie below it and %d at most", seed, n, i, v, lo, hi)
			}
		}
		lo, hi := c.tri.extremes(n, 52)
		if math.Abs(lo-w[0]) > 1e-13*norm || math.Abs(hi-w[n-1]) > 1e-13*norm {
			t.Errorf("seed=%d: extremes %v, %v, want %v, %v", seed, lo, hi, w[0], w[n-1])
		}
		c.close()
		eng.Close()
	}
}
