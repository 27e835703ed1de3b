package invroot

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
)

func TestLQReproducesTheMatrix(t *testing.T) {
	eachKernelSet(t, func(t *testing.T, eng *gemm.Engine) {
		t.Run("float32", func(t *testing.T) { lqReproduces[float32](t, eng) })
		t.Run("float64", func(t *testing.T) { lqReproduces[float64](t, eng) })
	})
}

func lqReproduces[T gemm.Float](t *testing.T, eng *gemm.Engine) {
	rng := rand.New(rand.NewPCG(41, 41))
	for _, shape := range [][2]int{{1, 1}, {2, 2}, {3, 7}, {8, 8}, {9, 9}, {17, 20}, {33, 33}, {64, 64}, {70, 131}, {150, 150}, {270, 270}} {
		m, n := shape[0], shape[1]
		for _, rank := range []int{m, max(1, m/2), 0} {
			a := gemm.NewMatrix[T](m, n)
			for r := range rank {
				for i := range m {
					f := T(rng.NormFloat64())
					if rank == m && r != i {
						continue
					}
					for j := range n {
						a.Row(i)[j] += f * T(math.Cos(float64(r*n+j)+float64(r*j)))
					}
				}
			}
			f := newLQ(eng, newKernels[T](eng), n)
			v, l, q := gemm.NewMatrix[T](m, n), gemm.NewMatrix[T](m, m), gemm.NewMatrix[T](m, n)
			copy(v.Data, a.Data)
			f.factor(v, l)
			f.form(q, v)
			tol := 20 * math.Sqrt(float64(n)) * unit[T]()
			if e := orthogonality(transposed(q)); !(e <= tol) {
				t.Errorf("%d×%d rank %d: rows are orthonormal to %.1e", m, n, rank, e)
			}
			back := mulT(false, l, false, q)
			if rank == 0 {
				continue
			}
			if e := relFrobenius(back, cast[float64](a, 1)); !(e <= tol) {
				t.Errorf("%d×%d rank %d: |LQ-A|/|A| = %.1e", m, n, rank, e)
			}
			for i := range m {
				for j := i + 1; j < m; j++ {
					if l.At(i, j) != 0 {
						t.Fatalf("%d×%d: L has %v above its diagonal", m, n, l.At(i, j))
					}
				}
			}
		}
	}
}

func transposed[T gemm.Float](m gemm.Matrix[T]) gemm.Matrix[T] {
	out := gemm.NewMatrix[T](m.Cols, m.Rows)
	transpose(out, m)
	return out
}

func TestIterateOnDegenerateFactors(t *testing.T) {
	const n = 50
	for _, c := range spectra {
		for _, scale := range []float32{1, 1e-30, 1e30} {
			a := cast(cast[float32](c.matrix(n, 42), 1), scale)
			q, perm := gemm.NewMatrix[float32](n, n), make([]int, n)
			setIdentity(q)
			s := newTestSolver[float32](t, n, Options{})
			if _, err := s.RefreshBasis(context.Background(), q, a, perm); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			if e := orthogonality(q); !(e <= 20*math.Sqrt(n)*0x1p-24) {
				t.Errorf("%s scale %v: columns are orthonormal to %.1e", c.name, scale, e)
			}
			seen := make([]bool, n)
			for _, i := range perm {
				if i < 0 || i >= n || seen[i] {
					t.Fatalf("%s: %v is no permutation", c.name, perm)
				}
				seen[i] = true
			}
		}
	}
}

// Repeated refreshes of a fixed factor converge to its eigenvectors, descending.
func TestIterationsConvergeToTheEigenbasis(t *testing.T) {
	const n = 12
	c := spectrumCase{"", func(i, n int) float64 { return math.Pow(3, -float64(i)) }}
	a := c.matrix(n, 43)
	q, perm := gemm.NewMatrix[float64](n, n), make([]int, n)
	setIdentity(q)
	s := newTestSolver[float64](t, n, Options{})
	for range 60 {
		if _, err := s.RefreshBasis(context.Background(), q, a, perm); err != nil {
			t.Fatal(err)
		}
	}
	d := mulT(true, q, false, mulT(false, a, false, q))
	for i := range n {
		if math.Abs(d.At(i, i)/c.at(i, n)-1) > 1e-10 {
			t.Errorf("column %d has %v, want eigenvalue %v", i, d.At(i, i), c.at(i, n))
		}
	}
}

