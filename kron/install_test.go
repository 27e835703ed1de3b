package kron_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/kron/krontest"
)

// flaky fails the calls that fail says, counted from 1, and passes the others on.
type flaky struct {
	kron.Refresher[float64]
	calls int
	fail  func(call int) error
}

func (f *flaky) next() error {
	f.calls++
	return f.fail(f.calls)
}

func (f *flaky) Root(ctx context.Context, dst, a gemm.Matrix[float64], exponent float64) error {
	if err := f.next(); err != nil {
		return err
	}
	return f.Refresher.Root(ctx, dst, a, exponent)
}

func (f *flaky) Eigen(ctx context.Context, q gemm.Matrix[float64], w []float64, a gemm.Matrix[float64], descending bool) error {
	if err := f.next(); err != nil {
		return err
	}
	return f.Refresher.Eigen(ctx, q, w, a, descending)
}

func (f *flaky) Iterate(ctx context.Context, q, a gemm.Matrix[float64], perm []int) error {
	if err := f.next(); err != nil {
		return err
	}
	return f.Refresher.Iterate(ctx, q, a, perm)
}

var errSolver = errors.New("ill-conditioned")

// Field failure A2: a failing solver never aborts a step; the previous roots
// stay in use, failures are counted per block, and only a run of them longer
// than the limit is an error, which names the block.
func TestA02_FailedRefreshKeepsTheRoots(t *testing.T) {
	for _, m := range []kron.Method{kron.Shampoo, kron.SOAP, kron.KLShampoo} {
		// Two modes a refresh: refreshes 2 and 3 fail, 4 succeeds.
		solver := &flaky{Refresher: krontest.Reference[float64]{Ridge: 1e-6}, fail: func(call int) error {
			if call > 2 && call <= 6 {
				return errSolver
			}
			return nil
		}}
		r := newRigWith[float64](t, []int{4, 3}, kron.Options{Method: m, Every: 1}, solver)
		g := gradients[float64](41, 4, 12)
		r.step(g[0], 0.01)
		root := append([]float64(nil), r.state.Root[0]...)
		r.step(g[1], 0.01)
		r.step(g[2], 0.01)
		if !sameBits(root, r.state.Root[0]) {
			t.Errorf("%v: a failed refresh changed the root", m)
		}
		if meta := r.state.Meta; meta.Failed() != 2 || meta.Consecutive() != 2 || meta.Version(0) != 1 || meta.AsOf(0) != 1 {
			t.Errorf("%v: failed %d, consecutive %d, version %d as of %d", m, meta.Failed(), meta.Consecutive(), meta.Version(0), meta.AsOf(0))
		}
		r.step(g[3], 0.01)
		if meta := r.state.Meta; meta.Failed() != 2 || meta.Consecutive() != 0 || meta.Version(0) != 2 || meta.AsOf(0) != 4 {
			t.Errorf("%v after success: failed %d, consecutive %d, version %d as of %d", m, meta.Failed(), meta.Consecutive(), meta.Version(0), meta.AsOf(0))
		}
	}
}

func TestA02_TooManyFailuresNameTheBlock(t *testing.T) {
	solver := &flaky{Refresher: krontest.Reference[float64]{}, fail: func(int) error { return errSolver }}
	for _, limit := range []int{2, -1} {
		o := kron.Options{Method: kron.Shampoo, Every: 1, MaxFailures: limit}
		r := newRigWith[float64](t, []int{4, 3}, o, solver)
		var err error
		failures := 0
		for _, g := range gradients[float64](42, 6, 12) {
			w, v := kron.ViewOf(r.param, 4, 3), kron.ViewOf(g, 4, 3)
			failures++
			if _, err = r.worker.Step(context.Background(), r.block, r.state, w, v, 0.01); err != nil {
				break
			}
		}
		if limit < 0 {
			if err != nil {
				t.Errorf("unlimited: %v", err)
			}
			continue
		}
		var refresh *kron.RefreshError
		if !errors.As(err, &refresh) || !errors.Is(err, kron.ErrRefresh) || !errors.Is(err, errSolver) {
			t.Fatalf("got %v", err)
		}
		if failures != limit+1 || refresh.Block != "test" || refresh.Consecutive != int64(limit+1) || !strings.Contains(err.Error(), "block test") {
			t.Errorf("after %d failures: %v", failures, err)
		}
		if !finite(r.param) {
			t.Error("parameters are not finite")
		}
	}
}

