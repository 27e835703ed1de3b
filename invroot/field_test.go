package invroot

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/invroot/internal/jacobi"
)

// The tests in this file repeat failures that users of other second-order
// optimizers reported; each names the cause it guards against.

// methods are all root solvers.
var methods = []Method{Eigen, CoupledNewton, HigherOrder}

// A jitter of absolute size disappears beside entries of normal size: rank-one
// factors of any scale must give a finite root that scales.
func TestA01_RankOneFactorsOfAnyScale(t *testing.T) {
	const n = 64
	rng := rand.New(rand.NewPCG(1, 1))
	v := make([]float64, n)
	for i := range v {
		v[i] = rng.NormFloat64()
	}
	for _, p := range []int{2, 4} {
		var unscaled gemm.Matrix[float32]
		for _, c := range []float64{1, 1e-12, 1e12} {
			a, x := gemm.NewMatrix[float32](n, n), gemm.NewMatrix[float32](n, n)
			for i := range n {
				for j := range n {
					a.Set(i, j, float32(c*v[i]*v[j]))
				}
			}
			rep, err := newTestSolver[float32](t, n, Options{}).InverseRoot(context.Background(), x, a, p)
			if err != nil {
				t.Fatalf("c=%v p=%d: %v", c, p, err)
			}
			if r := rep.Ridge / rep.LambdaMax; math.Abs(r/DefaultRidge-1) > 1e-3 {
				t.Errorf("c=%v: ridge is %.3e of λmax, want %.0e", c, r, DefaultRidge)
			}
			if c == 1 {
				unscaled = x
				continue
			}
			for i := range x.Data {
				x.Data[i] = float32(float64(x.Data[i]) * math.Pow(c, 1/float64(p)))
			}
			if e := relFrobenius(x, unscaled); !(e <= 1e-3) {
				t.Errorf("c=%v p=%d: root differs from c^(-1/p) times the unscaled one by %.1e", c, p, e)
			}
		}
	}
}

// Low rank and repeated eigenvalues are what the first steps of training give.
func TestA02_LowRankAndRepeatedEigenvalues(t *testing.T) {
	for _, n := range []int{48, 130} {
		for name, rank := range map[string]int{"rank 1": 1, "rank 2": 2, "rank n-1": n - 1, "90% equal": 0} {
			c := spectrumCase{name, func(i, n int) float64 {
				switch {
				case rank == 0:
					return 1 + float64(max(0, i-n*9/10))
				case i < rank:
					return 1 + float64(i)
				}
				return 0
			}}
			a64 := c.matrix(n, 2)
			a := cast[float32](a64, 1)
			for _, m := range methods {
				s := newTestSolver[float32](t, n, Options{Method: m})
				x := gemm.NewMatrix[float32](n, n)
				rep, err := s.InverseRoot(context.Background(), x, a, 4)
				if err != nil {
					t.Errorf("%s n=%d %v: %v", name, n, m, err)
					continue
				}
				if !finite(x) {
					t.Errorf("%s n=%d %v: result is not finite", name, n, m)
				}
				if rank > 0 && rep.Precision != Double {
					t.Errorf("%s n=%d %v: precision %v, want double for a singular factor", name, n, m, rep.Precision)
				}
			}
			checkEigen[float32](t, name, a)
		}
	}
}

