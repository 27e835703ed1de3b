package asteria

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/hooks"
)

// pacer holds back refreshes and hands them out evenly over the steps that remain
// until the first of them is needed. Timing changes no result.
type pacer[T gemm.Float] struct {
	submit func(hooks.Job[*worker[T]])

	mu    sync.Mutex
	held  []*task[T] // in the order in which they became due
	steps int64      // over which what is held is to be handed out
}

// add hands t out at once, or holds it until the end of the step.
func (p *pacer[T]) add(t *task[T], hold bool) {
	if !hold {
		p.submit(t)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = append(p.held, t)
	// The last step of the lag is left to the refresh that is handed out last.
	p.steps = max(1, t.shadow.lag-1)
}

// need hands t out if it is still held: its adoption is about to wait for it.
func (p *pacer[T]) need(t *task[T]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.held, t); i >= 0 {
		p.submit(t)
		p.held = slices.Delete(p.held, i, i+1)
	}
}

// release ends a step: it hands out an equal share of what is held.
func (p *pacer[T]) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.held)
	if n == 0 {
		return
	}
	p.handOut((n + int(p.steps) - 1) / int(p.steps))
	p.steps = max(1, p.steps-1)
}

// flush hands out all that is held.
func (p *pacer[T]) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handOut(len(p.held))
}

func (p *pacer[T]) handOut(n int) {
	for _, t := range p.held[:n] {
		p.submit(t)
	}
	p.held = slices.Delete(p.held, 0, n)
}

func (p *pacer[T]) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.held)
}

// stepClock measures how long a step of training takes, from update to update:
// the median of the last few, so that a save or an evaluation does not count.
type stepClock struct {
	last time.Time
	ring [15]time.Duration
	n    int
}

func (c *stepClock) tick(now time.Time) {
	if !c.last.IsZero() {
		c.ring[c.n%len(c.ring)] = now.Sub(c.last)
		c.n++
	}
	c.last = now
}

func (c *stepClock) median() time.Duration {
	k := min(c.n, len(c.ring))
	if k == 0 {
		return 0
	}
	sorted := c.ring
	slices.Sort(sorted[:k])
	return sorted[k/2]
}

// Load compares what the refreshes need with what the workers can do, from the
// times of the last refreshes and steps.
type Load struct {
	Work    time.Duration // of one refresh of every block, on one worker
	Step    time.Duration // of training
	Every   int64         // interval in steps
	Lag     int64         // steps from snapshot to adoption
	Workers int
	Start   int64 // first step whose refreshes may be late
	// Late is how far the refreshes would be behind at the worst adoption of an
	// interval; not more than 0 means that they keep up.
	Late time.Duration
}

// KeepsUp reports whether no adoption point will have to wait, as far as the times
// so far tell.
func (l Load) KeepsUp() bool { return l.Late <= 0 }

// String is the arithmetic.
func (l Load) String() string {
	return fmt.Sprintf("one refresh of all blocks takes %v of work every %d steps of %v; %d worker(s) have %d steps, %v, before it is needed: up to %v late",
		l.Work.Round(time.Microsecond), l.Every, l.Step.Round(time.Microsecond), l.Workers, l.Lag,
		(time.Duration(l.Lag) * l.Step * time.Duration(l.Workers)).Round(time.Microsecond), max(0, l.Late).Round(time.Microsecond))
}

// Load returns the estimate, and whether there is one: once every block has been
// refreshed and some steps were taken. It is about scheduled adoption; with ready
// adoption Lag is the staleness budget.
//
// Work that falls due is a fluid that the workers drain step by step; Late is
// what the deepest puddle has above what they drain within the lag.
func (r *Runtime[T]) Load() (l Load, ok bool) {
	s := r.shadow
	if s == nil || len(r.units) == 0 || s.clock.n < 5 {
		return l, false
	}
	l = Load{Step: s.clock.median(), Every: s.every, Lag: s.lag, Workers: s.opts.workers(), Start: s.lagStart}
	if s.opts.Adopt == Ready {
		l.Lag = s.opts.staleness()
	}
	for _, u := range r.units {
		cost := time.Duration(u.cost.Load())
		if cost == 0 {
			return l, false
		}
		l.Work += cost
	}
	if l.Lag == 0 {
		return l, false
	}
	perStep := l.Step * time.Duration(l.Workers)
	puddle, worst, phase := time.Duration(0), time.Duration(0), int64(0)
	for range 2 { // the second interval begins with what the first one left
		for _, u := range s.byPhase {
			next := u.block.Options().Phase
			steps := (next - phase + s.every) % s.every
			puddle = max(0, puddle-perStep*time.Duration(steps)) + time.Duration(u.cost.Load())
			worst, phase = max(worst, puddle), next
		}
		if s.byPhase[0].block.Options().Phase == phase { // all fall due together
			puddle = max(0, puddle-perStep*time.Duration(s.every))
		}
	}
	l.Late = (worst - perStep*time.Duration(l.Lag)) / time.Duration(l.Workers)
	return l, true
}
