package asteria

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/invroot"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/kron/krontest"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// The recorded runs with delayed refreshes, through the runtime: workers beside
// training, adoption by the registry's schedule.
func TestGoldenStaleThroughTheRuntime(t *testing.T) {
	cases := krontest.Trajectories(t, krontest.Dir("testdata/golden"), "stale_*.json")
	late := 0
	for _, c := range cases {
		for _, space := range []kron.MomentumSpace{kron.MomentumOriginal, kron.MomentumEigen} {
			t.Run(fmt.Sprintf("%s/momentum%d", c.Name, space), func(t *testing.T) { late += playStale(t, c, space) })
		}
	}
	if late == 0 && len(cases) > 0 {
		t.Error("no refresh was adopted late")
	}
}

// playStale runs one case and returns how many refreshes were adopted late.
func playStale(t *testing.T, c krontest.Trajectory, space kron.MomentumSpace) int {
	if c.Delay > c.Options.Every {
		t.Skipf("a delay of %d calls is above the interval %d: two refreshes would be in flight", c.Delay, c.Options.Every)
	}
	o := Options{
		Method: c.Options.Method, Kron: c.Options, Frequency: c.Options.Every, MaxPrecondDim: c.Options.MaxDim,
		OriginalMomentum: space == kron.MomentumOriginal,
		Mode:             Asteria,
		Async:            Async{Staleness: max(1, c.Delay), Lag: c.Delay, LagStart: -1, Workers: 2},
		Solver:           invroot.Options{Ridge: invroot.Ridge{Kind: invroot.Absolute, Value: c.Ridge}},
	}
	if c.Delay == 0 {
		o.Async.Lag = -1
	}
	o.test.lateFirst = c.LateFirst
	first := &recorded{next: c.First}
	o = with(o, func(s kron.Refresher[float64]) kron.Refresher[float64] { return &injector{s, first} })
	p := param.Param[float64]{Name: c.Name, Shape: c.Shape, Value: append([]float64(nil), c.Param0...), Grad: make([]float64, len(c.Param0))}
	eng := gemm.New(1)
	defer eng.Close()
	r, err := New([]param.Param[float64]{p}, eng, o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if len(r.units) == 0 {
		t.Skipf("shape %v has no block of its own in the runtime", c.Shape)
	}
	for call, want := range c.Want {
		copy(p.Grad, c.Grads[call])
		if err := r.Step(int64(call)+1, c.LR); err != nil {
			t.Fatal(err)
		}
		for i, w := range want {
			if d := math.Abs(p.Value[i] - w); !(d <= c.Tolerance) {
				t.Fatalf("element %d after call %d differs by %g, want at most %g", i, call+1, d, c.Tolerance)
			}
		}
	}
	s := r.Totals()
	if c.Delay > 0 && s.AdoptedAfter != c.Delay {
		t.Errorf("adopted after %d calls, want %d", s.AdoptedAfter, c.Delay)
	}
	return int(s.Adopted)
}

// recorded holds eigenvectors for the first decompositions, which run inside the
// first step.
type recorded struct{ next [][]float64 }

// injector is a solver whose first decompositions are recorded ones.
type injector struct {
	kron.Refresher[float64]
	first *recorded
}

func (s *injector) Eigen(ctx context.Context, q gemm.Matrix[float64], w []float64, a gemm.Matrix[float64], descending bool) error {
	if err := s.Refresher.Eigen(ctx, q, w, a, descending); err != nil || len(s.first.next) == 0 {
		return err
	}
	copy(q.Data, s.first.next[0]) // the runtime's matrices are packed
	s.first.next = s.first.next[1:]
	return nil
}