// A solver that fails in float32 is tried in float64, then with more ridge, and
// every stage is counted; on failure the old root stays.
func TestA02_RetryChain(t *testing.T) {
	boom := errors.New("solver failed")
	a := cast[float32](spectra[0].matrix(20, 3), 1)
	for _, tc := range []struct {
		name      string
		fail      int // attempts that fail
		precision Precision
		ridge     float64
		want      Stats
	}{
		{"first attempt succeeds", 0, Single, 1e-7, Stats{Calls: 1}},
		{"float64 succeeds", 1, Double, 1e-7, Stats{Calls: 1, Retried: 1}},
		{"a larger ridge succeeds", 3, Double, 1e-5, Stats{Calls: 1, Retried: 1, MoreRidge: 2}},
		{"all fail", 100, Double, 0, Stats{Calls: 1, Retried: 1, MoreRidge: 6, Failed: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newTestSolver[float32](t, 20, Options{})
			calls := 0
			s.intercept = func(attempt int, _ Precision) error {
				if attempt != calls {
					t.Errorf("attempt %d, want %d", attempt, calls)
				}
				calls++
				if attempt < tc.fail {
					return boom
				}
				return nil
			}
			x := gemm.NewMatrix[float32](20, 20)
			setIdentity(x)
			rep, err := s.InverseRoot(context.Background(), x, a, 4)
			if s.Stats() != tc.want {
				t.Errorf("counters %+v, want %+v", s.Stats(), tc.want)
			}
			if tc.want.Failed > 0 {
				if !errors.Is(err, boom) {
					t.Errorf("error %v, want the solver's", err)
				}
				for i := range 20 {
					if x.At(i, i) != 1 || x.At(i, (i+1)%20) != 0 {
						t.Fatal("the old root was written")
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if rep.Precision != tc.precision || rep.Retries != tc.fail {
				t.Errorf("precision %v after %d retries, want %v after %d", rep.Precision, rep.Retries, tc.precision, tc.fail)
			}
			if r := rep.Ridge / rep.LambdaMax; math.Abs(r/tc.ridge-1) > 1e-3 {
				t.Errorf("relative ridge %.2e, want %.2e", r, tc.ridge)
			}
		})
	}
}

// A floor of zero under the eigenvalues makes their inverse infinite.
func TestA03_FloorIsPositive(t *testing.T) {
	for _, p := range []int{2, 4} {
		for _, m := range methods {
			a, x := gemm.NewMatrix[float64](4, 4), gemm.NewMatrix[float64](4, 4)
			for i, v := range []float64{1, 0, 0, -1e-9} {
				a.Set(i, i, v)
			}
			rep, err := newTestSolver[float64](t, 4, Options{Method: m}).InverseRoot(context.Background(), x, a, p)
			if err != nil {
				t.Fatalf("%v p=%d: %v", m, p, err)
			}
			want := math.Pow(DefaultRidge, -1/float64(p)) // the floor is the ridge
			got := 0.0
			for _, v := range x.Data {
				if math.IsNaN(v) || math.IsInf(v, 0) {
					t.Fatalf("%v p=%d: %v in the result", m, p, v)
				}
				got = max(got, v)
			}
			if math.Abs(got/want-1) > 1e-6 {
				t.Errorf("%v p=%d: largest element %.6e, want floor^(-1/p) = %.6e (%+v)", m, p, got, want, rep)
			}
		}
	}
}

// Identity-only tests passed while a solver returned A^(-1/2) for A^(-1/4).
func TestA04_EveryRootSolverOnRandomMatrices(t *testing.T) {
	for _, n := range []int{3, 16, 65} {
		for i, condition := range []float64{1e1, 1e2, 1e3, 3e3, 1e4, 1e6} {
			c := spectrumCase{"", func(i, n int) float64 { return math.Pow(condition, -float64(i)/float64(n-1)) }}
			a := cast[float32](c.matrix(n, uint64(4+i)), 1)
			exact := cast[float64](a, 1)
			for _, p := range []int{2, 4, 6} {
				want := jacobi.Power(exact, -1/float64(p))
				for _, m := range methods {
					for _, precision := range []Precision{Auto, Single, Double} {
						opts := Options{Method: m, Precision: precision, Ridge: Ridge{Kind: None}}
						x := gemm.NewMatrix[float32](n, n)
						_, err := newTestSolver[float32](t, n, opts).InverseRoot(context.Background(), x, a, p)
						if precision == Single && condition > 1e4 {
							if err == nil && !finite(x) {
								t.Errorf("%v: not finite", m)
							}
							continue // float32 holds no digit of the smallest eigenvalues
						}
						if err != nil {
							t.Fatalf("n=%d condition=%.0e p=%d %v %v: %v", n, condition, p, m, precision, err)
						}
						tol := 1e-4
						if precision == Single && condition > 1e3 {
							tol = 10 * float64(n) * 0x1p-24 * condition / float64(p)
						}
						if e := relFrobenius(x, want); !(e < tol) {
							t.Errorf("n=%d condition=%.0e p=%d %v %v: relative error %.1e exceeds %.1e", n, condition, p, m, precision, e, tol)
						}
					}
				}
			}
		}
	}
}

// A symmetric eigensolver given one NaN may never return.
func TestA06_NaNIsRefusedBeforeTheSolver(t *testing.T) {
	for _, n := range []int{3, 257} {
		b, err := NewBatch[float32](2, n, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		for _, s := range b.solvers {
			s.intercept = func(int, Precision) error { t.Error("the solver was entered"); return nil }
		}
		jobs := make([]Job[float32], 6)
		for i := range jobs {
			a, out := gemm.NewMatrix[float32](n, n), gemm.NewMatrix[float32](n, n)
			setIdentity(a)
			setIdentity(out)
			a.Set(n-1, n/2, float32(math.NaN()))
			jobs[i] = Job[float32]{Task: Task(i % 3), A: a, Out: out, Exponent: 0.25, Values: make([]float32, n)}
		}
		start := time.Now()
		err = b.Run(context.Background(), jobs)
		if d := time.Since(start); d > 100*time.Millisecond {
			t.Errorf("n=%d: the workers were busy for %v", n, d)
		}
		if !errors.Is(err, ErrNonFinite) {
			t.Errorf("n=%d: error %v", n, err)
		}
		for i, j := range jobs {
			if !errors.Is(j.Err, ErrNonFinite) || j.Out.At(0, 0) != 1 || j.Out.At(n-1, 0) != 0 {
				t.Errorf("n=%d job %d: error %v, output touched: %v", n, i, j.Err, j.Out.At(0, 0) != 1)
			}
		}
		if got := b.Stats(); got.Refused != 6 || got.Failed != 0 {
			t.Errorf("n=%d: counters %+v, want 6 refused", n, got)
		}
	}
}

// Products with few bits lose the small eigenvalues of a factor after a gradient spike.
func TestA08_SpectrumAfterAGradientSpike(t *testing.T) {
	const n = 128
	c := spectrumCase{"spike", func(i, n int) float64 {
		if i < 5 {
			return 2.5e6 * (1 + 1e-4*float64(i))
		}
		return 0.1 * math.Pow(1e4, float64(n-1-i)/float64(n-6)) // 1e3 down to 0.1
	}}
	exact := c.matrix(n, 5)
	a := cast[float32](exact, 1)
	stored, _ := jacobi.Eigen(cast[float64](a, 1)) // what float32 storage leaves of the spectrum
	for _, precision := range []Precision{Double, Auto} {
		t.Run(fmt.Sprint(precision), func(t *testing.T) {
			q, w := gemm.NewMatrix[float32](n, n), make([]float32, n)
			s := newTestSolver[float32](t, n, Options{Precision: precision})
			if _, err := s.EigenSym(context.Background(), q, w, a, false); err != nil {
				t.Fatal(err)
			}
			// diag(QᵀAQ) in float64, from the basis as shipped.
			aq := mulT(false, a, false, q)
			d := mulT(true, cast[float64](q, 1), false, aq)
			for i := range n {
				want := c.at(n-1-i, n)
				if i >= n-5 {
					want = stored[i]
				}
				if e := math.Abs(d.At(i, i)/want - 1); !(e <= 0.1) {
					t.Errorf("eigenvalue %d: %v, want %v within 10%% (stored factor has %v)", i, d.At(i, i), want, stored[i])
				}
			}
		})
	}
}
