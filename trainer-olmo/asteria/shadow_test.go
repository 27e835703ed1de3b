package asteria

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asteria-runtime/asteria/coherreg"
	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/hooks"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// asyncOptions are late from the second interval on.
func asyncOptions(m kron.Method) Options {
	return Options{
		Method: m, Frequency: 4, WeightDecay: 0.1, Mode: Asteria,
		Async: Async{Staleness: 3, LagStart: 5, Workers: 1},
	}
}

// with returns o with its solver replaced.
func with[T gemm.Float](o Options, wrap func(kron.Refresher[T]) kron.Refresher[T]) Options {
	o.test.solver = wrap
	return o
}

// unsteady is a solver whose calls take a random time.
type unsteady struct {
	kron.Refresher[float32]
	mu  *sync.Mutex
	rng *rand.Rand
}

func (s *unsteady) pause() {
	s.mu.Lock()
	d := time.Duration(s.rng.IntN(400)) * time.Microsecond
	s.mu.Unlock()
	time.Sleep(d)
}

func (s *unsteady) Root(ctx context.Context, dst, a gemm.Matrix[float32], exponent float64) error {
	s.pause()
	return s.Refresher.Root(ctx, dst, a, exponent)
}

func (s *unsteady) Iterate(ctx context.Context, q, a gemm.Matrix[float32], perm []int) error {
	s.pause()
	return s.Refresher.Iterate(ctx, q, a, perm)
}

// jittery makes every refresh take a random time.
func jittery(o Options, seed uint64) Options {
	mu, rng := new(sync.Mutex), rand.New(rand.NewPCG(seed, 3))
	return with(o, func(s kron.Refresher[float32]) kron.Refresher[float32] {
		return &unsteady{Refresher: s, mu: mu, rng: rng}
	})
}

// Nothing late is the native optimizer, bit for bit: with a budget of zero, with a
// lag of zero, and before the first step that may be late.
func TestZeroStalenessIsNative(t *testing.T) {
	for _, m := range methods {
		for _, stagger := range []bool{false, true} {
			o := asyncOptions(m)
			o.Stagger = stagger
			native := o
			native.Mode = Native
			params := network[float32]()
			r := newRuntime(t, params, 2, native)
			run(t, r, params, 1, 15)
			want := bits(params, r)
			for name, a := range map[string]Async{
				"staleness": {Staleness: -1, LagStart: -1},
				"lag":       {Lag: -1, LagStart: -1},
				"start":     {LagStart: 100},
				"ready":     {Staleness: -1, LagStart: -1, Adopt: Ready},
			} {
				o.Async = a
				params := network[float32]()
				r := newRuntime(t, params, 2, o)
				run(t, r, params, 1, 15)
				same(t, fmt.Sprintf("%v %s", m, name), bits(params, r), want)
			}
		}
	}
}

// What a scheduled run computes depends neither on the number of workers and
// threads nor on when refreshes end.
func TestScheduleDecidesTheBits(t *testing.T) {
	for _, m := range methods {
		for _, stagger := range []bool{false, true} {
			o := asyncOptions(m)
			o.Stagger = stagger
			var want map[string]string
			for i, c := range []struct {
				workers, threads int
				paced            bool
			}{{1, 1, false}, {2, 2, false}, {8, 2, true}, {1, 2, true}} {
				o.Async.Workers, o.Async.Paced = c.workers, c.paced
				params := network[float32]()
				r := newRuntime(t, params, c.threads, jittery(o, uint64(i)))
				run(t, r, params, 1, 22)
				if i == 0 {
					want = bits(params, r)
					if s := r.Totals(); s.Adopted == 0 || s.AdoptedAfter != 3 || s.Failed != 0 || s.Discarded != 0 {
						t.Fatalf("%v: %+v", m, s)
					}
					continue
				}
				same(t, fmt.Sprintf("%v, %+v", m, c), bits(params, r), want)
			}
			native := o
			native.Mode = Native
			params := network[float32]()
			r := newRuntime(t, params, 1, native)
			run(t, r, params, 1, 22)
			if got := bits(params, r); got["param/layers.0.q"] == want["param/layers.0.q"] {
				t.Errorf("%v: late adoption changed nothing: the test is void", m)
			}
		}
	}
}

// Every refresh is adopted exactly Lag steps after its snapshot, whatever the
// lag, up to the whole interval.
func TestAdoptionsKeepTheSchedule(t *testing.T) {
	for _, m := range methods {
		for lag := int64(1); lag <= 4; lag++ {
			o := asyncOptions(m)
			var log []coherreg.Adoption
			o.Async = Async{Staleness: 5, Lag: lag, LagStart: 6, Observer: Observer{
				Adopted: func(a coherreg.Adoption) { log = append(log, a) },
			}}
			params := network[float32]()
			r := newRuntime(t, params, 1, jittery(o, uint64(lag)))
			run(t, r, params, 1, 21)
			perBlock := make([]int, len(r.units))
			for _, a := range log {
				if a.Step-a.AsOf != lag || a.AsOf < 6 || a.Version == 0 {
					t.Fatalf("%v, lag %d: %+v", m, lag, a)
				}
				perBlock[a.Block]++
			}
			for i, n := range perBlock {
				if n < 3 || n > 4 {
					t.Errorf("%v, lag %d: block %d adopted %d times", m, lag, i, n)
				}
			}
			if s := r.Totals(); s.Discarded != 0 || s.Coalesced != 0 {
				t.Errorf("%v, lag %d: %+v", m, lag, s)
			}
		}
	}
}

// move copies the whole state of r into a new runtime, as a checkpoint does.
func move(t *testing.T, r *Runtime[float32], params []param.Param[float32], threads int, o Options) (*Runtime[float32], []param.Param[float32]) {
	t.Helper()
	if err := r.Settle(context.Background()); err != nil {
		t.Fatal(err)
	}
	resumed := network[float32]()
	q := newRuntime(t, resumed, threads, o)
	for i, p := range params {
		copy(resumed[i].Value, p.Value)
	}
	from, to := append(r.Sections(), r.PendingSections()...), append(q.Sections(), q.PendingSections()...)
	if len(from) != len(to) {
		t.Fatalf("%d sections, want %d", len(to), len(from))
	}
	for i, s := range from {
		if to[i].Name != s.Name || len(to[i].I64) != len(s.I64) {
			t.Fatalf("section %d is %s, want %s", i, to[i].Name, s.Name)
		}
		copySection(t, to[i], s)
	}
	r.Close()
	if err := q.Restored(); err != nil {
		t.Fatal(err)
	}
	return q, resumed
}

// A run that is moved twice, with refreshes in flight, has the bits of one that
// was not; so has the schedule of what comes after.
func TestPendingRefreshesSurviveAMove(t *testing.T) {
	for _, m := range methods {
		for _, stagger := range []bool{false, true} {
			o := asyncOptions(m)
			o.Stagger = stagger
			params := network[float32]()
			whole := newRuntime(t, params, 1, jittery(o, 1))
			run(t, whole, params, 1, 40)

			moved := network[float32]()
			r := newRuntime(t, moved, 2, jittery(o, 2))
			pending := int64(0)
			for _, part := range [][2]int64{{1, 13}, {14, 27}, {28, 40}} {
				run(t, r, moved, part[0], part[1])
				pending += r.Totals().InFlight
				if part[1] < 40 {
					o.Async.Workers = 2
					r, moved = move(t, r, moved, 1, jittery(o, uint64(part[1])))
				}
			}
			if pending == 0 {
				t.Fatalf("%v: nothing was in flight: the test is void", m)
			}
			same(t, m.String(), bits(moved, r), bits(params, whole))
			for i, h := range r.Health() {
				w := whole.Health()[i]
				if h.Age != w.Age || h.Version != w.Version || h.Staleness != w.Staleness || h.Refreshes != w.Refreshes {
					t.Errorf("%v: %+v, want %+v", m, h, w)
				}
			}
		}
	}
}

// A damaged schedule is refused by the name of its block.
func TestRestoredRefusesDamage(t *testing.T) {
	for name, damage := range map[string]func(meta, perm []int64){
		"state 9":           func(meta, _ []int64) { meta[pendState] = 9 },
		"state -1":          func(meta, _ []int64) { meta[pendState] = -1 },
		"step 99":           func(meta, _ []int64) { meta[pendAsOf] = 99 },
		"step 0":            func(meta, _ []int64) { meta[pendAsOf] = 0 },
		"not a permutation": func(_, perm []int64) { perm[0] = perm[1] },
		"permutation":       func(_, perm []int64) { perm[0] = -4 },
	} {
		params := network[float32]()
		r := newRuntime(t, params, 1, asyncOptions(kron.SOAP))
		run(t, r, params, 1, 10)
		if err := r.Settle(context.Background()); err != nil {
			t.Fatal(err)
		}
		q := newRuntime(t, network[float32](), 1, asyncOptions(kron.SOAP))
		to := append(q.Sections(), q.PendingSections()...)
		var meta, perm []int64
		for i, s := range append(r.Sections(), r.PendingSections()...) {
			copy(to[i].F32, s.F32)
			copy(to[i].I64, s.I64)
			switch s.Name {
			case "pending/layers.0.up/meta":
				meta = to[i].I64
			case "pending/layers.0.up/perm.0":
				perm = to[i].I64
			}
		}
		if meta[pendState] != stateResult {
			t.Fatal("nothing is in flight: the test is void")
		}
		damage(meta, perm)
		if err := q.Restored(); err == nil || !strings.Contains(err.Error(), "block layers.0.up") || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// gate is a solver that waits at a gate for one block, told by its factor's
// order; the workers' calls only.
type gate[T gemm.Float] struct {
	kron.Refresher[T]
	order int
	wait  func(ctx context.Context) error
}

func (g *gate[T]) Root(ctx context.Context, dst, a gemm.Matrix[T], exponent float64) error {
	if a.Rows == g.order {
		if err := g.wait(ctx); err != nil {
			return err
		}
	}
	return g.Refresher.Root(ctx, dst, a, exponent)
}

// gated closes the gate for the block layers.0.up, whose first factor alone has
// order 30, once open is false.
func gated(o Options, closed *atomic.Bool, wait func(ctx context.Context) error) Options {
	return with(o, func(s kron.Refresher[float32]) kron.Refresher[float32] {
		return &gate[float32]{Refresher: s, order: 30, wait: func(ctx context.Context) error {
			if closed.Load() {
				return wait(ctx)
			}
			return nil
		}}
	})
}

// The bounded barrier: a step whose refresh is late waits for it, no step before
// does.
func TestBarrierWaitsForALateRefresh(t *testing.T) {
	var closed atomic.Bool
	open := make(chan struct{})
	var waits []string
	o := asyncOptions(kron.Shampoo)
	o.Async.Observer.Waited = func(block string, _ time.Time, _ time.Duration) { waits = append(waits, block) }
	params := network[float32]()
	r := newRuntime(t, params, 1, gated(o, &closed, func(context.Context) error { <-open; return nil }))
	run(t, r, params, 1, 7)
	closed.Store(true)
	run(t, r, params, 8, 10) // due at 8, adopted at 11
	over := make(chan struct{})
	go func() { run(t, r, params, 11, 11); close(over) }()
	select {
	case <-over:
		t.Fatal("the step went on without the refresh that it must adopt")
	case <-time.After(30 * time.Millisecond):
	}
	close(open)
	<-over
	s := r.Totals()
	if s.Waits < 1 || s.Waited < 20*time.Millisecond || len(waits) != int(s.Waits) || waits[0] == "" {
		t.Errorf("%d waits, %v, of %v", s.Waits, s.Waited, waits)
	}
	if s.AdoptedAfter != 3 {
		t.Errorf("adopted after %d steps", s.AdoptedAfter)
	}
}

// Field failure A6, the watchdog: a refresh that never returns stops neither its
// step nor the other blocks nor Close; it is a failure of its block, which after
// the limit is named.
func TestA06_HangingRefreshIsAFailureOfItsBlock(t *testing.T) {
	var closed atomic.Bool
	open := make(chan struct{})
	defer close(open)
	o := asyncOptions(kron.Shampoo)
	o.Kron.MaxFailures = 2
	o.Async.JobTimeout = 20 * time.Millisecond
	params := network[float32]()
	r := newRuntime(t, params, 2, gated(o, &closed, func(context.Context) error { <-open; return nil }))
	run(t, r, params, 1, 7)
	closed.Store(true)
	var err error
	step := int64(8)
	for ; step < 40 && err == nil; step++ {
		fill(params, 9, step)
		err = r.Step(step, 0.01)
	}
	if err == nil || step != 20 || !strings.Contains(err.Error(), "block layers.0.up") || !errors.Is(err, hooks.ErrAbandoned) || !errors.Is(err, kron.ErrRefresh) {
		t.Fatalf("at step %d: %v", step-1, err)
	}
	for _, h := range r.Health() {
		hung := h.Block == "layers.0.up"
		if (h.Failed == 3) != hung || h.Failed > 0 != hung || h.Version < 3 && !hung {
			t.Errorf("%+v", h)
		}
	}
	if s := r.Totals(); s.Abandoned != 3 {
		t.Errorf("%d abandoned", s.Abandoned)
	}
	start := time.Now()
	r.Close()
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("Close took %v", d)
	}
}

// Without a timeout a step would wait for ever; Hurry, as at the end of the
// process, lets it go on. Settle with a context does so by itself.
func TestA06_HurryFreesAStepThatWaits(t *testing.T) {
	var closed atomic.Bool
	open := make(chan struct{})
	defer close(open)
	params := network[float32]()
	r := newRuntime(t, params, 1, gated(asyncOptions(kron.Shampoo), &closed, func(context.Context) error { <-open; return nil }))
	run(t, r, params, 1, 7)
	closed.Store(true)
	run(t, r, params, 8, 10)
	over := make(chan struct{})
	go func() { run(t, r, params, 11, 11); close(over) }()
	time.Sleep(10 * time.Millisecond)
	if n := r.Hurry(); n == 0 {
		t.Error("nothing to give up")
	}
	<-over
	run(t, r, params, 12, 12)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := r.Settle(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "block layers.0") {
		t.Errorf("%v", err)
	}
	closed.Store(false)
	run(t, r, params, 13, 30)
	if h := healthOf(r, "layers.0.up"); h.Failed != 2 || h.Consecutive != 0 {
		t.Errorf("%+v", h)
	}
}

func healthOf(r *Runtime[float32], block string) BlockHealth {
	for _, h := range r.Health() {
		if h.Block == block {
			return h
		}
	}
	return BlockHealth{}
}

// broken is a solver that fails, panics or returns NaN for one block while told
// to.
type broken struct {
	kron.Refresher[float32]
	how *atomic.Int32
}

const (
	fails = 1 + iota
	panics
	returnsNaN
)

var errSolver = errors.New("ill-conditioned")

func (s *broken) Root(ctx context.Context, dst, a gemm.Matrix[float32], exponent float64) error {
	if a.Rows == 30 {
		switch s.how.Load() {
		case fails:
			return errSolver
		case panics:
			panic("index out of range")
		case returnsNaN:
			dst.Data[0] = float32(math.NaN())
			return nil
		}
	}
	return s.Refresher.Root(ctx, dst, a, exponent)
}

// Field failure A2 beside training: however the refreshes of a block fail, its
// root stays in use, its age grows, its staleness does not, the other blocks go
// on, and after the limit the step names the block.
func TestA02_FailuresBesideTrainingKeepTheRoot(t *testing.T) {
	for _, how := range []int32{fails, panics, returnsNaN} {
		var now atomic.Int32
		o := asyncOptions(kron.Shampoo)
		o.Kron.MaxFailures = 2
		params := network[float32]()
		r := newRuntime(t, params, 1, with(o, func(s kron.Refresher[float32]) kron.Refresher[float32] { return &broken{s, &now} }))
		run(t, r, params, 1, 7)
		now.Store(how)
		run(t, r, params, 8, 15)
		h := healthOf(r, "layers.0.up")
		if h.Failed != 2 || h.Age != 11 || h.Staleness != 0 {
			t.Errorf("how %d: after two refreshes %+v", how, h)
		}
		now.Store(0)
		run(t, r, params, 16, 22) // the refresh of 16 succeeds, adopted at 19
		if h := healthOf(r, "layers.0.up"); h.Consecutive != 0 || h.Age != 6 {
			t.Errorf("how %d: after the recovery %+v", how, h)
		}
		if err := r.Settle(context.Background()); err != nil {
			t.Fatal(err)
		}
		now.Store(how)
		var err error
		step := int64(23)
		for ; step < 60 && err == nil; step++ {
			fill(params, 9, step)
			err = r.Step(step, 0.01)
		}
		if err == nil || !errors.Is(err, kron.ErrRefresh) || !strings.Contains(err.Error(), "block layers.0.up") || step-1 != 35 {
			t.Errorf("how %d: at step %d: %v", how, step-1, err)
		}
		if h := healthOf(r, "layers.0.q"); h.Failed != 0 || h.Version < 6 {
			t.Errorf("how %d: another block: %+v", how, h)
		}
	}
}

// Field failures A5 and A6 beside training: gradients of zeros keep everything
// finite; a factor that is not finite is refused before any worker sees it.
func TestA05_ZeroGradientsBesideTraining(t *testing.T) {
	for _, m := range methods {
		params := network[float32]()
		r := newRuntime(t, params, 2, asyncOptions(m))
		for step := int64(1); step <= 20; step++ {
			if step == 1 || step == 9 || step > 14 {
				for _, p := range params {
					clear(p.Grad)
				}
			} else {
				fill(params, 9, step)
			}
			if err := r.Step(step, 0.01); err != nil {
				t.Fatal(err)
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

func TestA06_NonFiniteFactorNeverReachesAWorker(t *testing.T) {
	for _, m := range methods {
		o := asyncOptions(m)
		o.Kron.MaxFailures = -1
		var saw atomic.Bool
		o = with(o, func(s kron.Refresher[float32]) kron.Refresher[float32] { return &watcher{s, &saw} })
		params := network[float32]()
		r := newRuntime(t, params, 1, o)
		run(t, r, params, 1, 7)
		fill(params, 9, 8)
		params[1].Grad[0] = float32(math.NaN()) // what the trainer must not let through
		if err := r.Step(8, 0); err != nil {
			t.Fatal(err)
		}
		run(t, r, params, 9, 20)
		if h := healthOf(r, "layers.0.q"); h.Failed < 2 || h.Staleness != 0 {
			t.Errorf("%v: %+v", m, h)
		}
		if h := healthOf(r, "layers.0.up"); h.Failed != 0 {
			t.Errorf("%v: %+v", m, h)
		}
		if saw.Load() {
			t.Errorf("%v: a solver saw a factor that is not finite", m)
		}
	}
}

// watcher notes factors that are not finite.
type watcher struct {
	kron.Refresher[float32]
	saw *atomic.Bool
}

func (s *watcher) look(a gemm.Matrix[float32]) {
	for _, v := range a.Data {
		if v-v != 0 {
			s.saw.Store(true)
		}
	}
}

func (s *watcher) Root(ctx context.Context, dst, a gemm.Matrix[float32], exponent float64) error {
	s.look(a)
	return s.Refresher.Root(ctx, dst, a, exponent)
}

func (s *watcher) Iterate(ctx context.Context, q, a gemm.Matrix[float32], perm []int) error {
	s.look(a)
	return s.Refresher.Iterate(ctx, q, a, perm)
}

// Field failure A7 beside training: a refresh that returns the basis with its
// columns in another order and with other signs changes no parameter, though the
// moments have moved on between snapshot and adoption.
func TestA07_PermutedBasesBesideTraining(t *testing.T) {
	o := asyncOptions(kron.SOAP)
	o.WeightDecay = 0
	run64 := func(o Options) ([]param.Param[float64], *Runtime[float64]) {
		params := network[float64]()
		r := newRuntime(t, params, 1, o)
		run(t, r, params, 1, 30)
		return params, r
	}
	plain, _ := run64(o)
	turned, r := run64(with(o, func(s kron.Refresher[float64]) kron.Refresher[float64] { return &turner{s} }))
	if s := r.Totals(); s.Adopted == 0 {
		t.Fatal("nothing was adopted late: the test is void")
	}
	for i, p := range plain {
		for j, v := range p.Value {
			if d := math.Abs(v - turned[i].Value[j]); !(d <= 1e-10) {
				t.Fatalf("%s: element %d differs by %g", p.Name, j, d)
			}
		}
	}
}

// turner reverses the columns of a refreshed basis, and their signs.
type turner struct{ kron.Refresher[float64] }

func (s *turner) Iterate(ctx context.Context, q, a gemm.Matrix[float64], perm []int) error {
	if err := s.Refresher.Iterate(ctx, q, a, perm); err != nil {
		return err
	}
	for i := range q.Rows {
		row := q.Row(i)
		for l, r := 0, len(row)-1; l <= r; l, r = l+1, r-1 {
			row[l], row[r] = -row[r], -row[l]
		}
	}
	for l, r := 0, len(perm)-1; l < r; l, r = l+1, r-1 {
		perm[l], perm[r] = perm[r], perm[l]
	}
	return nil
}

// Adopted when ready: what was adopted when is written down, and a run that
// replays it has the same bits.
func TestReadyRunsReplay(t *testing.T) {
	for _, m := range methods {
		for _, every := range []int64{1, 4} {
			o := asyncOptions(m)
			o.Frequency = every
			o.Async = Async{Staleness: 6, LagStart: 3, Workers: 2, Adopt: Ready}
			var log []coherreg.Adoption
			o.Async.Observer.Adopted = func(a coherreg.Adoption) { log = append(log, a) }
			params := network[float32]()
			r := newRuntime(t, params, 2, jittery(o, uint64(every)))
			run(t, r, params, 1, 40)
			want := bits(params, r)
			if len(log) == 0 {
				t.Fatalf("%v: no adoptions", m)
			}
			for _, a := range log {
				if late := a.Step - a.AsOf; late < 1 || late > 6 {
					t.Errorf("%v: %+v", m, a)
				}
			}
			o.Async.Replay, o.Async.Observer = log, Observer{}
			for _, workers := range []int{1, 3} {
				o.Async.Workers = workers
				params := network[float32]()
				r := newRuntime(t, params, 1, jittery(o, 77))
				run(t, r, params, 1, 40)
				same(t, fmt.Sprintf("%v every %d", m, every), bits(params, r), want)
			}
		}
	}
}

// A scheduled run in which refreshes were given up repeats by its log.
func TestReplayRepeatsFailures(t *testing.T) {
	var now atomic.Int32
	o := asyncOptions(kron.Shampoo)
	var log []coherreg.Adoption
	o.Async.Observer.Adopted = func(a coherreg.Adoption) { log = append(log, a) }
	params := network[float32]()
	r := newRuntime(t, params, 1, with(o, func(s kron.Refresher[float32]) kron.Refresher[float32] { return &broken{s, &now} }))
	run(t, r, params, 1, 11)
	now.Store(panics)
	run(t, r, params, 12, 12)
	if err := r.Settle(context.Background()); err != nil {
		t.Fatal(err)
	}
	now.Store(0)
	run(t, r, params, 13, 25)
	want := bits(params, r)
	if h := healthOf(r, "layers.0.up"); h.Failed != 1 {
		t.Fatalf("%+v", h)
	}
	o.Async.Replay, o.Async.Observer = log, Observer{}
	params = network[float32]()
	r = newRuntime(t, params, 1, o)
	run(t, r, params, 1, 25)
	same(t, "replay", bits(params, r), want)
}

// A due refresh that finds the last one in flight is counted, and one job a block
// is all that there is.
func TestReadyCoalesces(t *testing.T) {
	var closed atomic.Bool
	open := make(chan struct{})
	o := asyncOptions(kron.Shampoo)
	o.Frequency, o.Kron.Start = 1, 1
	o.Async = Async{Staleness: 5, LagStart: 3, Adopt: Ready, ReadyShare: 1}
	params := network[float32]()
	r := newRuntime(t, params, 1, gated(o, &closed, func(context.Context) error { <-open; return nil }))
	run(t, r, params, 1, 3) // layers.0.q begins at 3
	if err := r.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	closed.Store(true)
	run(t, r, params, 4, 8)                                                  // layers.0.up begins at 4; the barrier would wait at 9
	if s := r.Totals(); s.Coalesced < 4 || s.Waits != 0 || s.InFlight != 2 { // the one before let one more begin
		t.Errorf("%+v", s)
	}
	if h := healthOf(r, "layers.0.up"); h.Staleness != 4 {
		t.Errorf("%+v", h)
	}
	closed.Store(false)
	close(open)
	run(t, r, params, 9, 12)
	if s := r.Totals(); s.AdoptedAfter > 5 {
		t.Errorf("%+v", s)
	}
}

func TestAsyncOptionsAreChecked(t *testing.T) {
	for want, a := range map[string]Async{
		"Lag 6 is above Staleness 5":           {Lag: 6},
		"Lag 12 is above the refresh interval": {Staleness: 20, Lag: 12},
		"Workers -1":                           {Workers: -1},
		"Nice 20":                              {Nice: 20},
		"JobTimeout -1ns":                      {JobTimeout: -1},
		"Adopt 2":                              {Adopt: 2},
		"ReadyShare -0.1":                      {ReadyShare: -0.1},
		"ReadyShare 1.5":                       {ReadyShare: 1.5},
		"ReadyShare NaN":                       {ReadyShare: math.NaN()},
		"outside the budget of 5 steps":        {Replay: []coherreg.Adoption{{Step: 50, AsOf: 10}}},
		"LagRamp -1":                           {LagRamp: -1},
		"replay line 0: block 99":              {Replay: []coherreg.Adoption{{Block: 99, Step: 5, AsOf: 4}}},
	} {
		eng := gemm.New(1)
		r, err := New(network[float32](), eng, Options{Mode: Asteria, Async: a})
		if err == nil || !strings.Contains(err.Error(), want) || r != nil {
			t.Errorf("want %q, got %v", want, err)
		}
		eng.Close()
	}
	d := Async{LagRamp: lagRamp(kron.SOAP)}
	if d.staleness() != 5 || d.lag(10) != 5 || d.lag(3) != 3 || d.lagStart(10) != 50 {
		t.Errorf("defaults: S %d, lag %d and %d, start %d", d.staleness(), d.lag(10), d.lag(3), d.lagStart(10))
	}
	for step, want := range map[int64]int64{1: 0, 49: 0, 50: 1, 99: 1, 100: 2, 149: 2, 249: 4, 250: 5, 9000: 5} {
		if got := d.lagAt(step, 10); got != want {
			t.Errorf("by default a refresh of step %d is %d steps late, want %d", step, got, want)
		}
	}
	kl := Async{LagRamp: lagRamp(kron.KLShampoo)}
	for step, want := range map[int64]int64{49: 0, 50: 1, 199: 1, 200: 2, 499: 4, 9000: 5} {
		if got := kl.lagAt(step, 10); got != want {
			t.Errorf("with KL-Shampoo a refresh of step %d is %d steps late, want %d", step, got, want)
		}
	}
	// Once refreshes may be late at all they are: a replay tells by the step alone.
	if got := d.lagAt(5, 1); got != 1 {
		t.Errorf("every step: a refresh of step 5 is %d steps late, want 1", got)
	}
	for _, a := range []Async{{LagStart: 7}, {LagStart: -1}} {
		if before, after := a.lagAt(6, 10), a.lagAt(7, 10); after != 5 || before != max(0, -5*a.LagStart) {
			t.Errorf("start %d: refreshes of steps 6 and 7 are %d and %d steps late", a.LagStart, before, after)
		}
	}
	if Asteria.String() != "asteria" || Native.String() != "native" || Ready.String() != "ready" || Scheduled.String() != "scheduled" {
		t.Error("names")
	}
}

// A step of the mode Asteria, too, allocates nothing, but for the registry's three
// small objects for each refresh.
func TestShadowStepDoesNotAllocate(t *testing.T) {
	for _, m := range methods {
		params := network[float32]()
		o := asyncOptions(m)
		o.Frequency, o.Async = 20, Async{Staleness: 2, LagStart: -1}
		r := newRuntime(t, params, 1, o)
		run(t, r, params, 1, 44)
		step := int64(45) // up to 55: no refresh is due before 60
		if n := testing.AllocsPerRun(9, func() {
			if err := r.Step(step, 0.01); err != nil {
				t.Fatal(err)
			}
			step++
		}); n != 0 {
			t.Errorf("%v: %v allocations a step", m, n)
		}
	}
}

func TestRuntimeLeavesNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 5 {
		params := network[float32]()
		eng := gemm.New(2)
		o := asyncOptions(kron.SOAP)
		o.Async.Workers = 3
		r, err := New(params, eng, o)
		if err != nil {
			t.Fatal(err)
		}
		run(t, r, params, 1, 9)
		r.Close()
		eng.Close()
	}
	deadline := time.Now().Add(10 * time.Second)
	for runtime.NumGoroutine() > before {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, %d before\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(time.Millisecond)
	}
}

// The estimate says that workers cannot keep up, and by how much, from refreshes
// that still ran inside the step: before any adoption point waits.
func TestLoadWarnsBeforeTheBarrier(t *testing.T) {
	o := asyncOptions(kron.Shampoo)
	o.Async.LagStart = 1000
	slow := with(o, func(s kron.Refresher[float32]) kron.Refresher[float32] {
		return &gate[float32]{Refresher: s, order: 30, wait: func(context.Context) error { time.Sleep(40 * time.Millisecond); return nil }}
	})
	for name, c := range map[string]struct {
		o       Options
		keepsUp bool
	}{"slow": {slow, false}, "fast": {o, true}} {
		params := network[float32]()
		r := newRuntime(t, params, 1, c.o)
		if _, ok := r.Load(); ok {
			t.Errorf("%s: an estimate before the first step", name)
		}
		for step := int64(1); step <= 15; step++ {
			run(t, r, params, step, step)
			time.Sleep(3 * time.Millisecond)
		}
		l, ok := r.Load()
		if !ok || l.KeepsUp() != c.keepsUp || r.Totals().Waits != 0 {
			t.Errorf("%s: %v %v: %v", name, ok, l.KeepsUp(), l)
		}
		if text := l.String(); !strings.Contains(text, "every 4 steps") || !strings.Contains(text, "1 worker(s) have 3 steps") {
			t.Error(text)
		}
	}
}
