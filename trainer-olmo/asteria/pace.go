package asteria

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/hooks"
)

// Note: pacing
//
// A refresh that runs beside training slows it: it takes a core where none is
// spare, and memory bandwidth, cache and clock where one is. So that every step is
// slowed alike, the workers get a budget of processor time for each step: the least
// that meets all adoptions if it stays the same until then. Work with the same
// deadline is spread evenly, and work that falls due unevenly is evened out over
// the lag. The budget comes from what the refreshes cost before and what they have
// used so far; an adoption point that has to wait after all lets the workers run.
//
// Timing decides when a refresh is computed, never what it computes, nor when it
// is adopted.

const (
	// slack is how long before its adoption the last refresh is to end, in steps: what
	// is late then, because a worker got no core or a refresh took longer, has that
	// left. leastSteps is the part of the last step that there is to plan with.
	slack      = 0.5
	leastSteps = 0.5
	// caution raises what a refresh is expected to cost.
	caution = 1.05
	// leastLeft is the part of its cost that a refresh is taken to need still,
	// however long it has been running.
	leastLeft = 0.1
)

// pacer tells the workers how much they may do in each step.
type pacer[T gemm.Float] struct {
	submit func(hooks.Job[*worker[T]])
	pace   hooks.Pace

	mu   sync.Mutex
	open []*task[T]    // that have not ended, in the order in which they became due
	step int64         // that runs or comes, as the blocks count
	took time.Duration // by a step
}

// add hands t out: at the pace that its deadline asks for, given the processor
// time that it takes, or without one where that is 0, not known.
func (p *pacer[T]) add(t *task[T], takes time.Duration) {
	p.mu.Lock()
	t.takes, t.urgent, t.turn = takes, false, nil
	p.open = append(p.open, t)
	p.step = t.asOf
	if takes == 0 {
		p.hurry(t)
	}
	p.plan()
	p.mu.Unlock()
	p.submit(t)
}

// begin takes note that a worker has begun t.
func (p *pacer[T]) begin(t *task[T], turn *hooks.Turn) {
	turn.Begin()
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(p.open, t) {
		t.turn = turn
	}
}

// done takes note that t has ended, or was given up.
func (p *pacer[T]) done(t *task[T]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.open, t)
	if i < 0 {
		return
	}
	p.open = slices.Delete(p.open, i, i+1)
	if t.urgent {
		p.pace.Hold()
	}
}

// hurry lets the workers run until t has ended; under mu.
func (p *pacer[T]) hurry(t *task[T]) {
	if !t.urgent {
		t.urgent = true
		p.pace.Free()
	}
}

// need lets the workers run until t has ended: its adoption is about to wait.
func (p *pacer[T]) need(t *task[T]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(p.open, t) {
		p.hurry(t)
	}
}

// flush lets the workers run until all that they have now has ended.
func (p *pacer[T]) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.open {
		p.hurry(t)
	}
}

// release ends a step, of which one takes so long: the next one gets its budget.
func (p *pacer[T]) release(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.took = took
	p.step++
	p.plan()
}

// plan sets the budget of the present step; under mu.
func (p *pacer[T]) plan() {
	budget, steps := p.budget()
	if p.took <= 0 || budget <= 0 {
		p.pace.Set(0, 0)
		return
	}
	p.pace.Set(float64(budget)/(steps*float64(p.took)), budget)
}

// budget returns the processor time that the workers need in this step, and the
// part of the step in which they need it: over each deadline the mean of what is
// due until then, and of those the largest.
func (p *pacer[T]) budget() (budget time.Duration, part float64) {
	due, part := 0.0, 1.0
	for _, t := range p.open {
		due += t.left()
		steps := max(float64(t.adoptAt-p.step)+1-slack, leastSteps)
		if b := time.Duration(due / max(1, steps)); b > budget {
			budget, part = b, min(1, steps)
		}
	}
	return budget, part
}

// left is the processor time that t needs still, in nanoseconds.
func (t *task[T]) left() float64 {
	cost := caution * float64(t.takes)
	if t.turn == nil {
		return cost
	}
	return max(cost-float64(t.turn.Spent()), leastLeft*cost)
}

// cost remembers what the last refreshes of a block took, in nanoseconds; 0 means
// that there was none. One goroutine at a time writes.
type cost struct {
	last  atomic.Int64 // time
	least atomic.Int64 // of the last few
	used  atomic.Int64 // processor time, the most of the last few
}

// How fast the outliers of the last few are forgotten, per refresh.
const (
	leastFades = 1.25
	mostFades  = 0.8
)

// note takes note of a refresh: how long it took, pauses not counted, and the
// processor time that it used.
func (c *cost) note(took, used time.Duration) {
	least := int64(took)
	if c.last.Load() > 0 {
		least = min(least, int64(leastFades*float64(c.least.Load())))
	}
	c.least.Store(least)
	c.last.Store(int64(took))
	c.used.Store(max(int64(used), int64(mostFades*float64(c.used.Load()))))
}

// Load returns how long the last refresh took, in nanoseconds.
func (c *cost) Load() int64 { return c.last.Load() }

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
// adoption Lag is the staleness budget. With peers it is about the refreshes that
// this rank runs. What a block's refresh takes is the least
// of its last few, which what else the machine did has lengthened least.
//
// Where refreshes wait for their turn nothing queues, so only one that takes longer
// than the budget makes a step wait.
//
// Work that falls due is a fluid that the workers drain step by step; Late is
// what the deepest puddle has above what they drain within the lag.
func (r *Runtime[T]) Load() (l Load, ok bool) {
	s := r.shadow
	if s == nil || len(s.byPhase) == 0 || s.clock.n < 5 {
		return l, false
	}
	every := s.every * s.group
	l = Load{Step: s.clock.median(), Every: every, Lag: s.lag, Workers: s.opts.workers(), Start: s.lagStart}
	if s.opts.Adopt == Ready {
		l.Lag = s.opts.staleness()
	}
	longest := time.Duration(0)
	for _, u := range s.byPhase {
		cost := time.Duration(u.cost.least.Load())
		if cost == 0 {
			return l, false
		}
		l.Work += cost
		longest = max(longest, cost)
	}
	if l.Lag == 0 {
		return l, false
	}
	if s.turns != nil {
		l.Late = longest - l.Step*time.Duration(l.Lag)
		return l, true
	}
	perStep := l.Step * time.Duration(l.Workers)
	puddle, worst, phase := time.Duration(0), time.Duration(0), int64(0)
	for range 2 { // the second interval begins with what the first one left
		for _, u := range s.byPhase {
			next := u.block.Options().Phase
			steps := (next - phase + every) % every
			puddle = max(0, puddle-perStep*time.Duration(steps)) + time.Duration(u.cost.least.Load())
			worst, phase = max(worst, puddle), next
		}
		if s.byPhase[0].block.Options().Phase == phase { // all fall due together
			puddle = max(0, puddle-perStep*time.Duration(every))
		}
	}
	l.Late = (worst - perStep*time.Duration(l.Lag)) / time.Duration(l.Workers)
	return l, true
}
