package hooks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// task is a job from two functions.
type task struct {
	run  func(ctx context.Context, w int) error
	done func(error)
	ends atomic.Int32
}

func (j *task) Run(ctx context.Context, w int) error { return j.run(ctx, w) }

func (j *task) Done(err error) {
	j.ends.Add(1)
	if j.done != nil {
		j.done(err)
	}
}

// numbered makes pools whose workers own the numbers 1, 2, …
func numbered(o PoolOptions[int]) PoolOptions[int] {
	var next atomic.Int64
	o.Open = func() (int, error) { return int(next.Add(1)), nil }
	return o
}

func newPool(t *testing.T, o PoolOptions[int]) *Pool[int] {
	t.Helper()
	p, err := NewPool(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustClose(t *testing.T, p *Pool[int]) {
	t.Helper()
	if err := p.Close(background); err != nil {
		t.Fatal(err)
	}
}

func TestPoolRunsInOrderAndCounts(t *testing.T) {
	p := newPool(t, numbered(PoolOptions[int]{}))
	var got []int
	cause := errors.New("no luck")
	for i := range 20 {
		p.Submit(&task{run: func(_ context.Context, w int) error {
			if w != 1 {
				t.Errorf("worker %d", w)
			}
			got = append(got, i)
			if i%5 == 0 {
				return cause
			}
			return nil
		}})
	}
	if err := p.Drain(background); err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(got) || len(got) != 20 {
		t.Fatalf("order %v", got)
	}
	s := p.Stats()
	if s.Done != 16 || s.Failed != 4 || s.Backlog != 0 || s.Busy != 0 || s.Workers != 1 {
		t.Fatalf("%+v", s)
	}
	mustClose(t, p)
}

// No more jobs run at once than there are workers, however many wait.
func TestPoolKeepsItsBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, numbered(PoolOptions[int]{Workers: 3}))
		var now, most atomic.Int64
		for range 30 {
			p.Submit(&task{run: func(context.Context, int) error {
				if n := now.Add(1); n > most.Load() {
					most.Store(n)
				}
				time.Sleep(time.Second)
				now.Add(-1)
				return nil
			}})
		}
		synctest.Wait()
		if s := p.Stats(); s.Busy != 3 || s.Backlog != 27 {
			t.Errorf("%+v", s)
		}
		start := time.Now()
		if err := p.Drain(background); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d != 10*time.Second || most.Load() != 3 {
			t.Errorf("took %v, at most %d at once", d, most.Load())
		}
		if s := p.Stats(); s.Time != 30*time.Second {
			t.Errorf("%v in jobs", s.Time)
		}
		mustClose(t, p)
	})
}

func TestPanicsBecomeErrors(t *testing.T) {
	p := newPool(t, numbered(PoolOptions[int]{}))
	var errs []error
	keep := func(err error) { errs = append(errs, err) }
	p.Submit(&task{run: func(context.Context, int) error { panic("out of luck") }, done: keep})
	p.Submit(&task{run: func(context.Context, int) error { runtime.Goexit(); return nil }, done: keep})
	p.Submit(&task{run: func(_ context.Context, w int) error {
		if w != 2 {
			t.Errorf("worker %d runs, want the replacement, 2", w)
		}
		return nil
	}, done: keep})
	if err := p.Drain(background); err != nil {
		t.Fatal(err)
	}
	var pe *PanicError
	if len(errs) != 3 || !errors.As(errs[0], &pe) || pe.Value != "out of luck" || !strings.Contains(string(pe.Stack), "TestPanics") {
		t.Fatalf("%v", errs)
	}
	if !errors.As(errs[1], &pe) || !strings.Contains(errs[1].Error(), "ended its goroutine") || errs[2] != nil {
		t.Fatalf("%v", errs)
	}
	if s := p.Stats(); s.Failed != 2 || s.Done != 1 || s.Workers != 1 {
		t.Fatalf("%+v", s)
	}
	mustClose(t, p)
}