// One mode may fail while the other is renewed.
func TestModesFailAlone(t *testing.T) {
	solver := &flaky{Refresher: krontest.Reference[float64]{Ridge: 1e-6}, fail: func(call int) error {
		if call == 4 {
			return errSolver
		}
		return nil
	}}
	r := newRigWith[float64](t, []int{4, 3}, kron.Options{Method: kron.Shampoo, Every: 1}, solver)
	for _, g := range gradients[float64](43, 2, 12) {
		r.step(g, 0.01)
	}
	if m := r.state.Meta; m.Version(0) != 2 || m.Version(1) != 1 || m.Failed() != 1 || m.Refreshes() != 2 {
		t.Errorf("versions %d and %d, %d failed, %d adopted", m.Version(0), m.Version(1), m.Failed(), m.Refreshes())
	}
}

// A factor or a result that is not finite is a failure like any other.
func TestNonFiniteNumbersAreNotInstalled(t *testing.T) {
	nan := &flaky{Refresher: poison{}, fail: func(int) error { return nil }}
	for name, run := range map[string]func(r *rig[float64]) error{
		"result": func(r *rig[float64]) error {
			r.worker.Solver = nan
			job := r.block.NewJob()
			if err := r.block.Snapshot(r.state, &job.Snapshot); err != nil {
				return err
			}
			err := r.block.Refresh(context.Background(), nan, r.worker.Ops, &job.Snapshot, &job.Result)
			if e := r.block.Install(r.state, &job.Result, r.worker.Ops, r.worker.Scratch); e != nil {
				return e
			}
			return err
		},
		"factor": func(r *rig[float64]) error {
			r.state.Factor[1][3] = math.Inf(1)
			err := r.block.Snapshot(r.state, &r.block.NewJob().Snapshot)
			if e := r.block.Fail(r.state, 1, err); e != nil {
				return e
			}
			return err
		},
	} {
		r := newRig[float64](t, []int{4, 3}, kron.Options{Every: 1})
		for _, g := range gradients[float64](44, 3, 12) {
			r.step(g, 0.01)
		}
		root := append([]float64(nil), r.state.Root[0]...)
		err := run(r)
		if !errors.Is(err, kron.ErrNonFinite) || !strings.Contains(err.Error(), "block test") {
			t.Errorf("%s: %v", name, err)
		}
		if !sameBits(root, r.state.Root[0]) || r.state.Meta.Failed() != 1 {
			t.Errorf("%s: installed, or not counted (%d)", name, r.state.Meta.Failed())
		}
	}
}

// poison returns NaN without an error, which a solver must not do.
type poison struct{ kron.Refresher[float64] }

func (poison) Iterate(_ context.Context, q, _ gemm.Matrix[float64], _ []int) error {
	q.Set(0, 0, math.NaN())
	return nil
}

// relabel returns the same basis with columns in another order and with other
// signs, and says so in perm.
type relabel struct {
	kron.Refresher[float64]
	order []int // new column j is the inner solver's column order[j]; nil keeps them
}

func (s relabel) Iterate(ctx context.Context, q, a gemm.Matrix[float64], perm []int) error {
	if err := s.Refresher.Iterate(ctx, q, a, perm); err != nil || len(s.order) != q.Cols {
		return err
	}
	inner := append([]float64(nil), q.Data...)
	old := append([]int(nil), perm...)
	for j, from := range s.order {
		sign := 1 - 2*float64(j%2)
		for i := range q.Rows {
			q.Set(i, j, sign*inner[i*q.Cols+from])
		}
		perm[j] = old[from]
	}
	return nil
}

// Field failure A7: a refresh that returns the basis with columns permuted and
// signs flipped gives the same parameters, because the moments move with it.
func TestA07_PermutedBasisMovesTheMoments(t *testing.T) {
	const n = 4
	for _, space := range []kron.MomentumSpace{kron.MomentumOriginal, kron.MomentumEigen} {
		for _, dims := range [][]int{{n, n}, {n, 3}, {3, n, 2}} {
			o := kron.Options{Every: 1, Momentum: space}
			plain := newRigWith[float64](t, dims, o, krontest.Reference[float64]{})
			mixed := newRigWith[float64](t, dims, o, relabel{krontest.Reference[float64]{}, []int{2, 0, 3, 1}})
			// Start with full-rank factors, so that QR has one answer.
			for _, r := range []*rig[float64]{plain, mixed} {
				for k := range r.block.Modes() {
					d := r.block.FactorOrder(k)
					for i := range d {
						r.state.Factor[k][i*d+i] = float64(1+i) / 2
					}
				}
			}
			// The relabelled basis is sorted back by the next refresh, so that
			// two effective steps show whether the moments came along.
			for step, g := range gradients[float64](45, 4, plain.block.Len()) {
				plain.step(g, 0.01)
				mixed.step(g, 0.01)
				if d := diff(plain.param, mixed.param); !(d < 1e-10) {
					t.Fatalf("momentum %d, %v: step %d differs by %g", space, dims, step, d)
				}
			}
		}
	}
}

