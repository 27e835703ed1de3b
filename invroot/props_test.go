package invroot

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
)

// spectrumCase names a spectrum by a function of its order.
type spectrumCase struct {
	name string
	at   func(i, n int) float64
}

var spectra = []spectrumCase{
	{"random", func(i, n int) float64 { return 0.1 + math.Abs(math.Sin(float64(3*i+1))) }},
	{"graded", func(i, n int) float64 { return math.Pow(10, -6*float64(i)/float64(n)) }},
	{"steep", func(i, n int) float64 { return math.Pow(10, -12*float64(i)/float64(n)) }},
	{"equal", func(i, n int) float64 { return 2 }},
	{"mostly equal", func(i, n int) float64 { return 1 + float64(max(0, i-n*9/10)) }},
	{"zero", func(i, n int) float64 { return 0 }},
	{"rank one", func(i, n int) float64 { return float64(max(0, 1-i)) }},
	{"rank n-1", func(i, n int) float64 { return float64(min(i, 1)) }},
	{"two clusters", func(i, n int) float64 { return 1 + float64(i%2) + 1e-9*float64(i) }},
	{"indefinite", func(i, n int) float64 { return math.Sin(float64(2*i + 1)) }},
	{"negative", func(i, n int) float64 { return -1 - float64(i) }},
}

// spectrum returns an n×n matrix with the case's eigenvalues and Haar-like random vectors.
func (c spectrumCase) matrix(n int, seed uint64) gemm.Matrix[float64] {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	q := randomOrthogonal(rng, n)
	a := gemm.NewMatrix[float64](n, n)
	for i := range n {
		for j := range i + 1 {
			s := 0.0
			for k := range n {
				s += q.At(i, k) * c.at(k, n) * q.At(j, k)
			}
			a.Set(i, j, s)
			a.Set(j, i, s)
		}
	}
	return a
}

// randomOrthogonal is a product of two random reflections and a permutation's worth of
// rotations: dense, orthogonal to rounding, and independent of the code under test.
func randomOrthogonal(rng *rand.Rand, n int) gemm.Matrix[float64] {
	q := gemm.NewMatrix[float64](n, n)
	for i := range n {
		q.Set(i, (i*7+3)%max(n, 1), 1)
	}
	if n%7 == 0 {
		setIdentity(q)
	}
	for range 3 {
		v := make([]float64, n)
		s := 0.0
		for i := range v {
			v[i] = rng.NormFloat64()
			s += v[i] * v[i]
		}
		for i := range n {
			row := q.Row(i)
			d := 0.0
			for j, x := range row {
				d += x * v[j]
			}
			for j := range row {
				row[j] -= 2 * d / s * v[j]
			}
		}
	}
	return q
}

func cast[U, T gemm.Float](m gemm.Matrix[T], scale U) gemm.Matrix[U] {
	out := gemm.NewMatrix[U](m.Rows, m.Cols)
	convert(out, m, scale)
	return out
}

// mulT returns op(a)*op(b) in float64, the plain way.
func mulT[T gemm.Float](ta bool, a gemm.Matrix[T], tb bool, b gemm.Matrix[T]) gemm.Matrix[float64] {
	x, y := cast[float64](a, 1), cast[float64](b, 1)
	rows, cols := x.Rows, y.Cols
	if ta {
		rows = x.Cols
	}
	if tb {
		cols = y.Rows
	}
	c := gemm.NewMatrix[float64](rows, cols)
	if rows == 0 || cols == 0 {
		return c
	}
	e := gemm.New(1)
	defer e.Close()
	gemm.Mul(e, ta, tb, 1, x, y, 0, c)
	return c
}

// orthogonality returns max|QᵀQ-I|.
func orthogonality[T gemm.Float](q gemm.Matrix[T]) float64 {
	g := mulT(true, q, false, q)
	worst := 0.0
	for i := range g.Rows {
		for j, v := range g.Row(i) {
			if i == j {
				v--
			}
			if !(math.Abs(v) <= worst) {
				worst = math.Abs(v)
			}
		}
	}
	return worst
}

