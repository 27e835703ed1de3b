package asteria

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/asteria-runtime/asteria/coherreg"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// many returns so many matrices of two shapes.
func many(n int) (params []param.Param[float32]) {
	for i := range n {
		dims := []int{8, 8}
		if i%3 == 0 {
			dims = []int{20, 8}
		}
		params = append(params, tensor[float32](fmt.Sprintf("m%02d", i), param.Matrix, dims...))
	}
	return params
}

// readyRun takes steps with ready adoption, calling after at the end of each, and
// returns what was adopted.
func readyRun(t *testing.T, o Options, params []param.Param[float32], steps int64, after func(r *Runtime[float32])) (*Runtime[float32], []coherreg.Adoption) {
	t.Helper()
	var log []coherreg.Adoption
	o.Async.Observer.Adopted = func(a coherreg.Adoption) { log = append(log, a) }
	r := newRuntime(t, params, 2, o)
	for step := int64(1); step <= steps; step++ {
		run(t, r, params, step, step)
		after(r)
	}
	return r, log
}

// settle makes the workers fast: all that is in flight ends between two steps.
func settle(t *testing.T) func(*Runtime[float32]) {
	return func(r *Runtime[float32]) {
		t.Helper()
		if err := r.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// Blocks take turns: with workers that are fast enough no step adopts more than the
// share, none lies idle, all blocks come equally often, and none is older than a round.
func TestTurnsSpreadTheAdoptions(t *testing.T) {
	for share, wantRound := range map[float64]int64{0.2: 8, 0.5: 3, 1: 1} {
		o := Options{Frequency: 1, Mode: Asteria, Async: Async{LagStart: 3, Adopt: Ready, ReadyShare: share}}
		const steps = 90
		r, log := readyRun(t, o, many(12), steps, settle(t))
		total := 0.0
		for _, u := range r.units {
			total += u.block.AdoptionCost()
		}
		cost, last := map[int64]float64{}, map[int]int64{}
		for _, a := range log {
			if a.Step-a.AsOf != 1 {
				t.Fatalf("share %v: %+v is late", share, a)
			}
			cost[a.Step] += r.units[a.Block].block.AdoptionCost()
			const grown = 40 // by then the window is not what bounds
			if gap := a.Step - last[a.Block]; a.Step > grown && gap > wantRound {
				t.Errorf("share %v: block %d after %d steps", share, a.Block, gap)
			}
			last[a.Block] = a.Step
		}
		for step := int64(4); step <= steps; step++ {
			if c := cost[step]; c == 0 || c > share*total {
				t.Errorf("share %v: step %d adopts %v of %v", share, step, c, total)
			}
		}
		if s := r.Totals(); s.Discarded != 0 || s.Waits != 0 || (share < 1) != (s.Coalesced > steps) {
			t.Errorf("share %v: %+v", share, s)
		}
	}
}

// A refresh whose turn has not come stays due: with an interval of several steps it
// begins in the next ones, not an interval later; and a save keeps that.
func TestADueRefreshWaitsForItsTurn(t *testing.T) {
	o := Options{Frequency: 10, Mode: Asteria, Async: Async{LagStart: 10, Adopt: Ready, ReadyShare: 0.5}}
	params := many(12)
	r, log := readyRun(t, o, params, 19, settle(t))
	if len(log) != 12 {
		t.Fatalf("%d adoptions, want one of each block: %v", len(log), log)
	}
	for _, a := range log {
		if a.AsOf < 11 || a.AsOf > 17 || a.Step != a.AsOf+1 {
			t.Errorf("%+v", a)
		}
	}
	run(t, r, params, 20, 21)
	waiting := 0
	for _, u := range r.units {
		if u.waits {
			waiting++
		}
	}
	if waiting == 0 {
		t.Fatal("nothing waits: the test is void")
	}
	settle(t)(r)
	kept := newRuntime(t, many(12), 1, o)
	from, to := append(r.Sections(), r.PendingSections()...), append(kept.Sections(), kept.PendingSections()...)
	for i := range from {
		copySection(t, to[i], from[i])
	}
	if err := kept.Restored(); err != nil {
		t.Fatal(err)
	}
	for i, u := range kept.units {
		if u.waits != r.units[i].waits {
			t.Errorf("block %d waits: %v before the save, %v after", i, r.units[i].waits, u.waits)
		}
	}
}

// metered is a runtime's option that lets a refresh beside training end only for a
// token.
func metered(o Options) (Options, chan struct{}, *atomic.Bool) {
	tokens, on := make(chan struct{}), new(atomic.Bool)
	o.Solvers = spy{func(_ string, next kron.Refresher[float32]) kron.Refresher[float32] {
		if on.Load() {
			<-tokens
		}
		return next
	}}
	return o, tokens, on
}

// The newest snapshot wins: with workers that are slow, a refresh is adopted after the
// time that it takes, and at most a step, not after that of all blocks before it; and
// the workers are not idle for it.
func TestNoSnapshotGrowsOldInAQueue(t *testing.T) {
	const start = 3
	for name, c := range map[string]struct {
		every, jobs int   // of every so many steps, so many refreshes end
		age         int64 // at adoption, at most
		adopted     int   // in the last 60 steps, at least
	}{
		"two steps for one":  {2, 1, 3, 19},
		"four steps for one": {4, 1, 5, 11},
		"one step for five":  {1, 5, 2, 200},
	} {
		o := Options{Frequency: 1, Mode: Asteria, Async: Async{Staleness: 30, LagStart: start, Adopt: Ready, ReadyShare: 1}}
		o, tokens, on := metered(o)
		r, log := readyRun(t, o, many(24), 100, func(r *Runtime[float32]) {
			now := r.units[0].state.Meta.Calls()
			on.Store(now >= start-1)
			if now < start || now%int64(c.every) != 0 {
				return
			}
			for range c.jobs {
				before := r.shadow.reg.Stats().Published
				if before == r.shadow.reg.Stats().Due {
					return // nothing runs
				}
				tokens <- struct{}{}
				for r.shadow.reg.Stats().Published == before {
					runtime.Gosched()
				}
			}
		})
		late := 0
		for _, a := range log {
			if a.Step-a.AsOf > c.age {
				t.Errorf("%s: %+v", name, a)
			}
			if a.Step > 40 {
				late++
			}
		}
		if late < c.adopted {
			t.Errorf("%s: %d adoptions, want %d", name, late, c.adopted)
		}
		on.Store(false)
		close(tokens)
		settle(t)(r)
	}
}

// A block that fails for ever takes its turns and no other's.
func TestAFailingBlockTakesOnlyItsTurns(t *testing.T) {
	o := Options{Method: kron.Shampoo, Frequency: 1, Kron: kron.Options{Start: 1, MaxFailures: -1},
		Mode: Asteria, Async: Async{LagStart: 3, Adopt: Ready}}
	now := new(atomic.Int32)
	o = with(o, func(s kron.Refresher[float32]) kron.Refresher[float32] { return &broken{s, now} })
	params := network[float32]()
	r, log := readyRun(t, o, params, 40, func(r *Runtime[float32]) {
		settle(t)(r)
		now.Store(fails)
	})
	good, bad := map[int]int{}, 0
	for _, a := range log {
		if r.units[a.Block].block.Name() == "layers.0.up" {
			bad++
		} else {
			good[a.Block]++
		}
	}
	for block, n := range good {
		if n < 8 || bad > n+1 {
			t.Errorf("block %d: %d adoptions, %d of the block that fails", block, n, bad)
		}
	}
	if f := healthOf(r, "layers.0.up").Failed; len(good) == 0 || f < 8 {
		t.Errorf("%d failures, %d other blocks", f, len(good))
	}
}

func TestTakingTurnsAllocatesNothing(t *testing.T) {
	o := Options{Frequency: 1, Mode: Asteria, Async: Async{LagStart: 3, Adopt: Ready}}
	r, _ := readyRun(t, o, many(12), 9, settle(t))
	if n := testing.AllocsPerRun(20, r.lookAll); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