// A refresh by eigendecomposition ranks the old columns, so that a second moment kept
// per column follows the permutation.
func TestEighRefreshRanksTheOldColumns(t *testing.T) {
	const n = 20
	a := cast[float32](spectra[0].matrix(n, 44), 1)
	old := cast[float32](randomOrthogonal(rand.New(rand.NewPCG(44, 44)), n), 1)
	qr, eigh := gemm.NewMatrix[float32](n, n), gemm.NewMatrix[float32](n, n)
	copy(qr.Data, old.Data)
	copy(eigh.Data, old.Data)
	p1, p2 := make([]int, n), make([]int, n)
	ctx := context.Background()
	if _, err := newTestSolver[float32](t, n, Options{}).RefreshBasis(ctx, qr, a, p1); err != nil {
		t.Fatal(err)
	}
	s := newTestSolver[float32](t, n, Options{BasisRefresh: Eigh})
	if _, err := s.RefreshBasis(ctx, eigh, a, p2); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(p1) != fmt.Sprint(p2) {
		t.Errorf("orders differ: qr %v, eigh %v", p1, p2)
	}
	d := mulT(true, eigh, false, cast[float32](mulT(false, a, false, eigh), 1))
	for i := 1; i < n; i++ {
		if d.At(i, i) > d.At(i-1, i-1)*(1+1e-5) {
			t.Errorf("column %d is out of descending order", i)
		}
	}
	if e := orthogonality(eigh); !(e <= 20*math.Sqrt(n)*0x1p-24) {
		t.Errorf("columns are orthonormal to %.1e", e)
	}
}

func TestDiagonalizeStopsAtItsTolerance(t *testing.T) {
	const n = 15
	a := spectra[0].matrix(n, 45)
	s := newTestSolver[float64](t, n, Options{})
	q, w := gemm.NewMatrix[float64](n, n), make([]float64, n)
	if _, err := s.EigenSym(context.Background(), q, w, a, false); err != nil {
		t.Fatal(err)
	}
	rep, err := s.Diagonalize(context.Background(), q, w, a, 50, 1e-6)
	if err != nil || rep.Iterations != 0 || rep.Residual > 1e-6 {
		t.Errorf("an exact basis takes %d steps, residual %.1e, error %v; want none", rep.Iterations, rep.Residual, err)
	}
	for _, bad := range []struct {
		steps int
		tol   float64
	}{{-1, 0}, {1, -1}, {1, math.NaN()}} {
		if _, err := s.Diagonalize(context.Background(), q, w, a, bad.steps, bad.tol); err == nil {
			t.Errorf("maxIter %d, tol %v are accepted", bad.steps, bad.tol)
		}
	}
}

func TestBatchEqualsOneSolver(t *testing.T) {
	const count, top = 9, 90
	var want []Job[float32]
	for _, workers := range []int{1, 2, 4} {
		b, err := NewBatch[float32](workers, top, Options{})
		if err != nil {
			t.Fatal(err)
		}
		jobs := make([]Job[float32], count)
		for i := range jobs {
			n := 10 + 9*i
			a := cast[float32](spectra[i%3].matrix(n, uint64(i)), 1)
			jobs[i] = Job[float32]{Task: Task(i % 3), A: a, Out: gemm.NewMatrix[float32](n, n), Exponent: 0.25, Values: make([]float32, n), Perm: make([]int, n)}
			setIdentity(jobs[i].Out)
		}
		jobs[4].A.Set(1, 1, float32(math.NaN()))
		jobs[7].Task = 9
		err = b.Run(context.Background(), jobs)
		b.Close()
		if !errors.Is(err, ErrNonFinite) || jobs[7].Err == nil {
			t.Fatalf("error %v, want the two bad jobs in it", err)
		}
		if want == nil {
			want = jobs
			continue
		}
		for i := range jobs {
			if fmt.Sprint(jobs[i].Out.Data, jobs[i].Values, jobs[i].Perm, jobs[i].Report) != fmt.Sprint(want[i].Out.Data, want[i].Values, want[i].Perm, want[i].Report) {
				t.Errorf("workers=%d: job %d differs from one worker's", workers, i)
			}
		}
	}
}

