package main

import (
	"math"
	"runtime"
	"slices"
	"time"
)

// contender is one library at one task.
type contender struct {
	name     string
	threads  func(n int) // nil: fixed when it was built
	run      func()
	calls    int           // library calls in one run
	overhead time.Duration // of one call, taken off
	foreign  bool          // runs on the peers' thread
	err      string        // why the result is not counted
}

// contest is one row of the table: one task, all contenders. The first is ours.
type contest struct {
	group, shape string
	threads      int
	flops        float64
	entries      []*contender
	// check compares what entry wrote with what ours wrote; it returns the error
	// as a multiple of what rounding allows.
	check func(entry int) float64
	close func()
}

// result is what a contest measured, in seconds per run.
type result struct {
	Group   string
	Shape   string
	Threads int
	Flops   float64
	Rounds  int
	Peers   []measurement
}

type measurement struct {
	Name   string
	Min    float64 // seconds
	Median float64
	Ratio  float64 // median over the rounds of this time divided by ours
	Spread float64 // standard error of Ratio
	Error  string  `json:",omitempty"`
}

// settings of the timing.
type settings struct {
	rounds int           // at least
	most   time.Duration // that a row may take; more rounds follow until then, or until it is steady
	steady float64       // standard error of the ratio at which a row is done
	block  time.Duration // a block repeats the task for about this long
	pause  time.Duration // between blocks, so that spinning workers fall asleep
}

// stage runs peers on one locked thread, because OpenMP's thread count belongs
// to the thread that sets it.
type stage struct{ work chan func() }

func newStage() *stage {
	s := &stage{work: make(chan func())}
	go func() {
		runtime.LockOSThread()
		for f := range s.work {
			f()
		}
	}()
	return s
}

// on runs f on the peers' thread and waits.
func (s *stage) on(f func()) {
	done := make(chan struct{})
	s.work <- func() { f(); close(done) }
	<-done
}

func (s *stage) close() { close(s.work) }

func (s *stage) in(e *contender, f func()) {
	if e.foreign {
		s.on(f)
		return
	}
	f()
}

// measure interleaves the contenders: each round times one block of every
// contender, starting with another one each time. A row that neighbours disturb gets
// more rounds, the same for all.
func (c *contest) measure(s *stage, set settings) result {
	start := time.Now()
	times := make([][]float64, len(c.entries))
	reps := make([]int, len(c.entries))
	for i, e := range c.entries {
		s.in(e, func() { reps[i] = e.prepare(c.threads, set.block) })
		if i > 0 && c.check != nil {
			if x := c.check(i); !(x <= 1) {
				e.err = "wrong result"
			}
		}
	}
	for r := 0; ; r++ {
		for k := range c.entries {
			i := (r + k) % len(c.entries)
			e := c.entries[i]
			s.in(e, func() { times[i] = append(times[i], e.block(c.threads, reps[i], set.block/8)) })
			time.Sleep(set.pause)
		}
		if r+1 < set.rounds {
			continue
		}
		res := c.summarise(times)
		if res.spread() <= set.steady || time.Since(start) > set.most {
			return res
		}
	}
}

// prepare runs the task twice and returns how many runs fill a block.
func (e *contender) prepare(threads int, block time.Duration) (reps int) {
	if e.threads != nil {
		e.threads(threads)
	}
	e.run()
	start := time.Now()
	e.run()
	return 1 + int(block/max(time.Since(start), time.Microsecond))
}

// block returns the seconds of one run, the mean over reps runs. Short runs are
// repeated for a while before that, until the contender's threads are awake.
func (e *contender) block(threads, reps int, warm time.Duration) float64 {
	if e.threads != nil {
		e.threads(threads)
	}
	if reps > 1 {
		for start := time.Now(); time.Since(start) < warm; {
			e.run()
		}
	}
	start := time.Now()
	for range reps {
		e.run()
	}
	t := time.Since(start).Seconds() / float64(reps)
	return max(t-e.overhead.Seconds()*float64(e.calls), 1e-9)
}

// summarise reduces the times, a slice an entry, all in the order of the rounds. Times
// of one round are of the same moments, so that their ratios do not follow the clock.
func (c *contest) summarise(times [][]float64) result {
	r := result{Group: c.group, Shape: c.shape, Threads: c.threads, Flops: c.flops, Rounds: len(times[0])}
	for i, e := range c.entries {
		m := measurement{Name: e.name, Error: e.err}
		ratios := make([]float64, r.Rounds)
		for k, t := range times[i] {
			ratios[k] = t / times[0][k]
		}
		m.Ratio, m.Spread = median(ratios)
		sorted := slices.Sorted(slices.Values(times[i]))
		m.Min, m.Median = sorted[0], sorted[len(sorted)/2]
		r.Peers = append(r.Peers, m)
	}
	return r
}

// median returns the median of x, which it sorts, and its standard error, from the
// distance of the quartiles as of a normal distribution: it ignores outliers.
func median(x []float64) (mid, standardError float64) {
	slices.Sort(x)
	n := len(x)
	mid = (x[(n-1)/2] + x[n/2]) / 2
	return mid, 0.93 * (x[n-1-n/4] - x[n/4]) / math.Sqrt(float64(n))
}

// best is the valid peer with the least time, nil when there is none.
func (r *result) best() *measurement {
	var best *measurement
	for i := range r.Peers[1:] {
		if p := &r.Peers[1+i]; p.Error == "" && (best == nil || p.Ratio < best.Ratio) {
			best = p
		}
	}
	return best
}

// ratio is the best valid peer's time divided by ours, and that peer.
func (r *result) ratio() (x float64, best string) {
	if p := r.best(); p != nil {
		return p.Ratio, p.Name
	}
	return 0, ""
}

// spread is the standard error of the ratio, relative to it.
func (r *result) spread() float64 {
	if p := r.best(); p != nil {
		return p.Spread / p.Ratio
	}
	return 0
}
