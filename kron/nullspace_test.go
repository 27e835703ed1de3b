package kron_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/kron/krontest"
)

// firstBases returns the bases of a SOAP block after its first refresh, which sees
// the m×n gradient g.
func firstBases(t *testing.T, m, n int, g []float64, o kron.Options) *kron.State[float64] {
	t.Helper()
	r := newRigWith[float64](t, []int{m, n}, o, krontest.Reference[float64]{})
	r.step(g, 0.01)
	return r.state
}

// The basis of a rank-deficient factor moves with the gradient as its null space
// does, and not as the solver's rounding: a change of 1e-7 moves it by little, and
// without the convention by as much as it can.
func TestFirstBasisDoesNotFollowRounding(t *testing.T) {
	for seed := uint64(1); seed <= 8; seed++ {
		rng := rand.New(rand.NewPCG(seed, 5))
		m, n := 9+rng.IntN(12), 2+rng.IntN(5)
		g := gradients[float64](seed, 1, m*n)[0]
		near := append([]float64(nil), g...)
		for i := range near {
			near[i] *= 1 + 1e-7*rng.NormFloat64()
		}
		for _, method := range []kron.Method{kron.SOAP, kron.KLSOAP} {
			o := kron.Options{Method: method, NullTolerance: 1e-6}
			a, b := firstBases(t, m, n, g, o), firstBases(t, m, n, near, o)
			for k, d := range []int{m, n} {
				if moved := columnsMoved(a.Root[k], b.Root[k], d); !(moved < 1e-4) {
					t.Errorf("seed %d %v %d×%d: a change of 1e-7 moves basis %d by %g", seed, method, m, n, k, moved)
				}
			}
			o.NullTolerance = 0
			a, b = firstBases(t, m, n, g, o), firstBases(t, m, n, near, o)
			if moved := columnsMoved(a.Root[0], b.Root[0], m); moved < 1e-2 {
				t.Errorf("seed %d %v %d×%d: without the convention the basis moves by %g only: this test shows nothing", seed, method, m, n, moved)
			}
		}
	}
}

// columnsMoved returns the largest distance between columns of two n×n bases, up to
// their signs.
func columnsMoved(a, b []float64, n int) float64 {
	worst := 0.0
	for j := range n {
		dot := 0.0
		for i := range n {
			dot += a[i*n+j] * b[i*n+j]
		}
		worst = max(worst, math.Sqrt(max(0, 2-2*math.Abs(dot))))
	}
	return worst
}

// What counts as zero is replaced by another basis of the same space; the rest of
// the basis, and the bases of factors of full rank, keep their bits.
func TestFirstBasisStaysABasis(t *testing.T) {
	const seed = 3
	for _, c := range []struct{ m, n int }{{12, 5}, {5, 12}, {6, 6}, {8, 7}, {2, 2}, {40, 1}} {
		g := gradients[float64](seed, 1, c.m*c.n)[0]
		plain := firstBases(t, c.m, c.n, g, kron.Options{})
		fixed := firstBases(t, c.m, c.n, g, kron.Options{NullTolerance: 1e-8})
		for k, d := range []int{c.m, c.n} {
			if len(plain.Root[k]) == 0 { // a side of one
				continue
			}
			rank := min(c.m, c.n)
			if d-rank < 2 {
				rank = d
			}
			q, p := square(fixed.Root[k], d), square(plain.Root[k], d)
			for i := range d {
				if !sameBits(q.Row(i)[:rank], p.Row(i)[:rank]) {
					t.Errorf("seed %d %d×%d: basis %d changed in row %d before column %d", seed, c.m, c.n, k, i, rank)
				}
			}
			if off := orthonormality(q); !(off < 1e-12) {
				t.Errorf("seed %d %d×%d: basis %d is orthonormal within %g only", seed, c.m, c.n, k, off)
			}
		}
	}
}

func square(x []float64, n int) gemm.Matrix[float64] {
	return gemm.Matrix[float64]{Rows: n, Cols: n, Stride: n, Data: x}
}

// orthonormality returns max|QᵀQ-I|.
func orthonormality(q gemm.Matrix[float64]) float64 {
	worst := 0.0
	for a := range q.Cols {
		for b := range q.Cols {
			dot := 0.0
			for i := range q.Rows {
				dot += q.At(i, a) * q.At(i, b)
			}
			if a == b {
				dot--
			}
			worst = max(worst, math.Abs(dot))
		}
	}
	return worst
}

// A factor of zeros has no gap, and a solver that fails leaves the block without a
// basis and counts.
func TestFirstBasisOfNothing(t *testing.T) {
	b := firstBases(t, 4, 3, make([]float64, 12), kron.Options{NullTolerance: 1e-3})
	if b.Meta.Version(0) != 1 || orthonormality(square(b.Root[0], 4)) > 1e-12 {
		t.Errorf("zero gradient: version %d, basis %v", b.Meta.Version(0), b.Root[0])
	}
	solver := &flaky{Refresher: krontest.Reference[float64]{}, fail: func(call int) error {
		if call == 2 { // the iteration after the decomposition
			return errSolver
		}
		return nil
	}}
	r := newRigWith[float64](t, []int{9, 4}, kron.Options{NullTolerance: 1e-3}, solver)
	r.step(gradients[float64](1, 1, 36)[0], 0.01)
	if m := r.state.Meta; m.Version(0) != 0 || m.Version(1) != 1 || m.Failed() != 1 {
		t.Errorf("a failed iteration: versions %d, %d, failed %d", m.Version(0), m.Version(1), m.Failed())
	}
	if _, err := kron.NewBlock[float64]("x", []int{2, 2}, kron.Options{NullTolerance: 1}); err == nil {
		t.Error("NullTolerance 1 was accepted")
	}
}
