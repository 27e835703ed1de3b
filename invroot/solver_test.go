package invroot

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/invroot/internal/jacobi"
)

func TestPowersOfTheRootGiveTheInverse(t *testing.T) {
	const n = 40
	c := spectrumCase{"", func(i, n int) float64 { return math.Pow(1e3, -float64(i)/float64(n-1)) }}
	a := c.matrix(n, 21)
	for _, m := range methods {
		for _, p := range []int{1, 2, 3, 4, 5, 8} {
			s := newTestSolver[float64](t, n, Options{Method: m, Ridge: Ridge{Kind: None}, Tolerance: 1e-13})
			x := gemm.NewMatrix[float64](n, n)
			if _, err := s.InverseRoot(context.Background(), x, a, p); err != nil {
				t.Fatalf("%v p=%d: %v", m, p, err)
			}
			y := a
			for range p {
				y = mulT(false, x, false, y)
			}
			for i := range n {
				for j := range n {
					want := 0.0
					if i == j {
						want = 1
					}
					// κ*u*n, with a factor for the iteration's tolerance of 1e-13 on M.
					if d := math.Abs(y.At(i, j) - want); !(d <= 1e3*n*0x1p-53*8) {
						t.Fatalf("%v p=%d: (X^p*A)[%d][%d] = %v", m, p, i, j, y.At(i, j))
					}
				}
			}
		}
	}
}

func TestAnyPositiveExponent(t *testing.T) {
	const n = 17
	a := spectra[0].matrix(n, 22)
	for _, e := range []float64{0.1, 1.0 / 3, 0.75, 1.5, 2, math.Pi / 4} {
		want := jacobi.Power(a, -e)
		for _, m := range methods {
			s := newTestSolver[float64](t, n, Options{Method: m, Ridge: Ridge{Kind: None}, Tolerance: 1e-13})
			x := gemm.NewMatrix[float64](n, n)
			_, err := s.InversePower(context.Background(), x, a, e)
			q, _, ok := rational(e)
			if m != Eigen && (!ok || (m == CoupledNewton && q != 1)) {
				if err == nil || !strings.Contains(err.Error(), "exponent") {
					t.Errorf("%v exponent %v: error %v, want one about the exponent", m, e, err)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%v exponent %v: %v", m, e, err)
			}
			if d := relFrobenius(x, want); !(d <= 1e-10) {
				t.Errorf("%v exponent %v: relative error %.1e", m, e, d)
			}
		}
	}
	s := newTestSolver[float64](t, n, Options{})
	for _, e := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if _, err := s.InversePower(context.Background(), a, a, e); err == nil {
			t.Errorf("exponent %v is accepted", e)
		}
	}
	if _, err := s.InverseRoot(context.Background(), a, a, 0); err == nil {
		t.Error("root 0 is accepted")
	}
}

func TestRootCommutesWithPermutationAndPadding(t *testing.T) {
	const n, padded = 30, 47
	rng := rand.New(rand.NewPCG(23, 23))
	a := spectra[0].matrix(n, 23)
	perm := rng.Perm(n)
	b, wide := gemm.NewMatrix[float64](n, n), gemm.NewMatrix[float64](padded, padded)
	setIdentity(wide) // the padding's eigenvalues lie inside the spectrum
	for i := range n {
		for j := range n {
			b.Set(i, j, a.At(perm[i], perm[j]))
			wide.Set(i, j, a.At(i, j))
		}
	}
	s := newTestSolver[float64](t, padded, Options{})
	x, y, z := gemm.NewMatrix[float64](n, n), gemm.NewMatrix[float64](n, n), gemm.NewMatrix[float64](padded, padded)
	for dst, src := range map[*gemm.Matrix[float64]]gemm.Matrix[float64]{&x: a, &y: b, &z: wide} {
		if _, err := s.InverseRoot(context.Background(), *dst, src, 4); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		for j := range n {
			if d := math.Abs(y.At(i, j) - x.At(perm[i], perm[j])); d > 1e-12 {
				t.Fatalf("permuted element (%d,%d) differs by %.1e", i, j, d)
			}
			if d := math.Abs(z.At(i, j) - x.At(i, j)); d > 1e-12 {
				t.Fatalf("padded element (%d,%d) differs by %.1e", i, j, d)
			}
		}
	}
	for i := n; i < padded; i++ {
		if math.Abs(z.At(i, i)-1) > 1e-12 || math.Abs(z.At(i, 0)) > 1e-12 {
			t.Fatalf("padding row %d is not the identity's", i)
		}
	}
}

