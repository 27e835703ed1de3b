package main

import (
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
	Peers   []measurement
}

type measurement struct {
	Name   string
	Min    float64 // seconds
	Median float64
	Error  string `json:",omitempty"`
}

// settings of the timing.
type settings struct {
	rounds int
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
// contender, starting with another one each time.
func (c *contest) measure(s *stage, set settings) result {
	times := make([][]float64, len(c.entries))
	reps := make([]int, len(c.entries))
	for i, e := range c.entries {
		s.in(e, func() {
			if e.threads != nil {
				e.threads(c.threads)
			}
			e.run()
			start := time.Now()
			e.run()
			reps[i] = 1 + int(set.block/max(time.Since(start), time.Microsecond))
		})
		if i > 0 && c.check != nil {
			if x := c.check(i); !(x <= 1) {
				e.err = "wrong result"
			}
		}
	}
	for r := range set.rounds {
		for k := range c.entries {
			i := (r + k) % len(c.entries)
			e := c.entries[i]
			s.in(e, func() { times[i] = append(times[i], e.block(c.threads, reps[i])) })
			time.Sleep(set.pause)
		}
	}
	return c.summarise(times)
}

// block returns the seconds of one run, the mean over reps runs.
func (e *contender) block(threads, reps int) float64 {
	if e.threads != nil {
		e.threads(threads)
	}
	if reps > 1 {
		e.run()
	}
	start := time.Now()
	for range reps {
		e.run()
	}
	t := time.Since(start).Seconds() / float64(reps)
	return max(t-e.overhead.Seconds()*float64(e.calls), 1e-9)
}

func (c *contest) summarise(times [][]float64) result {
	r := result{Group: c.group, Shape: c.shape, Threads: c.threads, Flops: c.flops}
	for i, e := range c.entries {
		slices.Sort(times[i])
		r.Peers = append(r.Peers, measurement{Name: e.name, Min: times[i][0], Median: times[i][len(times[i])/2], Error: e.err})
	}
	return r
}

// ratio is the best valid peer's time divided by ours, and that peer.
func (r *result) ratio() (x float64, best string) {
	for _, p := range r.Peers[1:] {
		if p.Error == "" && (best == "" || p.Min/r.Peers[0].Min < x) {
			x, best = p.Min/r.Peers[0].Min, p.Name
		}
	}
	return x, best
}
