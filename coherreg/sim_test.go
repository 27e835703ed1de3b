package coherreg

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// world is one seeded run: blocks whose refreshes are due every few steps,
// workers that take a random time, sometimes fail, sometimes answer twice.
type world struct {
	seed          uint64
	blocks        int
	every, lag, s int64
	steps         int64
	failPercent   int
	mode          Mode
	slow          time.Duration // longest job; a step lasts a millisecond
	replay        []Adoption
	adopted       []string // "block step asOf value", in block order per step
	maxStale      int64
	log           []Adoption
	stats         Stats
}

func randomWorld(seed uint64) *world {
	g := rand.New(rand.NewPCG(seed, 1))
	w := &world{
		seed: seed, blocks: 1 + g.IntN(5), every: 1 + g.Int64N(12), s: g.Int64N(8),
		steps: 40 + g.Int64N(60), failPercent: g.IntN(3) * 10,
		slow: time.Duration(1+g.IntN(20)) * time.Millisecond,
	}
	w.lag = g.Int64N(min(w.s, w.every) + 1)
	return w
}

func TestSimulation(t *testing.T) {
	n := uint64(150)
	if testing.Short() {
		n = 30
	}
	if os.Getenv("ASTERIA_LONG") != "" {
		n = 3000
	}
	for seed := range n {
		synctest.Test(t, func(t *testing.T) { checkSeed(t, seed) })
	}
}

func checkSeed(t *testing.T, seed uint64) {
	scheduled := randomWorld(seed)
	scheduled.run(t, 1)
	again := randomWorld(seed)
	again.run(t, 2) // other job times
	if !slices.Equal(scheduled.adopted, again.adopted) {
		t.Errorf("seed %d: scheduled adoption depends on the workers' timing", seed)
	}
	ready := randomWorld(seed)
	ready.mode = Ready
	ready.run(t, 1)
	replay := randomWorld(seed)
	replay.mode, replay.replay = Replay, ready.log
	replay.run(t, 3)
	if !slices.Equal(ready.adopted, replay.adopted) {
		t.Errorf("seed %d: a replayed log gave other adoptions:\n%v\n%v", seed, ready.adopted, replay.adopted)
	}
	for _, w := range []*world{scheduled, again, ready, replay} {
		w.check(t)
	}
}

func (w *world) check(t *testing.T) {
	t.Helper()
	if w.maxStale > w.s {
		t.Errorf("seed %d, %s: staleness %d over the budget %d", w.seed, w.mode, w.maxStale, w.s)
	}
	if s := w.stats; s.Due != s.Published+s.Failed || s.InFlight != 0 {
		t.Errorf("seed %d, %s: refreshes were lost: %+v", w.seed, w.mode, s)
	}
	if w.mode == Scheduled {
		for _, a := range w.log {
			if a.Step != a.AsOf+w.lag {
				t.Errorf("seed %d: due at %d, adopted at %d, want lag %d", w.seed, a.AsOf, a.Step, w.lag)
			}
		}
	}
}

// run is the training loop. timing seeds how long jobs take and nothing else.
func (w *world) run(t *testing.T, timing uint64) {
	keys := make([]int, w.blocks)
	for i := range keys {
		keys[i] = i
	}
	r, err := New[int, int64](keys, Options{Mode: w.mode, Budget: Budget{Hard: w.s}, Replay: w.replay})
	if err != nil {
		t.Fatalf("seed %d: %v", w.seed, err)
	}
	g := rand.New(rand.NewPCG(w.seed, timing))
	var workers sync.WaitGroup
	var last int64
	for step := range w.steps {
		last = step
		for _, k := range keys {
			w.block(t, r, &workers, g, k, step)
		}
		time.Sleep(time.Millisecond)
	}
	workers.Wait()
	for s := last + 1; s <= last+w.s; s++ { // land what is in flight
		for _, k := range keys {
			w.adopt(t, r, k, s)
		}
	}
	w.log, w.stats = r.Log(), r.Stats()
}

// block does one block's step in the order of SOAP: adopt, then snapshot.
func (w *world) block(t *testing.T, r *Registry[int, int64], workers *sync.WaitGroup, g *rand.Rand, k int, step int64) {
	w.adopt(t, r, k, step)
	if (step+int64(k))%w.every == 0 {
		w.start(r, workers, g, k, step)
		if w.lag == 0 && w.mode == Scheduled || w.s == 0 {
			w.adopt(t, r, k, step) // the job runs inside the adoption point
		}
	}
	stale, _ := r.Staleness(k, step)
	w.maxStale = max(w.maxStale, stale)
}

func (w *world) start(r *Registry[int, int64], workers *sync.WaitGroup, g *rand.Rand, k int, step int64) {
	delay := time.Duration(g.Int64N(int64(w.slow)))
	err := r.Due(k, step, step+w.lag)
	if errors.Is(err, ErrInFlight) {
		return
	}
	// Whether a job fails is a property of its snapshot, not of its timing.
	fails := rand.New(rand.NewPCG(w.seed, uint64(step)<<8|uint64(k))).IntN(100) < w.failPercent
	workers.Go(func() {
		time.Sleep(delay)
		if fails {
			r.Fail(k, step, errors.New("simulated"))
			return
		}
		r.Publish(k, step, step*1000)
		r.Publish(k, step, -1) // a worker that answers twice must not matter
	})
}

func (w *world) adopt(t *testing.T, r *Registry[int, int64], k int, step int64) {
	before, _ := r.Load(k)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	e, changed, err := r.Adopt(ctx, k, step)
	if errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("seed %d, %s: block %d waits for ever at step %d", w.seed, w.mode, k, step)
	}
	if e.Version < before.Version || changed && e.Version == before.Version {
		t.Errorf("seed %d: version of block %d went from %d to %d", w.seed, k, before.Version, e.Version)
	}
	if changed {
		w.adopted = append(w.adopted, fmt.Sprintf("%d@%d asOf %d value %d", k, step, e.AsOf, e.Value))
		if e.Value != e.AsOf*1000 {
			t.Errorf("seed %d: block %d as of %d holds %d: a published value was overwritten", w.seed, k, e.AsOf, e.Value)
		}
	}
}

// TestHammer lets publishers, readers and one stepping goroutine per block meet
// under the race detector.
func TestHammer(t *testing.T) {
	const blocks, steps = 4, 400
	r, err := New[int, [4]int64]([]int{0, 1, 2, 3}, Options{Mode: Ready, Budget: Budget{Hard: 3}})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var readers, steppers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				for k := range blocks {
					if e, ok := r.Load(k); ok && (e.Value[0] != e.AsOf || e.Value[3] != e.AsOf) {
						t.Errorf("torn value %v as of %d", e.Value, e.AsOf)
						return
					}
				}
			}
		})
	}
	for k := range blocks {
		steppers.Go(func() { hammerBlock(t, r, k, steps) })
	}
	steppers.Wait()
	close(stop)
	readers.Wait()
	if s := r.Stats(); s.InFlight != 0 || s.Adopted == 0 {
		t.Errorf("stats %+v", s)
	}
}

func hammerBlock(t *testing.T, r *Registry[int, [4]int64], k int, steps int64) {
	var jobs sync.WaitGroup
	for step := range steps {
		if _, _, err := r.Adopt(t.Context(), k, step); err != nil {
			t.Error(err)
		}
		if step < steps-3 && r.Due(k, step, step) == nil {
			jobs.Go(func() { r.Publish(k, step, [4]int64{step, step, step, step}) })
		}
	}
	jobs.Wait()
	if _, _, err := r.Adopt(t.Context(), k, steps); err != nil {
		t.Error(err)
	}
}