// A permutation applied to moments of another basis would scramble them without
// a sign, so a late result from a replaced basis is discarded and counted.
func TestResultsFromAReplacedBasisAreDiscarded(t *testing.T) {
	for _, o := range []kron.Options{{Every: 1}, {Method: kron.KLSOAP, Every: 1}, {Method: kron.EigenShampoo, Every: 1, Start: 1}} {
		r := newRig[float64](t, []int{4, 3}, o)
		for _, g := range gradients[float64](46, 3, 12) {
			r.step(g, 0.01)
		}
		late, newer := r.finishedJob(), r.finishedJob()
		r.install(newer)
		version, root := r.state.Meta.Version(0), append([]float64(nil), r.state.Root[0]...)
		second := append([]float64(nil), r.state.Second...)
		r.install(late)
		if r.state.Meta.Version(0) != version || !sameBits(root, r.state.Root[0]) || !sameBits(second, r.state.Second) {
			t.Errorf("%v: the late result was adopted", o.Method)
		}
		if r.state.Meta.Discarded() != 2 {
			t.Errorf("%v: %d modes counted as discarded, want 2", o.Method, r.state.Meta.Discarded())
		}
	}
}

// Inverse roots do not depend on a base, but a late one never replaces a newer.
func TestOlderRootsNeverReplaceNewerOnes(t *testing.T) {
	r := newRig[float64](t, []int{4, 3}, kron.Options{Method: kron.Shampoo, Every: 1})
	g := gradients[float64](47, 3, 12)
	r.step(g[0], 0.01)
	late := r.finishedJob()
	r.step(g[1], 0.01)
	root := append([]float64(nil), r.state.Root[0]...)
	r.install(late)
	if !sameBits(root, r.state.Root[0]) || r.state.Meta.Discarded() != 2 || r.state.Meta.AsOf(0) != 2 {
		t.Errorf("discarded %d, as of %d", r.state.Meta.Discarded(), r.state.Meta.AsOf(0))
	}
}

func (r *rig[T]) finishedJob() *kron.Job[T] {
	r.t.Helper()
	job := r.block.NewJob()
	if err := r.block.Snapshot(r.state, &job.Snapshot); err != nil {
		r.t.Fatal(err)
	}
	if err := r.block.Refresh(context.Background(), r.worker.Solver, r.worker.Ops, &job.Snapshot, &job.Result); err != nil {
		r.t.Fatal(err)
	}
	return job
}

func (r *rig[T]) install(job *kron.Job[T]) {
	r.t.Helper()
	if err := r.block.Install(r.state, &job.Result, r.worker.Ops, r.worker.Scratch); err != nil {
		r.t.Fatal(err)
	}
}

// A snapshot is a copy: steps that follow do not reach it, and refreshing it
// later gives the same bits.
func TestSnapshotsAreImmutable(t *testing.T) {
	for name, o := range everyMethod() {
		o.Start = 1
		r := newRig[float64](t, []int{4, 3}, o)
		g := gradients[float64](48, 6, 12)
		for _, x := range g[:4] {
			r.step(x, 0.01)
		}
		early, late := r.block.NewJob(), r.block.NewJob()
		for _, job := range []*kron.Job[float64]{early, late} {
			if err := r.block.Snapshot(r.state, &job.Snapshot); err != nil {
				t.Fatal(err)
			}
		}
		refresh := func(job *kron.Job[float64]) {
			if err := r.block.Refresh(context.Background(), r.worker.Solver, r.worker.Ops, &job.Snapshot, &job.Result); err != nil {
				t.Fatal(err)
			}
		}
		refresh(early)
		r.step(g[4], 0.01)
		r.step(g[5], 0.01)
		refresh(late)
		for k := range r.block.Modes() {
			if !sameBits(early.Result.Root[k], late.Result.Root[k]) {
				t.Errorf("%s: a later step reached the snapshot", name)
			}
		}
		if early.Snapshot.AsOf != 4 {
			t.Errorf("%s: as of %d, want 4", name, early.Snapshot.AsOf)
		}
	}
}