func TestBatchStopsWithItsContext(t *testing.T) {
	b, err := NewBatch[float64](2, 8, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ctx, stop := context.WithCancel(context.Background())
	stop()
	jobs := make([]Job[float64], 5)
	for i := range jobs {
		jobs[i] = Job[float64]{A: spectra[0].matrix(8, 1), Out: gemm.NewMatrix[float64](8, 8), Exponent: 0.5}
	}
	if err := b.Run(ctx, jobs); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestPolarFactor(t *testing.T) {
	t.Run("float32", polarFactor[float32])
	t.Run("float64", polarFactor[float64])
}

func polarFactor[T gemm.Float](t *testing.T) {
	rng := rand.New(rand.NewPCG(46, 46))
	for _, shape := range [][2]int{{1, 1}, {1, 5}, {5, 1}, {12, 12}, {30, 12}, {12, 30}} {
		m, n := shape[0], shape[1]
		g, x := gemm.NewMatrix[T](m, n), gemm.NewMatrix[T](m, n)
		for i := range g.Data {
			g.Data[i] = T(rng.NormFloat64() * 1e-20)
		}
		s := newTestSolver[T](t, 30, Options{})
		if _, err := s.Polar(context.Background(), x, g); err != nil {
			t.Fatalf("%d×%d: %v", m, n, err)
		}
		u, h := x, mulT(true, x, false, g) // x = g*(gᵀg)^(-1/2): xᵀg is symmetric, positive
		if m < n {
			u, h = transposed(x), mulT(false, x, true, g)
		}
		if e := orthogonality(u); !(e <= 100*float64(max(m, n))*unit[T]()) {
			t.Errorf("%d×%d: orthonormal to %.1e", m, n, e)
		}
		norm := frobenius(h)
		for i := range h.Rows {
			for j := range i {
				if d := math.Abs(h.At(i, j)-h.At(j, i)) / norm; !(d <= 1e4*float64(n)*unit[T]()) {
					t.Errorf("%d×%d: XᵀG is not symmetric by %.1e", m, n, d)
				}
			}
		}
	}
	g := gemm.NewMatrix[T](4, 4)
	if _, err := newTestSolver[T](t, 4, Options{}).Polar(context.Background(), g, g); !errors.Is(err, ErrNotConverged) {
		t.Errorf("polar factor of zero: error %v, want ErrNotConverged", err)
	}
	g.Set(0, 0, T(math.NaN()))
	if _, err := newTestSolver[T](t, 4, Options{}).Polar(context.Background(), g, g); !errors.Is(err, ErrNonFinite) {
		t.Errorf("polar factor of NaN: error %v, want ErrNonFinite", err)
	}
}

func TestPolarExpressIntervalsShrink(t *testing.T) {
	for _, lower := range []float64{1e-6, 1e-3, 0.5, 1} {
		steps, err := PolarExpress(lower, 20, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range []float64{lower, math.Sqrt(lower), 1} {
			for _, p := range steps {
				x = p.at(x)
			}
			if math.Abs(x-1) > 1e-9 {
				t.Errorf("lower %v: a singular value ends at %v", lower, x)
			}
		}
	}
	for _, bad := range [][3]float64{{0, 1, 0}, {2, 1, 0}, {0.1, -1, 0}, {0.1, 1, 1}} {
		if _, err := PolarExpress(bad[0], int(bad[1]), bad[2]); err == nil {
			t.Errorf("PolarExpress%v is accepted", bad)
		}
	}
}

// The columns of a rank-one product are rounding of rounding after the first
// reflector, small enough for their squares to underflow.
func TestIterateOfARankOneFactorKeepsAnOrthonormalBasis(t *testing.T) {
	const n = 24
	eng := gemm.New(1)
	defer eng.Close()
	s, err := NewSolver[float32](eng, n, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a, q := gemm.NewMatrix[float32](n, n), gemm.NewMatrix[float32](n, n)
	for i := range n {
		q.Set(i, i, 1)
		for j := range n {
			a.Set(i, j, float32((i+1)*(j+1)))
		}
	}
	if _, err := s.Iterate(t.Context(), q, a, nil); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		for j := range i + 1 {
			dot := 0.0
			for k := range n {
				dot += float64(q.At(k, i)) * float64(q.At(k, j))
			}
			if i == j {
				dot--
			}
			if !(math.Abs(dot) <= 40*math.Sqrt(n)*0x1p-24) {
				t.Fatalf("columns %d and %d: %v", i, j, dot)
			}
		}
	}
}