// Field failure A6, the watchdog: a job that never returns blocks neither the
// other jobs nor Drain nor Close.
func TestA06_HangingJobIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closed []int
		var mu sync.Mutex
		o := numbered(PoolOptions[int]{Workers: 1, Timeout: time.Minute})
		o.Close = func(w int) { mu.Lock(); closed = append(closed, w); mu.Unlock() }
		p := newPool(t, o)
		release := make(chan struct{})
		var cause, ended error
		hung := &task{
			run:  func(ctx context.Context, _ int) error { <-release; ended = context.Cause(ctx); return nil },
			done: func(err error) { cause = err },
		}
		after := 0
		p.Submit(hung)
		p.Submit(&task{run: func(_ context.Context, w int) error { after = w; return nil }})
		start := time.Now()
		if err := p.Drain(background); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d != time.Minute || after != 2 {
			t.Errorf("the next job ran after %v on worker %d", d, after)
		}
		if !errors.Is(cause, ErrAbandoned) || !strings.Contains(cause.Error(), "after 1m0s") {
			t.Errorf("%v", cause)
		}
		if s := p.Stats(); s.Abandoned != 1 || s.Workers != 1 || s.Done != 1 || s.Failed != 0 {
			t.Errorf("%+v", s)
		}
		mustClose(t, p)
		if !slices.Equal(closed, []int{2}) {
			t.Errorf("closed %v before the abandoned job returned", closed)
		}
		close(release)
		synctest.Wait()
		if !errors.Is(ended, ErrAbandoned) || !slices.Equal(closed, []int{2, 1}) || hung.ends.Load() != 1 {
			t.Errorf("cause %v, closed %v, done %d times", ended, closed, hung.ends.Load())
		}
	})
}

// AbandonAfter gives up what has run for long, and nothing else: neither a younger
// job nor those that wait.
func TestAbandonAfterSparesTheYoung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, numbered(PoolOptions[int]{Workers: 2}))
		release := make(chan struct{})
		wait := func(context.Context, int) error { <-release; return nil }
		var causes [3]error
		for i := range causes {
			p.Submit(&task{run: wait, done: func(err error) { causes[i] = err }})
			time.Sleep(time.Second)
		}
		if n := p.AbandonAfter(10 * time.Second); n != 0 {
			t.Errorf("%d given up before their time", n)
		}
		if n := p.AbandonAfter(2500 * time.Millisecond); n != 1 {
			t.Errorf("%d given up, want the first", n)
		}
		synctest.Wait()
		close(release)
		if err := p.Drain(background); err != nil {
			t.Error(err)
		}
		if !errors.Is(causes[0], ErrAbandoned) || !strings.Contains(causes[0].Error(), "after 2.5s") || causes[1] != nil || causes[2] != nil {
			t.Errorf("%v", causes)
		}
		mustClose(t, p)
	})
}

// A job that ends just in time is not abandoned, and the next one has the whole
// timeout.
func TestWatchdogStartsAnewForEachJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, numbered(PoolOptions[int]{Timeout: 10 * time.Second}))
		for range 5 {
			p.Submit(&task{run: func(context.Context, int) error { time.Sleep(9 * time.Second); return nil }})
		}
		if err := p.Drain(background); err != nil {
			t.Error(err)
		}
		if s := p.Stats(); s.Done != 5 || s.Abandoned != 0 {
			t.Errorf("%+v", s)
		}
		mustClose(t, p)
	})
}

func TestDrainAndCloseEndWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, numbered(PoolOptions[int]{Workers: 2}))
		release := make(chan struct{})
		var causes [3]error
		for i := range causes {
			p.Submit(&task{
				run:  func(context.Context, int) error { <-release; return nil },
				done: func(err error) { causes[i] = err },
			})
		}
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		err := p.Drain(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 jobs wait, 2 run") {
			t.Errorf("drain: %v", err)
		}
		err = p.Close(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "2 jobs did not end") {
			t.Errorf("close: %v", err)
		}
		if !errors.Is(causes[0], ErrAbandoned) || !errors.Is(causes[1], ErrAbandoned) || !errors.Is(causes[2], ErrClosed) {
			t.Errorf("%v", causes)
		}
		late := error(nil)
		p.Submit(&task{done: func(err error) { late = err }})
		if !errors.Is(late, ErrClosed) {
			t.Errorf("after Close: %v", late)
		}
		close(release)
	})
}

// Close ends the context of a job that listens, and waits for it.
func TestCloseWaitsForJobsThatListen(t *testing.T) {
	p := newPool(t, numbered(PoolOptions[int]{}))
	running := make(chan struct{})
	var cause error
	p.Submit(&task{run: func(ctx context.Context, _ int) error {
		close(running)
		<-ctx.Done()
		cause = context.Cause(ctx)
		return nil
	}})
	<-running
	mustClose(t, p)
	mustClose(t, p)
	if !errors.Is(cause, ErrClosed) {
		t.Fatal(cause)
	}
}

func TestAbandonGivesUpAllThatWaitsOrRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, numbered(PoolOptions[int]{Workers: 2}))
		release := make(chan struct{})
		failed := 0
		for range 5 {
			p.Submit(&task{run: func(context.Context, int) error { <-release; return nil }, done: func(err error) {
				if errors.Is(err, ErrAbandoned) {
					failed++
				}
			}})
		}
		synctest.Wait()
		if n := p.Abandon(); n != 5 || failed != 5 {
			t.Errorf("%d given up, %d told", n, failed)
		}
		ran := false
		p.Submit(&task{run: func(context.Context, int) error { ran = true; return nil }})
		if err := p.Drain(background); err != nil || !ran {
			t.Errorf("%v, ran %v", err, ran)
		}
		if s := p.Stats(); s.Workers != 2 || s.Abandoned != 2 {
			t.Errorf("%+v", s)
		}
		close(release)
		mustClose(t, p)
	})
}

