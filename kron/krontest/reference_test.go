package krontest

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
)

// symmetric returns a random symmetric matrix, positive definite when spd.
func symmetric(seed uint64, n int, spd bool) gemm.Matrix[float64] {
	rng := rand.New(rand.NewPCG(seed, 0))
	m := gemm.NewMatrix[float64](n, n)
	for i := range n {
		for j := range i + 1 {
			v := rng.NormFloat64()
			m.Set(i, j, v)
			m.Set(j, i, v)
		}
	}
	if !spd {
		return m
	}
	wide := widen(m)
	square := multiply(wide, wide)
	out := gemm.NewMatrix[float64](n, n)
	for i := range n {
		square[i][i] += 0.1
		copy(out.Row(i), square[i])
	}
	return out
}

// near fails unless a and b agree within 100*n*ε*scale, the bound for a handful
// of backward stable steps.
func near(t *testing.T, what string, a, b [][]float64, scale float64) {
	t.Helper()
	limit := 100 * float64(len(a)) * 0x1p-52 * scale
	for i := range a {
		for j := range a[i] {
			if d := math.Abs(a[i][j] - b[i][j]); !(d <= limit) {
				t.Fatalf("%s: (%d,%d) differs by %g, limit %g", what, i, j, d, limit)
			}
		}
	}
}

func TestReferenceDecomposes(t *testing.T) {
	for n := 1; n < 12; n++ {
		a := symmetric(uint64(n), n, false)
		q, w := gemm.NewMatrix[float64](n, n), make([]float64, n)
		for _, descending := range []bool{true, false} {
			if err := (Reference[float64]{}).Eigen(context.Background(), q, w, a, descending); err != nil {
				t.Fatal(err)
			}
			basis, values := widen(q), identity(n)
			for i := range n {
				values[i][i] = w[i]
				if i > 0 && (w[i] > w[i-1]) == descending {
					t.Errorf("order %d: eigenvalues %v, descending %v", n, w, descending)
				}
			}
			near(t, "orthogonality", multiply(transposed(basis), basis), identity(n), 1)
			near(t, "reconstruction", multiply(basis, multiply(values, transposed(basis))), widen(a), 10)
		}
	}
}

func TestReferenceRootInverts(t *testing.T) {
	a := symmetric(3, 6, true)
	dst := gemm.NewMatrix[float64](6, 6)
	if err := (Reference[float64]{}).Root(context.Background(), dst, a, 0.5); err != nil {
		t.Fatal(err)
	}
	x := widen(dst)
	near(t, "X*A*X", multiply(x, multiply(widen(a), x)), identity(6), 1e3)
}

// An indefinite matrix is shifted until its smallest eigenvalue is the ridge.
func TestReferenceRidgeIsAFloor(t *testing.T) {
	a := gemm.MatrixOf(2, 2, []float64{1, 0, 0, -1})
	dst := gemm.NewMatrix[float64](2, 2)
	if err := (Reference[float64]{Ridge: 0.25}).Root(context.Background(), dst, a, 0.5); err != nil {
		t.Fatal(err)
	}
	near(t, "floor", widen(dst), [][]float64{{1 / 1.5, 0}, {0, 2}}, 1)
}

// Orthogonal iteration on a diagonal matrix sorts the axes and says how.
func TestReferenceIterateSorts(t *testing.T) {
	a := gemm.MatrixOf(3, 3, []float64{1, 0, 0, 0, 3, 0, 0, 0, 2})
	q := gemm.MatrixOf(3, 3, []float64{1, 0, 0, 0, 1, 0, 0, 0, 1})
	perm := make([]int, 3)
	if err := (Reference[float64]{}).Iterate(context.Background(), q, a, perm); err != nil {
		t.Fatal(err)
	}
	if perm[0] != 1 || perm[1] != 2 || perm[2] != 0 {
		t.Errorf("perm %v, want [1 2 0]", perm)
	}
	for j, axis := range perm {
		if math.Abs(q.At(axis, j)) != 1 {
			t.Errorf("column %d is not axis %d: %v", j, axis, q.Data)
		}
	}
}

// Enough QR steps diagonalize.
func TestReferenceDiagonalizeConverges(t *testing.T) {
	a := symmetric(5, 5, true)
	q := gemm.NewMatrix[float64](5, 5)
	for i := range 5 {
		q.Set(i, i, 1)
	}
	w := make([]float64, 5)
	if err := (Reference[float64]{}).Diagonalize(context.Background(), q, w, a, 3000, 1e-14); err != nil {
		t.Fatal(err)
	}
	basis, values := widen(q), identity(5)
	for i := range w {
		values[i][i] = w[i]
	}
	// The stopping rule subtracts two squared norms, so it sees an off-diagonal
	// part down to the root of the unit roundoff only.
	near(t, "reconstruction", multiply(basis, multiply(values, transposed(basis))), widen(a), 1/math.Sqrt(0x1p-52))
}

func TestReferenceRefusesNaN(t *testing.T) {
	a := gemm.MatrixOf(2, 2, []float64{1, math.NaN(), math.NaN(), 1})
	err := Reference[float64]{}.Root(context.Background(), gemm.NewMatrix[float64](2, 2), a, 0.5)
	if !errors.Is(err, errNotFinite) {
		t.Errorf("got %v", err)
	}
}

func TestSettingsReadWhatTheFilesHave(t *testing.T) {
	zero, half := 0.0, 0.5
	if beta(nil) != 0 || beta(&zero) != -1 || beta(&half) != 0.5 || target("inf") < 4 || target(nil) != 1 || target(2.0) != 2 {
		t.Error("a setting is not translated")
	}
}