func TestPseudoInverseDropsTheNullSpace(t *testing.T) {
	const n, rank = 24, 9
	c := spectrumCase{"", func(i, n int) float64 {
		if i < rank {
			return float64(1 + i)
		}
		return 0
	}}
	a := c.matrix(n, 24)
	opts := Options{PseudoInverse: true, Ridge: Ridge{Kind: None}}
	x := gemm.NewMatrix[float64](n, n)
	if _, err := newTestSolver[float64](t, n, opts).InverseRoot(context.Background(), x, a, 1); err != nil {
		t.Fatal(err)
	}
	back := mulT(false, mulT(false, a, false, x), false, a) // Penrose: A*X*A = A
	if e := relFrobenius(back, a); !(e <= 1e-12) {
		t.Errorf("A*X*A differs from A by %.1e", e)
	}
	trace := 0.0
	xa := mulT(false, x, false, a)
	for i := range n {
		trace += xa.At(i, i)
	}
	if math.Abs(trace-rank) > 1e-11 {
		t.Errorf("trace of X*A is %v, want the rank %d", trace, rank)
	}
}

func TestAbsoluteRidgeShiftsTheSpectrum(t *testing.T) {
	const n, eps = 12, 1e-3
	for _, name := range []string{"random", "indefinite"} {
		var c spectrumCase
		for _, s := range spectra {
			if s.name == name {
				c = s
			}
		}
		a := c.matrix(n, 25)
		w, q := jacobi.Eigen(a)
		shift := eps + max(0, -w[0])
		for i := range w {
			w[i] += shift
		}
		want := jacobi.Function(w, q, -0.5)
		for _, m := range methods {
			x := gemm.NewMatrix[float64](n, n)
			opts := Options{Method: m, Ridge: Ridge{Kind: Absolute, Value: eps}, Tolerance: 1e-12}
			rep, err := newTestSolver[float64](t, n, opts).InverseRoot(context.Background(), x, a, 2)
			if err != nil {
				t.Fatalf("%s %v: %v", name, m, err)
			}
			if e := relFrobenius(x, want); !(e <= 1e-9) {
				t.Errorf("%s %v: relative error %.1e", name, m, e)
			}
			if math.Abs(rep.Ridge-shift) > 1e-10 {
				t.Errorf("%s %v: ridge %v, want %v", name, m, rep.Ridge, shift)
			}
		}
	}
}

func TestTraceScaling(t *testing.T) {
	const n = 9
	a := spectra[0].matrix(n, 26)
	trace := 0.0
	for i := range n {
		trace += a.At(i, i)
	}
	for _, m := range methods {
		plain, scaled := gemm.NewMatrix[float64](n, n), gemm.NewMatrix[float64](n, n)
		opts := Options{Method: m, Tolerance: 1e-13}
		if _, err := newTestSolver[float64](t, n, opts).InverseRoot(context.Background(), plain, a, 2); err != nil {
			t.Fatal(err)
		}
		opts.TraceScaling = true
		if _, err := newTestSolver[float64](t, n, opts).InverseRoot(context.Background(), scaled, a, 2); err != nil {
			t.Fatal(err)
		}
		// (A/√tr)^(-1/2) = tr^(1/4)*A^(-1/2)
		if e := relFrobenius(scaled, cast(plain, math.Pow(trace, 0.25))); !(e <= 1e-11) {
			t.Errorf("%v: relative error %.1e", m, e)
		}
	}
}