// An adoption that exchanges buffers leaves the old result untouched in the
// spare slot: readers of the published value are not surprised.
func TestInstallReturnsTheOldBufferAsSpare(t *testing.T) {
	r := newRig[float64](t, []int{4, 3}, kron.Options{Every: 1})
	for _, g := range gradients[float64](49, 2, 12) {
		r.step(g, 0.01)
	}
	published := r.state.Root[0]
	copyOf := append([]float64(nil), published...)
	job := r.finishedJob()
	r.install(job)
	if &job.Result.Root[0][0] != &published[0] || !sameBits(published, copyOf) {
		t.Error("the published basis was written, or is not the spare slot")
	}
}

// Field failure A5: a gradient of zeros moves nothing, whenever it comes; the
// factors decay and the step counts.
func TestA05_ZeroGradients(t *testing.T) {
	for name, o := range everyMethod() {
		o.WeightDecay = 0
		for _, zeroAt := range []int{0, 4} {
			r := newRig[float64](t, []int{4, 3}, o)
			g := gradients[float64](50, 9, 12)
			clear(g[zeroAt])
			for i, x := range g {
				before := append([]float64(nil), r.param...)
				factor := r.state.Factor[0][0]
				r.step(x, 0.01)
				if !finite(r.param) {
					t.Fatalf("%s: step %d is not finite", name, i)
				}
				if i != zeroAt {
					continue
				}
				if zeroAt == 0 && !sameBits(before, r.param) {
					t.Errorf("%s: a zero gradient at the first step moved the parameter", name)
				}
				sum := o.Betas[1] == 1
				if f := r.state.Factor[0][0]; i > 0 && !sum && !(f < factor) {
					t.Errorf("%s: the factor went from %g to %g", name, factor, f)
				}
				if r.state.Meta.Calls() != int64(i+1) {
					t.Errorf("%s: %d calls counted", name, r.state.Meta.Calls())
				}
			}
		}
	}
}

// With every gradient zero nothing ever moves, except by weight decay.
func TestA05_FrozenBlockOnlyDecays(t *testing.T) {
	for name, o := range everyMethod() {
		o.WeightDecay = 0.5
		r := newRig[float64](t, []int{4, 3}, o)
		want := append([]float64(nil), r.param...)
		for range 7 {
			r.step(make([]float64, 12), 0.1)
		}
		steps := float64(r.state.Meta.Step())
		if o.Decay == kron.L2 {
			continue // the decay is a gradient then
		}
		for i := range want {
			want[i] *= math.Pow(1-0.1*0.5, steps)
		}
		if d := diff(want, r.param); !(d < 1e-14) {
			t.Errorf("%s: differs from pure decay by %g", name, d)
		}
	}
}

// Field failure A9: bfloat16 gradients, widened, against float32 factors. With
// β2 = .999 an average in bfloat16 would stall at a third of the result.
func TestA09_BFloat16Gradients(t *testing.T) {
	const n, steps = 6, 1000
	g := gradients[float32](51, 1, n*n)[0]
	for i, v := range g {
		// The upper half of a float32 is its truncation to bfloat16.
		g[i] = math.Float32frombits(math.Float32bits(v) &^ 0xffff)
	}
	want := make([]float64, n*n)
	for i := range n {
		for j := range n {
			for k := range n {
				want[i*n+j] += float64(g[i*n+k]) * float64(g[j*n+k])
			}
		}
	}
	o := kron.Options{Method: kron.Shampoo, Betas: [2]float64{0.9, 0.999}, Every: steps}
	r := newRig[float32](t, []int{n, n}, o)
	for range steps {
		r.step(g, 0)
	}
	job := r.finishedJob() // bias corrected
	for i, w := range want {
		got := float64(job.Snapshot.Factor[0][i])
		scale := math.Sqrt(want[i/n*n+i/n] * want[i%n*n+i%n])
		if !(math.Abs(got-w) <= 0.01*scale) {
			t.Errorf("factor entry %d is %g, want %g", i, got, w)
		}
	}
	raw := float64(r.state.Factor[0][0]) / want[0]
	if exact := 1 - math.Pow(0.999, steps); !(math.Abs(raw-exact) < 1e-3) {
		t.Errorf("uncorrected factor reached %g of its limit, want %g", raw, exact)
	}
}