// decompositionError returns max|A*Q-Q*diag(w)|, relative to the largest |w|.
func decompositionError[T gemm.Float](a, q gemm.Matrix[T], w []T) float64 {
	aq := mulT(false, a, false, q)
	worst, norm := 0.0, 0.0
	for _, v := range w {
		norm = max(norm, math.Abs(float64(v)))
	}
	for i := range aq.Rows {
		for j, v := range aq.Row(i) {
			d := math.Abs(v - float64(q.At(i, j))*float64(w[j]))
			if !(d <= worst) {
				worst = d
			}
		}
	}
	if norm == 0 {
		return worst
	}
	return worst / norm
}

func testOrders() []int {
	orders := []int{0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 47, 64, 65, 97, 128, 161}
	if !testing.Short() {
		orders = append(orders, 200, 257, 300)
	}
	return orders
}

func TestEigenSymReconstructsTheMatrix(t *testing.T) {
	for _, c := range spectra {
		t.Run(c.name, func(t *testing.T) {
			for _, n := range testOrders() {
				for _, scale := range []float64{1, 1e30, 1e-30} {
					if scale != 1 && n > 65 {
						continue
					}
					a := c.matrix(n, 1)
					checkEigen[float64](t, c.name, cast(a, scale))
					checkEigen[float32](t, c.name, cast(a, float32(scale)))
				}
			}
		})
	}
}

func checkEigen[T gemm.Float](t *testing.T, name string, a gemm.Matrix[T]) {
	t.Helper()
	n := a.Rows
	s := newTestSolver[T](t, n, Options{})
	for _, descending := range []bool{false, true} {
		q, w := gemm.NewMatrix[T](n, n), make([]T, n)
		rep, err := s.EigenSym(context.Background(), q, w, a, descending)
		if err != nil {
			t.Fatalf("%s n=%d: %v", name, n, err)
		}
		if rep.Retries != 0 {
			t.Errorf("%s n=%d: %d retries", name, n, rep.Retries)
		}
		// LAPACK's test ratios allow 30*n*u; backward errors grow like √n in practice.
		tol := 20 * math.Sqrt(float64(n)+8) * unit[T]()
		if e := orthogonality(q); !(e <= tol) {
			t.Errorf("%s n=%d: |QᵀQ-I| = %.1e exceeds %.1e", name, n, e, tol)
		}
		if e := decompositionError(a, q, w); !(e <= tol) {
			t.Errorf("%s n=%d: |AQ-QΛ|/|A| = %.1e exceeds %.1e", name, n, e, tol)
		}
		for i := 1; i < n; i++ {
			if (w[i] > w[i-1]) == descending && w[i] != w[i-1] {
				t.Fatalf("%s n=%d descending=%v: eigenvalues %v, %v out of order", name, n, descending, w[i-1], w[i])
			}
		}
	}
}

func TestEigenSymOfStructuredMatrices(t *testing.T) {
	for _, n := range []int{2, 3, 16, 33, 64, 129} {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) {
			diag, ones, second := gemm.NewMatrix[float64](n, n), gemm.NewMatrix[float64](n, n), gemm.NewMatrix[float64](n, n)
			block, wilkinson := gemm.NewMatrix[float64](n, n), gemm.NewMatrix[float64](n, n)
			for i := range n {
				diag.Set(i, i, float64((i*5)%n)-1)
				second.Set(i, i, 2)
				wilkinson.Set(i, i, math.Abs(float64(n-1)/2-float64(i)))
				for j := range n {
					ones.Set(i, j, 1)
					if i/3 == j/3 {
						block.Set(i, j, 1)
					}
					if i-j == 1 || j-i == 1 {
						second.Set(i, j, -1)
						wilkinson.Set(i, j, 1)
					}
				}
			}
			for name, a := range map[string]gemm.Matrix[float64]{
				"diagonal": diag, "ones": ones, "second difference": second, "blocks": block, "wilkinson": wilkinson,
			} {
				checkEigen[float64](t, name, a)
				checkEigen[float32](t, name, cast(a, float32(1)))
			}
		})
	}
}