func TestMatricesWithoutARoot(t *testing.T) {
	const n = 6
	ctx := context.Background()
	zero, x := gemm.NewMatrix[float32](n, n), gemm.NewMatrix[float32](n, n)
	rep, err := newTestSolver[float32](t, n, Options{}).InverseRoot(ctx, x, zero, 4)
	if err != nil || x.At(2, 2) != 1 || x.At(1, 2) != 0 || rep.Ridge != 0 {
		t.Errorf("zero matrix, relative ridge: %v %v %+v, want the identity", err, x.Data[:2], rep)
	}
	for _, m := range methods {
		none := newTestSolver[float32](t, n, Options{Method: m, Ridge: Ridge{Kind: None}})
		_, err = none.InverseRoot(ctx, x, zero, 4)
		var np *NotPositiveError
		if !errors.As(err, &np) || !errors.Is(err, ErrNotPositive) {
			t.Errorf("%v, zero matrix without ridge: error %v", m, err)
		}
		indefinite := cast[float32](spectra[9].matrix(n, 27), 1)
		if _, err = none.InverseRoot(ctx, x, indefinite, 4); !errors.Is(err, ErrNotPositive) && !errors.Is(err, ErrNotConverged) {
			t.Errorf("%v, indefinite matrix without ridge: error %v", m, err)
		}
	}
	tiny := gemm.NewMatrix[float32](n, n)
	for i := range n {
		tiny.Set(i, i, 1e-44)
	}
	if _, err = newTestSolver[float32](t, n, Options{RidgeRetries: -1}).InverseRoot(ctx, x, tiny, 1); !errors.Is(err, ErrRange) {
		t.Errorf("inverse of denormals: error %v, want ErrRange", err)
	}
	abs := newTestSolver[float32](t, n, Options{Ridge: Ridge{Kind: Absolute, Value: 1e-4}})
	if _, err = abs.InverseRoot(ctx, x, zero, 4); err != nil || math.Abs(float64(x.At(0, 0))-10) > 1e-5 {
		t.Errorf("zero matrix with absolute ridge 1e-4: %v, %v, want 10 on the diagonal", err, x.At(0, 0))
	}
}

func TestConvergenceErrorTellsWhere(t *testing.T) {
	a := spectra[1].matrix(20, 28)
	opts := Options{Method: CoupledNewton, MaxIterations: 3, RidgeRetries: -1}
	x := gemm.NewMatrix[float64](20, 20)
	_, err := newTestSolver[float64](t, 20, opts).InverseRoot(context.Background(), x, a, 4)
	var ce *ConvergenceError
	if !errors.As(err, &ce) || !errors.Is(err, ErrNotConverged) {
		t.Fatalf("error %v, want a ConvergenceError", err)
	}
	if ce.Order != 20 || ce.Iterations != 3 || ce.Stage != "coupled newton" || !(ce.Residual > 0) {
		t.Errorf("%+v", ce)
	}
}

func TestResultsDoNotDependOnThreads(t *testing.T) {
	for _, n := range []int{65, 200, 333} {
		a := cast[float32](spectra[1].matrix(n, 29), 1)
		basis := cast[float32](randomOrthogonal(rand.New(rand.NewPCG(3, 3)), n), 1)
		var want []gemm.Matrix[float32]
		for _, threads := range []int{1, 2, 3} {
			eng := gemm.New(threads)
			got := resultsOf(t, eng, n, a, basis)
			eng.Close()
			if want == nil {
				want = got
				continue
			}
			for k := range want {
				for i, v := range want[k].Data {
					if got[k].Data[i] != v {
						t.Fatalf("n=%d threads=%d result %d: element %d is %v, with one thread %v", n, threads, k, i, got[k].Data[i], v)
					}
				}
			}
		}
	}
}

// resultsOf runs one call of each kind.
func resultsOf(t *testing.T, eng *gemm.Engine, n int, a, basis gemm.Matrix[float32]) []gemm.Matrix[float32] {
	ctx := context.Background()
	out := make([]gemm.Matrix[float32], 6)
	for i := range out {
		out[i] = gemm.NewMatrix[float32](n, n)
	}
	w := make([]float32, n)
	for k, opts := range []Options{{Precision: Single}, {Precision: Double}, {Method: CoupledNewton, Precision: Single, Ridge: Ridge{Value: 1e-4}}} {
		s, err := NewSolver[float32](eng, n, opts)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.InverseRoot(ctx, out[k], a, 4); err != nil {
			t.Fatal(err)
		}
		if k == 0 {
			copy(out[4].Data, basis.Data)
			_, err1 := s.EigenSym(ctx, out[3], w, a, true)
			_, err2 := s.Iterate(ctx, out[4], a, make([]int, n))
			copy(out[5].Data, basis.Data)
			_, err3 := s.Diagonalize(ctx, out[5], w, a, 2, 0)
			if err := errors.Join(err1, err2, err3); err != nil {
				t.Fatal(err)
			}
		}
		s.Close()
	}
	return out
}