// KL with a full decomposition: column identity is lost, so the job's own
// eigenvalues replace the tracked ones.
func TestEighReplacesKLEigenvalues(t *testing.T) {
	r := newRig[float64](t, []int{4, 4}, kron.Options{Method: kron.KLShampoo, Every: 3, Basis: kron.RefreshEigh, NoClamp: true})
	for _, g := range gradients[float64](52, 10, 16) {
		r.step(g, 0.01)
	}
	if !r.block.Due(r.state.Meta) {
		t.Fatal("the last step should have refreshed")
	}
	job := r.finishedJob()
	r.install(job)
	for i, lambda := range job.Result.Values[0] {
		if got := r.state.Gain[0][i]; math.Abs(got*got*lambda-1) > 1e-12 {
			t.Errorf("gain %d is %g for eigenvalue %g", i, got, lambda)
		}
	}
}

func finite[T gemm.Float](x []T) bool {
	for _, v := range x {
		if v-v != 0 {
			return false
		}
	}
	return true
}

func TestRefreshErrorsReadWell(t *testing.T) {
	err := &kron.RefreshError{Block: "q_proj.weight", Mode: 1, Consecutive: 4, Err: errSolver}
	want := "kron: block q_proj.weight: 4 consecutive refreshes failed, last in mode 1: ill-conditioned"
	if got := fmt.Sprint(err); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// The first basis may be adopted late, too: the momentum of the steps between,
// in the identity's basis, then comes along.
func TestLateFirstBasisMovesTheMomentum(t *testing.T) {
	for _, dims := range [][]int{{4, 4}, {5, 2}} {
		var params [2][]float64
		for i, space := range []kron.MomentumSpace{kron.MomentumOriginal, kron.MomentumEigen} {
			r := newRig[float64](t, dims, kron.Options{Every: 100, Momentum: space})
			var job *kron.Job[float64]
			for call, g := range gradients[float64](53, 6, r.block.Len()) {
				w, v := kron.ViewOf(r.param, dims...), kron.ViewOf(g, dims...)
				r.block.Begin(r.state, w, v, 0.01, r.worker.Ops, r.worker.Scratch)
				switch call {
				case 0:
					job = r.finishedJob()
				case 3:
					r.install(job)
				}
			}
			params[i] = r.param
		}
		if d := diff(params[0], params[1]); !(d < 1e-12) {
			t.Errorf("%v: differs by %g", dims, d)
		}
	}
}

// Adopt and then Move are Install, to the bit: with the job's rotation and by way of
// the original space, for one side or all of them, and with moments yet to come.
func TestMoveIsTheRestOfAnInstall(t *testing.T) {
	for name, o := range everyMethod() {
		for _, dims := range [][]int{{4, 3}, {7, 3}, {5, 1}, {2, 5, 2}} {
			for _, spared := range []int{-1, 0, 1} {
				whole, halves := newRig[float64](t, dims, o), newRig[float64](t, dims, o)
				sc := kron.NewMoveScratch(halves.block)
				for step, x := range gradients[float64](51, 8, whole.block.Len()) {
					whole.step(x, 0.01)
					halves.step(x, 0.01)
					job, other := whole.finishedJob(), halves.finishedJob()
					if k := spared; k >= 0 && k < whole.block.Modes() && whole.block.FactorOrder(k) > 0 {
						job.Result.Err[k], other.Result.Err[k] = errSolver, errSolver
					}
					whole.install(job)
					m, err := halves.block.Adopt(halves.state, &other.Result, halves.worker.Ops)
					if err != nil {
						t.Fatal(err)
					}
					if m.Pending() {
						halves.block.Move(halves.state, &other.Result, m, halves.worker.Ops, sc)
					}
					if !reflect.DeepEqual(whole.state, halves.state) {
						t.Fatalf("%s, %v without side %d: the states differ after step %d", name, dims, spared, step)
					}
				}
			}
		}
	}
}

// A shared result would lose the bases that the move reads.
func TestAdoptRefusesSharedResults(t *testing.T) {
	r := newRig[float64](t, []int{4, 3}, kron.Options{Every: 1})
	r.step(gradients[float64](52, 1, 12)[0], 0.01)
	job := r.finishedJob()
	job.Result.Shared = true
	before := *r.state.Meta
	if _, err := r.block.Adopt(r.state, &job.Result, r.worker.Ops); err == nil || !strings.Contains(err.Error(), "block test") {
		t.Errorf("got %v", err)
	}
	if *r.state.Meta != before {
		t.Error("the result was counted")
	}
}
