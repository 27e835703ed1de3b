package gemm

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// counter is a task that checks the contract of Run.
type counter struct {
	t       *testing.T
	done    []atomic.Int32 // times each chunk ran
	inside  []atomic.Int32 // runs in progress on each worker
	work    func(chunk int)
	threads int
}

func newCounter(t *testing.T, chunks, threads int) *counter {
	return &counter{t: t, done: make([]atomic.Int32, chunks), inside: make([]atomic.Int32, threads), threads: threads}
}

func (c *counter) Do(chunk, worker int) {
	if worker < 0 || worker >= c.threads {
		c.t.Errorf("worker %d of %d", worker, c.threads)
		return
	}
	if c.inside[worker].Add(1) != 1 {
		c.t.Errorf("two chunks at once on worker %d", worker)
	}
	if c.work != nil {
		c.work(chunk)
	}
	c.done[chunk].Add(1)
	c.inside[worker].Add(-1)
}

func (c *counter) check() {
	c.t.Helper()
	for i := range c.done {
		if n := c.done[i].Load(); n != 1 {
			c.t.Fatalf("chunk %d ran %d times", i, n)
		}
	}
}

func TestRunDoesEveryChunkOnce(t *testing.T) {
	for threads := 1; threads <= 4; threads++ {
		e := engine(t, threads, Generic)
		for chunks := range 40 {
			for range 20 {
				c := newCounter(t, chunks, threads)
				e.Run(chunks, c)
				c.check()
			}
		}
	}
}

func TestRunWakesParkedWorkers(t *testing.T) {
	e := engine(t, 3, Generic)
	for range 3 {
		deadline := time.Now().Add(10 * time.Second)
		for _, w := range e.pool.workers {
			for !w.parked.Load() {
				if time.Now().After(deadline) {
					t.Fatal("an idle worker does not park")
				}
				time.Sleep(time.Millisecond)
			}
		}
		// Each chunk waits for the others: this ends only if all three threads come.
		var arrived sync.WaitGroup
		arrived.Add(3)
		c := newCounter(t, 3, 3)
		c.work = func(int) { arrived.Done(); arrived.Wait() }
		e.Run(3, c)
		c.check()
	}
}

func TestNestedRunsDoNotDeadlock(t *testing.T) {
	e := engine(t, 2, Auto)
	outer := newCounter(t, 16, 2)
	outer.work = func(int) {
		inner := newCounter(t, 5, 2)
		inner.work = func(int) {
			x := make([]float32, 64*64)
			e.Sgemm(false, false, 64, 64, 64, 1, x, 64, x, 64, 0, make([]float32, 64*64), 64)
		}
		e.Run(5, inner)
		inner.check()
	}
	e.Run(16, outer)
	outer.check()
}

func TestConcurrentCallsAreIndependent(t *testing.T) {
	e := engine(t, 2, Auto)
	seed := rand.Uint64()
	var wg sync.WaitGroup
	for g := range 4 {
		r := rand.New(rand.NewPCG(seed, uint64(g)))
		var cases []*testCase[float32]
		for range 6 {
			cases = append(cases, randomCase[float32](r, 1+r.IntN(120), 1+r.IntN(120), 1+r.IntN(200)))
		}
		wg.Go(func() {
			for _, c := range cases {
				c.check(t, c.run(e))
			}
			n := newCounter(t, 50, 2)
			e.Run(50, n)
			n.check()
		})
	}
	wg.Wait()
}

func TestRunDoesNotAllocate(t *testing.T) {
	e := engine(t, 2, Generic)
	c := newCounter(t, 8, 2)
	if n := testing.AllocsPerRun(100, func() { e.Run(8, c) }); n != 0 {
		t.Errorf("Run allocates %g times", n)
	}
}

func TestCloseStopsTheWorkers(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 5 {
		e := New(4)
		c := newCounter(t, 9, 4)
		e.Run(9, c)
		e.Close()
		e.Close()
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines, %d before", n, before)
	}
	e := New(1)
	e.Close()
	defer func() {
		if got := recover(); got != "gemm: engine used after Close" {
			t.Errorf("panic %v", got)
		}
	}()
	e.Run(1, newCounter(t, 1, 1))
}

// TestAPanicInATaskLeavesTheEngineUsable covers a caller that recovers.
func TestAPanicInATaskLeavesTheEngineUsable(t *testing.T) {
	e := New(1)
	defer e.Close()
	c := newCounter(t, 3, 1)
	c.work = func(int) { panic("stop") }
	func() {
		defer func() { _ = recover() }()
		e.Run(3, c)
	}()
	d := newCounter(t, 3, 1)
	e.Run(3, d)
	d.check()
}

// A call inside another has the scratch that it had the time before: else each would
// grow the buffers that the other one grew already.
func TestScratchIsTakenLastGivenFirst(t *testing.T) {
	w := kitOf[float32](engine(t, 1, Auto))
	a, b, c := w.take(1), w.take(1), w.take(1)
	if a == b || b == c || a == c {
		t.Fatal("scratch in use was handed out")
	}
	for range 3 {
		w.give(c)
		w.give(b)
		w.give(a)
		for i, want := range []*scratch[float32]{a, b, c} {
			if got := w.take(1); got != want {
				t.Fatalf("level %d has other scratch than before", i)
			}
		}
	}
}