func TestNoAllocationAfterWarmUp(t *testing.T) {
	const n = 70
	ctx := context.Background()
	for _, threads := range []int{1, 2} {
		eng := gemm.New(threads)
		defer eng.Close()
		a := cast[float32](spectra[1].matrix(n, 30), 1)
		q, w, perm := gemm.NewMatrix[float32](n, n), make([]float32, n), make([]int, n)
		setIdentity(q)
		x := gemm.NewMatrix[float32](n, n)
		for _, m := range methods {
			s, err := NewSolver[float32](eng, n, Options{Method: m})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			calls := map[string]func() error{
				"InverseRoot":  func() error { _, err := s.InverseRoot(ctx, x, a, 4); return err },
				"EigenSym":     func() error { _, err := s.EigenSym(ctx, x, w, a, true); return err },
				"RefreshBasis": func() error { _, err := s.RefreshBasis(ctx, q, a, perm); return err },
				"Diagonalize":  func() error { _, err := s.Diagonalize(ctx, q, w, a, 1, 0); return err },
			}
			for name, call := range calls {
				run := func() {
					if err := call(); err != nil {
						t.Fatal(err)
					}
				}
				run()
				if allocs := testing.AllocsPerRun(10, run); allocs != 0 {
					t.Errorf("threads=%d %v %s: %v allocations a call", threads, m, name, allocs)
				}
			}
		}
	}
}

// pollCounter is a context that is cancelled at its k-th poll.
type pollCounter struct {
	context.Context
	polls, limit int
}

func (c *pollCounter) Err() error {
	c.polls++
	if c.polls > c.limit {
		return context.Canceled
	}
	return nil
}

func TestContextIsPolledBetweenStages(t *testing.T) {
	const n = 150
	a := cast[float32](spectra[1].matrix(n, 31), 1)
	x, w, perm := gemm.NewMatrix[float32](n, n), make([]float32, n), make([]int, n)
	for _, m := range methods {
		s := newTestSolver[float32](t, n, Options{Method: m})
		for name, call := range map[string]func(ctx context.Context) error{
			"InverseRoot": func(ctx context.Context) error { _, err := s.InverseRoot(ctx, x, a, 4); return err },
			"EigenSym":    func(ctx context.Context) error { _, err := s.EigenSym(ctx, x, w, a, true); return err },
			"Iterate":     func(ctx context.Context) error { _, err := s.Iterate(ctx, x, a, perm); return err },
		} {
			for i := range x.Data {
				x.Data[i] = 0
			}
			setIdentity(x)
			whole := &pollCounter{Context: context.Background(), limit: math.MaxInt}
			if err := call(whole); err != nil {
				t.Fatal(err)
			}
			if whole.polls < 2 {
				t.Errorf("%v %s: %d polls", m, name, whole.polls)
			}
			setIdentity(x)
			for limit := range whole.polls {
				err := call(&pollCounter{Context: context.Background(), limit: limit})
				if !errors.Is(err, context.Canceled) {
					t.Errorf("%v %s: cancelled at poll %d of %d: error %v", m, name, limit+1, whole.polls, err)
				}
				if x.At(0, 0) != 1 || x.At(n-1, 0) != 0 {
					t.Fatalf("%v %s: the output was written by a cancelled call", m, name)
				}
			}
		}
	}
}

func TestOptionsValidateReportsAllFaults(t *testing.T) {
	if err := (Options{}).Validate(); err != nil {
		t.Errorf("zero options: %v", err)
	}
	bad := Options{
		Method: 9, Precision: 9, BasisRefresh: 9, Ridge: Ridge{Kind: 9, Value: -1},
		Tolerance: math.NaN(), MaxIterations: -1, Order: 1, PseudoInverse: true,
	}
	err := bad.Validate()
	for _, word := range []string{"Method", "Precision", "BasisRefresh", "Ridge.Kind", "Ridge.Value", "Tolerance", "MaxIterations", "Order", "PseudoInverse"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("no fault of %s in %v", word, err)
		}
	}
	eng := gemm.New(1)
	defer eng.Close()
	if _, err := NewSolver[float32](eng, -1, Options{}); err == nil {
		t.Error("order -1 is accepted")
	}
	if _, err := NewSolver[float32](nil, 4, Options{}); err == nil {
		t.Error("a nil engine is accepted")
	}
	if _, err := NewBatch[float32](0, 4, Options{}); err == nil {
		t.Error("a batch without workers is accepted")
	}
}