// Without a worker that could be replaced, jobs fail with the reason and do not
// wait for ever.
func TestPoolWithoutWorkersSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause, opened := errors.New("no memory"), 0
		o := PoolOptions[int]{Timeout: time.Second, Open: func() (int, error) {
			if opened++; opened > 1 {
				return 0, cause
			}
			return 1, nil
		}}
		p := newPool(t, o)
		release := make(chan struct{})
		p.Submit(&task{run: func(context.Context, int) error { <-release; return nil }})
		var errs [2]error
		p.Submit(&task{done: func(err error) { errs[0] = err }})
		if err := p.Drain(background); err != nil {
			t.Error(err)
		}
		p.Submit(&task{done: func(err error) { errs[1] = err }})
		for _, err := range errs {
			if !errors.Is(err, cause) {
				t.Errorf("%v", err)
			}
		}
		close(release)
		mustClose(t, p)
	})
}

func TestNewPoolRefuses(t *testing.T) {
	_, err := NewPool(PoolOptions[int]{Workers: -1, Nice: 20, Timeout: -1, Queue: -2})
	for _, part := range []string{"Workers -1", "Nice 20", "Timeout -1ns", "Queue -2"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v lacks %q", err, part)
		}
	}
	cause, opened, closed := errors.New("no device"), 0, 0
	_, err = NewPool(PoolOptions[int]{Workers: 3, Open: func() (int, error) {
		if opened++; opened == 3 {
			return 0, cause
		}
		return 0, nil
	}, Close: func(int) { closed++ }})
	if !errors.Is(err, cause) || closed != 2 {
		t.Fatalf("%v, %d workers closed", err, closed)
	}
}

// Everyone submits, abandons, drains and reads counters at once; every job is
// ended exactly once.
func TestPoolHammer(t *testing.T) {
	const submitters, each = 4, 400
	p := newPool(t, numbered(PoolOptions[int]{Workers: 3, Nice: 5, Timeout: 2 * time.Millisecond}))
	jobs := make([]*task, submitters*each)
	var all sync.WaitGroup
	for s := range submitters {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(s), 7))
			for i := range each {
				what := r.IntN(40)
				j := &task{run: func(ctx context.Context, _ int) error {
					switch what {
					case 0:
						panic("boom")
					case 1:
						<-ctx.Done() // until the watchdog
					case 2:
						return errors.New("failed")
					}
					return nil
				}}
				jobs[s*each+i] = j
				p.Submit(j)
				if what == 3 {
					p.Stats()
				}
				if what == 4 && i > each/2 {
					p.Abandon()
				}
			}
		})
	}
	all.Wait()
	if err := p.Drain(background); err != nil {
		t.Fatal(err)
	}
	s := p.Stats()
	mustClose(t, p)
	for i, j := range jobs {
		if n := j.ends.Load(); n != 1 {
			t.Fatalf("job %d ended %d times", i, n)
		}
	}
	if s.Workers != 3 || s.Backlog != 0 || s.Busy != 0 {
		t.Fatalf("%+v", s)
	}
}

// Neither a closed pool nor an abandoned job that has returned leaves a
// goroutine.
func TestPoolLeavesNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 20 {
		p := newPool(t, numbered(PoolOptions[int]{Workers: 4, Timeout: time.Millisecond}))
		for range 8 {
			p.Submit(&task{run: func(ctx context.Context, _ int) error { <-ctx.Done(); return nil }})
		}
		if err := p.Drain(background); err != nil {
			t.Fatal(err)
		}
		mustClose(t, p)
	}
	deadline := time.Now().Add(10 * time.Second)
	for runtime.NumGoroutine() > before {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, %d before\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(time.Millisecond)
	}
}

func TestSubmitDoesNotAllocate(t *testing.T) {
	p := newPool(t, numbered(PoolOptions[int]{Queue: 4}))
	defer mustClose(t, p)
	over := make(chan struct{}, 1)
	j := &task{run: func(context.Context, int) error { return nil }, done: func(error) { over <- struct{}{} }}
	if n := testing.AllocsPerRun(50, func() { p.Submit(j); <-over }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func BenchmarkSubmit(b *testing.B) {
	for _, workers := range []int{1, 2} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			p, err := NewPool(PoolOptions[int]{Workers: workers, Queue: 1})
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close(background)
			over := make(chan struct{}, 1)
			j := &task{run: func(context.Context, int) error { return nil }, done: func(error) { over <- struct{}{} }}
			b.ReportAllocs()
			for b.Loop() {
				p.Submit(j)
				<-over
			}
		})
	}
}
