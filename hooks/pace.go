package hooks

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Processor time between two naps, a share of the budget within bounds, and how much
// a worker that did not get a core may catch up on. Shorter naps are smoother, and cost
// more: each time, the caches of a core change hands.
const (
	leastQuantum = 2 * time.Millisecond
	mostQuantum  = 8 * time.Millisecond
	quanta       = 8 // in a budget
	catchUp      = 16 * time.Millisecond
	lookEach     = 100 * time.Microsecond // a Yield sooner than this costs a clock reading
)

// Pace is a budget of processor time that the workers of a pool share, so that
// what runs beside them is slowed evenly. Its owner sets it again and again, as at
// every step; it becomes usable with time, at a rate, and a worker that has used
// up what there is sleeps until there is more. The zero value lets every worker
// run. Safe for concurrent use; it must not be copied after first use.
//
// Time decides only when work is done, never what it computes.
type Pace struct {
	mu     sync.Mutex
	cores  float64       // growth of credit per time; 0: not paced
	left   time.Duration // of the budget
	burst  time.Duration // the quantum
	until  time.Time     // when the budget binds no more
	free   int           // how often it was freed
	credit time.Duration // below 0 once it was overdrawn
	at     time.Time     // when credit was last brought up to date
	turns  []*Turn
}

// Set lets the workers together use budget of processor time from now on, at a
// rate of so many cores: 0.25 is a quarter of one. When the budget is used up
// they sleep until the next Set, or until four times the time has passed that the
// budget was for: an owner that does not come back may be waiting for them. cores of
// 0 or less, or not a number, ends the pacing.
func (p *Pace) Set(cores float64, budget time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grow(time.Now())
	p.cores, p.left = 0, budget
	p.burst = min(max(budget/quanta, leastQuantum), mostQuantum)
	if cores > 0 {
		p.cores = cores
		p.until = p.at.Add(time.Duration(min(4*float64(budget)/cores, float64(time.Hour))))
	}
	p.wake()
}

// Free lets every worker run until the Hold that belongs to it: somebody waits.
func (p *Pace) Free() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grow(time.Now())
	p.free++
	p.wake()
}

// Hold ends what Free began.
func (p *Pace) Hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free == 0 {
		panic("hooks: Hold without Free")
	}
	p.grow(time.Now())
	p.free--
}

// Join returns a worker's share in the budget. [Turn.Leave] ends it.
func (p *Pace) Join() *Turn {
	t := &Turn{pace: p, clock: threadTime, born: time.Now(), wake: make(chan struct{}, 1), timer: time.NewTimer(math.MaxInt64)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turns = append(p.turns, t)
	return t
}

// paced reports whether the budget counts; under mu.
func (p *Pace) paced() bool { return p.cores > 0 && p.free == 0 }

// grow brings the credit up to now; under mu.
func (p *Pace) grow(now time.Time) {
	if p.paced() && (p.left > 0 || now.After(p.until)) {
		more := min(p.cores*float64(now.Sub(p.at)), float64(time.Hour)) // fits a Duration
		p.credit = min(p.credit+time.Duration(more), catchUp)
	}
	p.at = now
}

// wake ends the naps, whose length may have changed; under mu.
func (p *Pace) wake() {
	for _, t := range p.turns {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// charge takes what a worker spent off credit and budget, and returns how long it
// has to sleep: until there is a quantum again. Set ends a nap.
func (p *Pace) charge(spent time.Duration, now time.Time) (nap time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.paced() {
		return 0
	}
	p.grow(now)
	p.credit -= spent
	p.left -= spent
	switch {
	case p.left <= 0 && now.Before(p.until):
		return p.until.Sub(now)
	case p.credit > 0:
		return 0
	}
	return time.Duration(min(float64(p.burst-p.credit)/p.cores, float64(time.Hour)))
}

// Turn is one worker's share in a [Pace]. Begin and Yield belong to the
// goroutine of the worker, which is locked to its thread as those of a [Pool]
// are; the other methods may be called from anywhere.
type Turn struct {
	pace   *Pace
	wake   chan struct{}
	timer  *time.Timer
	clock  func(*Turn) time.Duration // processor time of the thread
	born   time.Time
	seen   time.Time     // when Yield last looked
	cpu    time.Duration // of the thread, then
	spent  atomic.Int64  // nanoseconds, see Spent
	paused atomic.Int64  // nanoseconds, of the naps that ended
	nap    atomic.Int64  // nanoseconds from born to the start of the present nap; 0: awake
}

// Begin starts the account of a job.
func (t *Turn) Begin() {
	t.spent.Store(0)
	t.seen, t.cpu = time.Now(), t.clock(t)
}

// Yield is what a job calls at points that are less than a millisecond of work
// apart. It sleeps when the budget is used up, and allocates nothing.
func (t *Turn) Yield() {
	if now := time.Now(); now.Sub(t.seen) >= lookEach {
		t.look(now)
	}
}

// look brings the account up to date and sleeps as long as it says.
func (t *Turn) look(now time.Time) {
	nap := t.pace.charge(t.account(), now)
	for nap > 0 {
		t.nap.Store(max(1, int64(now.Sub(t.born))))
		t.timer.Reset(nap)
		select {
		case <-t.timer.C:
		case <-t.wake:
			t.timer.Stop()
		}
		woken := time.Now()
		t.nap.Store(0)
		t.paused.Add(int64(woken.Sub(now)))
		// Woken by its timer it has a quantum; by another rate it may not.
		now, nap = woken, t.pace.charge(0, woken)
	}
	t.seen = now
}

// account adds what the thread has used since the last look.
func (t *Turn) account() time.Duration {
	cpu := t.clock(t)
	d := cpu - t.cpu
	t.cpu = cpu
	t.spent.Add(int64(d))
	return d
}

// Spent returns the processor time that the job has used since Begin, as far as
// the last Yield has seen.
func (t *Turn) Spent() time.Duration { return time.Duration(t.spent.Load()) }

// End closes the account of a job: it charges and returns what the job has used.
func (t *Turn) End() time.Duration {
	t.pace.charge(t.account(), time.Now())
	return t.Spent()
}

// Paused returns how long the worker has slept, in all: what
// [PoolOptions].Paused asks for.
func (t *Turn) Paused() time.Duration {
	d := time.Duration(t.paused.Load())
	if since := t.nap.Load(); since > 0 {
		d += time.Since(t.born) - time.Duration(since)
	}
	return d
}

// Leave takes the worker out of the budget.
func (t *Turn) Leave() {
	t.timer.Stop()
	p := t.pace
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, x := range p.turns {
		if x == t {
			p.turns = append(p.turns[:i], p.turns[i+1:]...)
			return
		}
	}
}
