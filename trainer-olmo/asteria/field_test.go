package asteria

import (
	"context"
	"io"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/invroot"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/tierctl/tierctltest"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// spy passes every refresh to look, with the solver that computes it.
type spy struct {
	look func(block string, next kron.Refresher[float32]) kron.Refresher[float32]
}

// Solver32 implements [Solvers].
func (s spy) Solver32(block string, next kron.Refresher[float32]) kron.Refresher[float32] {
	return s.look(block, next)
}

// Solver64 implements [Solvers].
func (s spy) Solver64(_ string, next kron.Refresher[float64]) kron.Refresher[float64] { return next }

// onRoot calls f in place of the solver's Root.
type onRoot struct {
	kron.Refresher[float32]
	f func(ctx context.Context, dst, a gemm.Matrix[float32], exponent float64) error
}

func (s onRoot) Root(ctx context.Context, dst, a gemm.Matrix[float32], exponent float64) error {
	return s.f(ctx, dst, a, exponent)
}

// rootOf is one side's inverse root in use.
func rootOf(t *testing.T, r *Runtime[float32], name string) []float32 {
	t.Helper()
	for _, s := range r.Sections() {
		if s.Name == name {
			return slices.Clone(s.F32)
		}
	}
	t.Fatalf("no section %s", name)
	return nil
}

// rankOne sets all gradients to scale times the same products u·vᵀ.
func rankOne(params []param.Param[float32], scale float64) {
	for _, p := range params {
		row := len(p.Grad)
		if n := len(p.Shape); n > 1 {
			row = p.Shape[n-1]
		}
		for i := range p.Grad {
			p.Grad[i] = float32(scale * (1 + float64(i/row%7)) * float64(1+i%row%5))
		}
	}
}

// Field failure A1 beside training: rank-one factors of any scale have finite roots,
// and the root of c*A is c^(-1/4) times that of A.
func TestA01_RankOneFactorsBesideTraining(t *testing.T) {
	const name = "kron/layers.0.q/root.0"
	var want []float32
	for _, c := range []float64{1, 1e-12, 1e12} { // of the factors
		o := asyncOptions(kron.Shampoo)
		o.Kron.MaxFailures = -1
		params := network[float32]()
		r := newRuntime(t, params, 1, o)
		for step := int64(1); step <= 16; step++ {
			rankOne(params, math.Sqrt(c))
			if err := r.Step(step, 0.01); err != nil {
				t.Fatal(err)
			}
		}
		if s := r.Totals(); s.Failed > 0 || s.Adopted == 0 {
			t.Fatalf("c %g: %+v", c, s)
		}
		got := rootOf(t, r, name)
		if want == nil {
			want = got
		}
		var diff, norm float64
		for i := range got {
			scaled := float64(got[i]) * math.Pow(c, 0.25)
			diff += (scaled - float64(want[i])) * (scaled - float64(want[i]))
			norm += float64(want[i]) * float64(want[i])
		}
		if !(math.Sqrt(diff/norm) < 1e-3) {
			t.Errorf("c %g: relative difference %g", c, math.Sqrt(diff/norm))
		}
	}
}

// Field failure A3 beside training: factors with eigenvalues of zero, from gradients
// with a single row, never put anything infinite into use.
func TestA03_ZeroEigenvaluesBesideTraining(t *testing.T) {
	for _, m := range methods {
		params := network[float32]()
		r := newRuntime(t, params, 2, asyncOptions(m))
		for step := int64(1); step <= 20; step++ {
			fill(params, 9, step)
			for _, p := range params {
				if len(p.Shape) > 0 {
					clear(p.Grad[len(p.Grad)/p.Shape[0]:])
				}
			}
			if err := r.Step(step, 0.01); err != nil {
				t.Fatal(err)
			}
		}
		if s := r.Totals(); s.Failed > 0 || s.Adopted == 0 {
			t.Errorf("%v: %+v", m, s)
		}
		for _, s := range r.Sections() {
			for _, v := range s.F32 {
				if v-v != 0 {
					t.Fatalf("%v: %s is not finite", m, s.Name)
				}
			}
		}
		for _, p := range params {
			for _, v := range p.Value {
				if v-v != 0 {
					t.Fatalf("%v: %s is not finite", m, p.Name)
				}
			}
		}
	}
}

// Field failure A4 beside training: what the workers are asked for is the fourth
// root for each side of a matrix, and what they return is that, compared with
// float64 on the very factors that they got.
func TestA04_WorkersReturnTheFourthRoot(t *testing.T) {
	eng := gemm.New(1)
	defer eng.Close()
	ref, err := invroot.NewSolver[float64](eng, 30, invroot.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ref.Close()
	var mu sync.Mutex
	compared := 0
	o := asyncOptions(kron.Shampoo)
	o.Solvers = spy{func(block string, next kron.Refresher[float32]) kron.Refresher[float32] {
		if block != "layers.0.q" {
			return next
		}
		return onRoot{next, func(ctx context.Context, dst, a gemm.Matrix[float32], exponent float64) error {
			n := a.Rows
			a64, want := gemm.NewMatrix[float64](n, n), gemm.NewMatrix[float64](n, n)
			for i := range n {
				for j := range n {
					a64.Data[i*n+j] = float64(a.At(i, j))
				}
			}
			err := next.Root(ctx, dst, a, exponent)
			mu.Lock()
			defer mu.Unlock()
			rep, rerr := ref.InversePower(ctx, want, a64, 0.25)
			if err != nil || rerr != nil || exponent != 0.25 || rep.Condition > 1e4 {
				if rep.Condition <= 1e4 {
					t.Errorf("exponent %g, %v, %v", exponent, err, rerr)
				}
				return err // rank-deficient ones are A1's and A2's
			}
			compared++
			var diff, norm float64
			for i := range n {
				for j := range n {
					d := float64(dst.At(i, j)) - want.Data[i*n+j]
					diff, norm = diff+d*d, norm+want.Data[i*n+j]*want.Data[i*n+j]
				}
			}
			if !(math.Sqrt(diff/norm) < 1e-4) {
				t.Errorf("relative error %g at condition %g", math.Sqrt(diff/norm), rep.Condition)
			}
			return nil
		}}
	}}
	params := network[float32]()
	r := newRuntime(t, params, 1, o)
	run(t, r, params, 1, 60)
	if err := r.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if compared < 20 {
		t.Errorf("%d roots compared", compared)
	}
}

// Field failure A9 beside training: gradients in bfloat16, widened. The average of
// a thousand of them in float32 is within 1 % of its limit, and so is what a worker
// gets.
func TestA09_BFloat16GradientsBesideTraining(t *testing.T) {
	const steps = 1000
	o := asyncOptions(kron.Shampoo)
	o.Betas, o.Frequency = [2]float64{0.9, 0.999}, 50
	params := []param.Param[float32]{tensor[float32]("w", param.Matrix, 6, 6)}
	fill(params, 51, 1)
	g := params[0].Grad
	for i, v := range g {
		g[i] = math.Float32frombits(math.Float32bits(v) &^ 0xffff) // truncated to bfloat16
	}
	var last atomic.Pointer[[]float32]
	o.Solvers = spy{func(_ string, next kron.Refresher[float32]) kron.Refresher[float32] {
		return onRoot{next, func(ctx context.Context, dst, a gemm.Matrix[float32], exponent float64) error {
			if last.Load() == nil || a.At(0, 0) > 0 {
				c := slices.Clone(a.Data)
				last.Store(&c)
			}
			return next.Root(ctx, dst, a, exponent)
		}}
	}}
	r := newRuntime(t, params, 1, o)
	for step := int64(1); step <= steps; step++ {
		if err := r.Step(step, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	raw := rootOf(t, r, "kron/w/factor.0")
	limit := 1 - math.Pow(0.999, steps)
	for i := range 6 {
		var want float64 // of the left factor
		for k := range 6 {
			want += float64(g[i*6+k]) * float64(g[i*6+k])
		}
		if got := float64(raw[i*6+i]) / limit; !(math.Abs(got-want) <= 0.01*want) {
			t.Errorf("factor entry %d is %g of its limit", i, got/want)
		}
	}
	if last.Load() == nil {
		t.Error("no worker got a factor")
	}
}

// Field failure A18 under the runtime: workers are handed a snapshot while steps go
// on changing the factors that it was taken from. Late, in any order, they read what
// was there when it was taken, and what they return is what is adopted: over more
// than 1,000 refreshes, with the bits of a run whose workers are prompt.
func TestA18_LateWorkersReadWhatWasSnapshotted(t *testing.T) {
	o := asyncOptions(kron.Shampoo)
	o.Async.Workers, o.Frequency, o.Async.Staleness = 3, 2, 2
	steps := int64(1100)
	if testing.Short() {
		steps = 300
	}
	var refreshed atomic.Int64
	late := o
	late.Solvers = spy{func(_ string, next kron.Refresher[float32]) kron.Refresher[float32] {
		return onRoot{next, func(ctx context.Context, dst, a gemm.Matrix[float32], exponent float64) error {
			before := slices.Clone(a.Data)
			for range refreshed.Add(1) * 2654435761 % 61 { // a delay of another length each time
				runtime.Gosched()
			}
			if !slices.Equal(before, a.Data) {
				t.Error("a snapshot changed while a worker had it")
			}
			err := next.Root(ctx, dst, a, exponent)
			clear(a.Data) // nobody reads it again
			return err
		}}
	}}
	var want map[string]string
	for _, o := range []Options{o, late} {
		params := network[float32]()
		r := newRuntime(t, params, 2, o)
		run(t, r, params, 1, steps)
		if err := r.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = bits(params, r)
			continue
		}
		same(t, "late workers", bits(params, r), want)
		if n := r.Totals().Adopted; n < steps {
			t.Errorf("%d adoptions", n)
		}
	}
}

// Field failure A22 under the runtime: hints for far more than the staging buffers
// hold, over and over, in tiers that hold one step's group. Nothing stops, nothing
// exceeds the budget, and the high-water mark is there to see.
func TestA22_HintsBeyondTheStagingBuffersStopNothing(t *testing.T) {
	o := asyncOptions(kron.SOAP)
	group := planOf(t, o).Group
	want := map[string]string(nil)
	for _, staging := range []int64{0, objectAlign, group} {
		o.Tiers = &Tiers{Host: group, Staging: staging, NVMe: &tierctltest.Memory{}}
		params := network[float32]()
		r := newRuntime(t, params, 2, o)
		for step := int64(1); step <= 30; step++ {
			for range 10 {
				r.Anticipate()
			}
			run(t, r, params, step, step)
		}
		if err := r.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		u := r.Tiers()
		if peak := u.Tiers[0].Peak; peak == 0 || peak > group || u.Tiers[0].Over > 0 {
			t.Errorf("staging %d: peak %d of %d", staging, peak, group)
		}
		if got := bits(params, r); want == nil {
			want = got
		} else {
			same(t, "staging", got, want)
		}
	}
}

// Field failure A23 under the runtime: locked memory is asked for only when it is
// configured, costs no more than ordinary memory, and where the system refuses it
// one warning is all.
func TestA23_PinnedTiersKeepTheBudgetAndTheBits(t *testing.T) {
	o := asyncOptions(kron.SOAP)
	group := planOf(t, o).Group
	var want map[string]string
	for _, pinned := range []bool{false, true} {
		var log strings.Builder
		o.Tiers = &Tiers{Host: group, Pinned: pinned, NVMe: &tierctltest.Memory{}, Logger: textLog(&log)}
		params := network[float32]()
		r := newRuntime(t, params, 1, o)
		run(t, r, params, 1, 12)
		if err := r.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if u := r.Tiers().Tiers[0]; u.Peak > group {
			t.Errorf("pinned %v: peak %d of %d", pinned, u.Peak, group)
		}
		if n := strings.Count(log.String(), "level=WARN"); n > 1 || n > 0 && !pinned {
			t.Errorf("pinned %v: %s", pinned, log.String())
		}
		if got := bits(params, r); want == nil {
			want = got
		} else {
			same(t, "pinned", got, want)
		}
	}
}

func textLog(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }
