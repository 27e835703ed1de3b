package asteria

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/nvmepage"
	"github.com/asteria-runtime/asteria/nvmepage/nvmetest"
	"github.com/asteria-runtime/asteria/tierctl"
	"github.com/asteria-runtime/asteria/tierctl/tierctltest"
)

// openNVMe opens a store that the test closes after everything else.
func openNVMe(t testing.TB, o nvmepage.Options) *nvmepage.Store {
	t.Helper()
	if o.Paths == nil {
		o.Paths = []string{t.TempDir()}
	}
	s, err := nvmepage.Open(o)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("the system has no file locks: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// planOf plans the network under o.
func planOf(t testing.TB, o Options) Plan {
	t.Helper()
	o.Tiers = &Tiers{}
	p, err := PlanFor[float32](Shapes(network[float32]()), 1, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// placements are the ways to place the network's state.
func placements(t testing.TB, o Options) map[string]*Tiers {
	p := planOf(t, o)
	return map[string]*Tiers{
		"no tiers":     nil,
		"all resident": {Device: 1 << 30, Host: 1 << 30},
		"host only":    {},
		"split":        {Device: 3 * objectAlign, Host: p.Placed},
		"host+NVMe":    {Host: p.Placed / 2, NVMe: openNVMe(t, nvmepage.Options{})},
		"tight": {
			// The largest step fits and nothing else: every object leaves every step.
			Host: p.Group, Staging: objectAlign, NVMe: &tierctltest.Memory{},
		},
		"LRU": {Host: p.Placed / 2, NVMe: &tierctltest.Memory{}, Policy: tierctl.LRU},
	}
}

// Field failure A24: wherever the state lives, the bits are the same, for any
// number of workers and threads, with refreshes inside the step and beside it.
func TestA24_PlacementNeverChangesTheBits(t *testing.T) {
	for _, m := range methods {
		for _, mode := range []Mode{Native, Asteria} {
			var want map[string]string
			o := asyncOptions(m)
			o.Mode = mode
			for name, tiers := range placements(t, o) {
				for _, threads := range []int{1, 2} {
					for _, workers := range []int{1, 2, 8} {
						if mode == Native && workers > 1 {
							continue
						}
						o.Tiers, o.Async.Workers = tiers, workers
						params := network[float32]()
						r := newRuntime(t, params, threads, jittery(o, uint64(workers)))
						run(t, r, params, 1, 24)
						if got := bits(params, r); want == nil {
							want = got
						} else {
							same(t, fmt.Sprintf("%v, %v, %s, %d threads, %d workers", m, mode, name, threads, workers), got, want)
						}
						r.Close()
					}
				}
			}
		}
	}
}

// Two moves, each into the next placement, with refreshes in flight.
func TestStateMovesBetweenPlacements(t *testing.T) {
	for _, m := range methods {
		o := asyncOptions(m)
		params := network[float32]()
		whole := newRuntime(t, params, 1, o)
		run(t, whole, params, 1, 40)
		want := bits(params, whole)
		tiers := placements(t, o)
		for _, route := range [][3]string{
			{"no tiers", "tight", "host+NVMe"}, {"tight", "tight", "tight"}, {"host+NVMe", "all resident", "no tiers"},
		} {
			moved := network[float32]()
			o.Tiers = tiers[route[0]]
			r := newRuntime(t, moved, 2, jittery(o, 2))
			pending := int64(0)
			for i, part := range [][2]int64{{1, 13}, {14, 27}, {28, 40}} {
				run(t, r, moved, part[0], part[1])
				pending += r.Totals().InFlight
				if i < 2 {
					o.Tiers = tiers[route[i+1]]
					r, moved = move(t, r, moved, 1, jittery(o, uint64(i)))
				}
			}
			if pending == 0 {
				t.Fatalf("%v: nothing was in flight: the test is void", m)
			}
			same(t, fmt.Sprint(m, route), bits(moved, r), want)
			r.Close()
		}
	}
}

// A budget for the largest step alone streams all else, and stays within it.
func TestTightTiersStreamAndKeepTheBudget(t *testing.T) {
	o := asyncOptions(kron.SOAP)
	group := planOf(t, o).Group
	o.Tiers = &Tiers{Host: group, NVMe: openNVMe(t, nvmepage.Options{})}
	params := network[float32]()
	r := newRuntime(t, params, 2, o)
	run(t, r, params, 1, 20)
	s := r.Tiers()
	if s.N != 2 || s.Tiers[0].Name != TierHost || s.Tiers[0].Peak > group || s.Tiers[1].Used == 0 {
		t.Errorf("%+v, budget %d", s, group)
	}
	if s.StepLeases != 20*8 || s.Read == 0 || s.Written == 0 || s.Lost != 0 || s.Leases <= s.StepLeases {
		t.Errorf("%+v", s)
	}
	if rate := s.HitRate(); rate < 0 || rate > 1 {
		t.Errorf("hit rate %v", rate)
	}
	seen := map[string]bool{}
	for _, h := range r.Health() {
		seen[h.Tier] = true
	}
	if !seen[TierNVMe] {
		t.Errorf("blocks are in %v, want some on NVMe", seen)
	}
}

// State that fits nowhere is refused before training, with the arithmetic.
func TestTiersThatAreTooSmallAreRefused(t *testing.T) {
	o := asyncOptions(kron.SOAP)
	p := planOf(t, o)
	for name, c := range map[string]struct {
		tiers Tiers
		want  string
	}{
		"no NVMe":            {Tiers{Host: p.Placed - 1}, fmt.Sprintf("needs %d bytes (factors", p.Placed)},
		"NVMe too small":     {Tiers{Host: p.Group, NVMe: &tierctltest.Memory{}, NVMeSize: 4096}, fmt.Sprintf("host %d + NVMe 4096 = %d: %d too few", p.Group, p.Group+4096, p.Placed+p.Slack(2)-p.Group-4096)},
		"no gap to move in":  {Tiers{Host: p.Group, NVMe: &tierctltest.Memory{}, NVMeSize: p.Placed - p.Group}, fmt.Sprintf("and %d free to move its largest object", p.Slack(2))},
		"no room for a step": {Tiers{Host: p.Group - 1, NVMe: &tierctltest.Memory{}}, fmt.Sprintf("needs %d bytes at once", p.Group)},
		"unused NVMe":        {Tiers{NVMe: &tierctltest.Memory{}}, "without a limit would never be used"},
		"negative":           {Tiers{Host: -1}, "host -1"},
		"size of none":       {Tiers{NVMeSize: 5}, "5 bytes without NVMe"},
	} {
		o.Tiers = &c.tiers
		eng := gemm.New(1)
		if _, err := New(network[float32](), eng, o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		eng.Close()
	}
}

// Steps allocate nothing where the state is resident, whatever the tiers.
func TestStepsInTiersDoNotAllocate(t *testing.T) {
	for _, m := range methods {
		for _, mode := range []Mode{Native, Asteria} {
			params := network[float32]()
			o := asyncOptions(m)
			o.Mode, o.Frequency, o.Async = mode, 20, Async{Staleness: 2, LagStart: -1}
			p := planOf(t, o)
			o.Tiers = &Tiers{Device: 4 * objectAlign, Host: p.Placed, NVMe: &tierctltest.Memory{}}
			r := newRuntime(t, params, 1, o)
			run(t, r, params, 1, 44)
			step := int64(45) // up to 55: no refresh is due before 60
			if n := testing.AllocsPerRun(9, func() {
				if err := r.Step(step, 0.01); err != nil {
					t.Fatal(err)
				}
				r.Anticipate()
				if s := r.Tiers(); s.N != 3 {
					t.Error(s)
				}
				step++
			}); n != 0 {
				t.Errorf("%v, %v: %v allocations a step", m, mode, n)
			}
		}
	}
}

// Field failure A21: a drive that is full, or refuses, or takes only a part of what
// is written, leaves the state in memory: the bits are those of a run without
// faults, and the tier says that it is degraded.
func TestA21_FailedWritesKeepTheStateResident(t *testing.T) {
	o := asyncOptions(kron.SOAP)
	p := planOf(t, o)
	params := network[float32]()
	whole := newRuntime(t, params, 1, o)
	run(t, whole, params, 1, 20)
	want := bits(params, whole)
	for name, faults := range map[string]*nvmetest.Faults{
		"no space":     {Space: p.Placed / 3},
		"EIO":          {Fail: func(op nvmetest.Op) error { return map[string]error{"write": syscall.EIO}[op.Kind] }},
		"EIO later":    {Fail: failsFrom("write", 40, syscall.EIO)},
		"short writes": {Short: func(op nvmetest.Op) int64 { return map[bool]int64{true: op.N / 2, false: op.N}[op.Kind == "write"] }},
	} {
		params := network[float32]()
		o.Tiers = &Tiers{Host: p.Group, NVMe: openNVMe(t, nvmepage.Options{Open: faults.Open})}
		r := newRuntime(t, params, 2, o)
		run(t, r, params, 1, 20)
		same(t, name, bits(params, r), want)
		s := r.Tiers()
		if nvme := s.Tiers[1]; !nvme.Degraded || nvme.Failures == 0 || s.Tiers[0].Over == 0 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// failsFrom fails the operations of a kind from a number on.
func failsFrom(kind string, n int64, cause error) func(nvmetest.Op) error {
	var seen atomic.Int64
	return func(op nvmetest.Op) error {
		if op.Kind != kind || seen.Add(1) < n {
			return nil
		}
		return cause
	}
}

// A read that fails, or returns other bytes than were written, ends the run with an
// error that names the block and the file: there is no other copy, and no wrong
// number is ever used.
func TestA20_UnreadableStateNamesTheBlockAndTheFile(t *testing.T) {
	o := asyncOptions(kron.SOAP)
	group := planOf(t, o).Group
	var armed atomic.Bool
	for name, faults := range map[string]*nvmetest.Faults{
		"EIO": {Fail: func(op nvmetest.Op) error {
			if armed.Load() && op.Kind == "read" {
				return syscall.EIO
			}
			return nil
		}},
		"a flipped bit": {Corrupt: func(op nvmetest.Op, data []byte) {
			if armed.Load() && len(data) > 0 {
				data[len(data)/2] ^= 1
			}
		}},
		"short reads": {Short: func(op nvmetest.Op) int64 {
			if armed.Load() && op.Kind == "read" {
				return op.N - 1
			}
			return op.N
		}},
	} {
		armed.Store(false)
		dir := t.TempDir()
		o.Tiers = &Tiers{Host: group, NVMe: openNVMe(t, nvmepage.Options{Paths: []string{dir}, Open: faults.Open})}
		params := network[float32]()
		r := newRuntime(t, params, 2, o)
		run(t, r, params, 1, 12)
		armed.Store(true)
		checkUnreadable(t, name, r, dir)
	}
}

// The same for a file that was cut on the drive.
func TestA20_ACutFileNamesTheBlockAndTheFile(t *testing.T) {
	o := asyncOptions(kron.Shampoo)
	dir := t.TempDir()
	o.Tiers = &Tiers{Host: planOf(t, o).Group, NVMe: openNVMe(t, nvmepage.Options{Paths: []string{dir}})}
	params := network[float32]()
	r := newRuntime(t, params, 1, o)
	run(t, r, params, 1, 12)
	files, err := filepath.Glob(filepath.Join(dir, "*", "data"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if err := os.Truncate(files[0], 5000); err != nil {
		t.Fatal(err)
	}
	checkUnreadable(t, "cut", r, dir)
}

// checkUnreadable steps until the fault is met.
func checkUnreadable(t *testing.T, name string, r *Runtime[float32], dir string) {
	t.Helper()
	params := network[float32]()
	var err error
	for step := int64(13); step < 30 && err == nil; step++ {
		fill(params, 9, step)
		err = r.Step(step, 0.01)
	}
	var state *StateError
	if !errors.As(err, &state) || state.Block == "" || !strings.Contains(err.Error(), "block "+state.Block) || !strings.Contains(err.Error(), dir) {
		t.Errorf("%s: %v: want the block and the file below %s", name, err, dir)
	}
}

// Field failure A6 with tiers so small that what hangs stands in the way: the
// others go on, the memory is counted as lost, and the limit names the block.
func TestA06_HangingRefreshInTiers(t *testing.T) {
	var closed atomic.Bool
	open := make(chan struct{})
	o := asyncOptions(kron.Shampoo)
	o.Kron.MaxFailures = 2
	o.Async.JobTimeout = 20 * time.Millisecond
	o.Tiers = &Tiers{Host: planOf(t, o).Group, NVMe: &tierctltest.Memory{}}
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
	if err == nil || step != 20 || !strings.Contains(err.Error(), "block layers.0.up") || !errors.Is(err, kron.ErrRefresh) {
		t.Fatalf("at step %d: %v", step-1, err)
	}
	for _, h := range r.Health() {
		if hung := h.Block == "layers.0.up"; (h.Failed == 3) != hung {
			t.Errorf("%+v", h)
		}
	}
	if s := r.Tiers(); s.Lost == 0 {
		t.Errorf("%+v, want lost bytes", s)
	}
	close(open)
	for deadline := time.Now().Add(10 * time.Second); r.Tiers().Lost > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%+v: memory did not come back when the refresh returned", r.Tiers())
		}
	}
}

// Memory that the system wants back is given up at the end of a step.
func TestPressureShrinksTheTiers(t *testing.T) {
	o := asyncOptions(kron.SOAP)
	p := planOf(t, o)
	var pressure atomic.Int64
	o.Tiers = &Tiers{Host: p.Placed, NVMe: &tierctltest.Memory{}, Pressure: func() float64 { return float64(pressure.Load()) / 100 }}
	params := network[float32]()
	r := newRuntime(t, params, 1, o)
	run(t, r, params, 1, 5)
	if s := r.Tiers(); s.Written != 0 {
		t.Fatalf("%+v: written without need", s)
	}
	if err := r.Settle(t.Context()); err != nil { // a refresh in flight would take memory again
		t.Fatal(err)
	}
	pressure.Store(50)
	run(t, r, params, 6, 6)
	for deadline := time.Now().Add(10 * time.Second); r.Tiers().Tiers[0].Used > p.Placed/2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%+v: want at most %d bytes in the host tier", r.Tiers(), p.Placed/2)
		}
	}
}
