package asteria

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/asteria-runtime/asteria/hooks"
)

// paced runs a pacer without workers: each step uses its whole budget, over the
// tasks in order, with costs that differ from what is expected by up to error.
type paced struct {
	pacer[float32]
	left map[*task[float32]]time.Duration // true remaining work
	used map[*task[float32]]time.Duration
}

const pacedStep = 100 * time.Millisecond

func newPaced() *paced {
	p := &paced{left: map[*task[float32]]time.Duration{}, used: map[*task[float32]]time.Duration{}}
	p.submit = func(hooks.Job[*worker[float32]]) {}
	p.took = pacedStep
	return p
}

// due adds a refresh at a step.
func (p *paced) due(step, lag int64, expected, truth time.Duration) *task[float32] {
	t := &task[float32]{asOf: step, adoptAt: step + lag}
	p.left[t] = truth
	p.add(t, expected)
	return t
}

// work uses the budget of a step and returns how much that was.
func (p *paced) work() time.Duration {
	p.mu.Lock()
	budget, _ := p.budget()
	open := slices.Clone(p.open)
	p.mu.Unlock()
	spent := time.Duration(0)
	for _, t := range open {
		d := min(budget-spent, p.left[t])
		p.left[t] -= d
		t.takes -= d // stands for what the worker's account shows
		spent += d
		if p.left[t] == 0 {
			p.done(t)
		}
	}
	return spent
}

// All fall due at once: every step until the adoption does the same, half of that
// in the last, and nothing is late.
func TestPaceIsEvenWhenAllFallDueTogether(t *testing.T) {
	for _, lag := range []int64{1, 2, 5, 10} {
		p := newPaced()
		for range 8 {
			p.due(10, lag, 50*time.Millisecond, 50*time.Millisecond)
		}
		var steps []time.Duration
		for range lag {
			p.release(pacedStep)
			steps = append(steps, p.work())
		}
		if len(p.open) != 0 {
			t.Fatalf("lag %d: %d refreshes are late", lag, len(p.open))
		}
		most, first := slices.Max(steps), steps[0]
		if most > first+time.Microsecond {
			t.Errorf("lag %d: %v, want no step above the first", lag, steps)
		}
		// Evenly over all but the last part of a step, with some to spare.
		even := 400 * time.Millisecond.Seconds() / max(1, float64(lag)-slack)
		if got := first.Seconds(); got > 1.001*caution*even {
			t.Errorf("lag %d: %v s in the first step, want %v", lag, got, even)
		}
	}
}

// Refreshes that fall due unevenly, and cost up to a tenth more or less than
// expected, are done in time, and no step has much more than the mean.
func TestPaceEvensOutAStagger(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 71))
		const every, lag = 10, 5
		costs := make([]time.Duration, 12)
		phase := make([]int64, len(costs))
		sum := time.Duration(0)
		for i := range costs {
			costs[i] = time.Duration(1+rng.IntN(20)) * time.Millisecond
			phase[i] = rng.Int64N(every)
			sum += costs[i]
		}
		p := newPaced()
		deadline := map[*task[float32]]int64{}
		var most time.Duration
		for step := int64(1); step <= 6*every; step++ {
			p.release(pacedStep)
			if spent := p.work(); step > 2*every {
				most = max(most, spent)
			}
			for _, open := range p.open {
				// What it takes more than caution allowed for is what may be missing.
				if deadline[open] <= step && p.left[open] > 2*time.Millisecond {
					t.Fatalf("seed %d: %v are left at the deadline", seed, p.left[open])
				}
			}
			for i, c := range costs {
				if step%every == phase[i] {
					truth := time.Duration(float64(c) * (0.9 + 0.2*rng.Float64()))
					deadline[p.due(step, lag, c, truth)] = step + lag
				}
			}
		}
		// All of an interval's work in the lag's steps is the worst that can fall due.
		if worst := float64(sum) * 1.1 / (lag - slack); float64(most) > worst*1.1 {
			t.Errorf("seed %d: a step did %v, more than all work spread over the lag, %v", seed, most, time.Duration(worst))
		}
	}
}

// An adoption that waits frees the workers until its refresh ends, and what is not
// paced frees them at once; in the end nothing stays free.
func TestPacerFreesAndHolds(t *testing.T) {
	p := newPaced()
	a := p.due(1, 5, time.Second, time.Second)
	b := p.due(1, 5, time.Second, time.Second)
	c := p.due(1, 5, 0, time.Second)
	p.need(a)
	p.need(a)
	p.flush()
	for _, x := range []*task[float32]{c, b, a} {
		p.done(x)
		p.done(x) // as when it was abandoned, and ends after all
	}
	p.need(a) // has ended
	defer func() {
		if recover() == nil {
			t.Error("the workers are still free")
		}
	}()
	p.pace.Hold()
}

// A refresh that takes longer than expected still has a budget.
func TestPacerDoesNotForgetASlowRefresh(t *testing.T) {
	p := newPaced()
	x := p.due(1, 5, 10*time.Millisecond, time.Second)
	for range 20 {
		p.release(pacedStep)
		x.takes = max(x.takes, time.Millisecond)
		if b, _ := p.budget(); b <= 0 {
			t.Fatal("no budget")
		}
	}
}

func TestCostRemembersTheLastFew(t *testing.T) {
	var c cost
	for _, ms := range []time.Duration{10, 30, 12, 11} {
		c.note(ms*time.Millisecond, ms*time.Millisecond)
	}
	if c.Load() != int64(11*time.Millisecond) || c.least.Load() != int64(11*time.Millisecond) {
		t.Errorf("last %v, least %v", time.Duration(c.Load()), time.Duration(c.least.Load()))
	}
	// 30 ms, forgotten twice by a fifth.
	if got := time.Duration(c.used.Load()); got < 19*time.Millisecond || got > 20*time.Millisecond {
		t.Errorf("most %v, want 19.2ms", got)
	}
	for range 12 {
		c.note(50*time.Millisecond, 50*time.Millisecond)
	}
	if got := time.Duration(c.least.Load()); got != 50*time.Millisecond {
		t.Errorf("the least is still %v", got)
	}
}