func TestNames(t *testing.T) {
	got := fmt.Sprint(Eigen, CoupledNewton, HigherOrder, Auto, Single, Double, Relative, Absolute, None, QR, Eigh, Method(7))
	if want := "eigen coupled-newton higher-order auto single double relative absolute none qr eigh unknown(7)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestShapeMisusePanics(t *testing.T) {
	s := newTestSolver[float32](t, 4, Options{})
	m := func(r, c int) gemm.Matrix[float32] { return gemm.NewMatrix[float32](r, c) }
	ctx := context.Background()
	for name, f := range map[string]func(){
		"rectangular":   func() { s.InverseRoot(ctx, m(3, 3), m(3, 4), 2) },
		"dst too small": func() { s.InverseRoot(ctx, m(2, 2), m(3, 3), 2) },
		"too large":     func() { s.InverseRoot(ctx, m(5, 5), m(5, 5), 2) },
		"short w":       func() { s.EigenSym(ctx, m(3, 3), make([]float32, 2), m(3, 3), true) },
		"short perm":    func() { s.Iterate(ctx, m(3, 3), m(3, 3), make([]int, 2)) },
	} {
		func() {
			defer func() {
				if r, ok := recover().(string); !ok || !strings.HasPrefix(r, "invroot: ") {
					t.Errorf("%s: recovered %v", name, r)
				}
			}()
			f()
		}()
	}
}

// FuzzInverseRoot feeds matrices of arbitrary bits: whatever happens, no NaN comes
// out, and no call hangs or writes on failure.
func FuzzInverseRoot(f *testing.F) {
	f.Add(uint8(3), uint8(0), []byte{0x3f, 0x80, 0, 0, 0x7f, 0xc0, 0, 0, 1, 2, 3, 4})
	f.Add(uint8(5), uint8(1), []byte("a matrix of letters"))
	f.Fuzz(func(t *testing.T, order, method uint8, data []byte) {
		n := int(order % 12)
		a, x := gemm.NewMatrix[float32](n, n), gemm.NewMatrix[float32](n, n)
		for i := range a.Data {
			if len(data) > 0 {
				var bits uint32
				for k := range 4 {
					bits = bits<<8 | uint32(data[(4*i+k)%len(data)])
				}
				a.Data[i] = math.Float32frombits(bits)
			}
		}
		s := newTestSolver[float32](t, n, Options{Method: Method(method % 3)})
		_, err := s.InverseRoot(context.Background(), x, a, 1+int(method%5))
		for _, v := range x.Data {
			if err != nil && v != 0 {
				t.Fatalf("error %v, but the output holds %v", err, v)
			}
			if v-v != 0 {
				t.Fatalf("the output holds %v", v)
			}
		}
	})
}

// Reserve makes the float64 part that a matrix would otherwise make, and changes
// nothing else.
func TestReserveMakesTheDoublePart(t *testing.T) {
	eng := gemm.New(1)
	defer eng.Close()
	const n = 48
	a := gemm.NewMatrix[float32](n, n)
	for i := range n {
		a.Data[i*n+i] = float32(i + 1)
	}
	var results [2]gemm.Matrix[float32]
	for i := range results {
		s, err := NewSolver[float32](eng, n, Options{Precision: Double})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if i == 1 {
			s.Reserve()
		}
		reserved := s.wide
		results[i] = gemm.NewMatrix[float32](n, n)
		if _, err := s.InverseRoot(t.Context(), results[i], a, 4); err != nil {
			t.Fatal(err)
		}
		if (s.wide == reserved) != (i == 1) {
			t.Errorf("reserved %v: the solver made its float64 part at the first matrix: %v", i == 1, s.wide != reserved)
		}
	}
	if !slices.Equal(results[0].Data, results[1].Data) {
		t.Error("Reserve changed a result")
	}
}
