package hooks

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const unlimited = math.MaxInt64

// simulated joins a worker whose thread runs whenever the test's clock does.
func simulated(p *Pace) (t *Turn, work func(d time.Duration)) {
	var cpu time.Duration
	t = p.Join()
	t.clock = func(*Turn) time.Duration { return cpu }
	t.Begin()
	return t, func(d time.Duration) {
		time.Sleep(d)
		cpu += d
		t.Yield()
	}
}

func TestPaceSpreadsTheWorkEvenly(t *testing.T) {
	for _, cores := range []float64{0.05, 0.3, 0.75} {
		synctest.Test(t, func(t *testing.T) {
			var p Pace
			turn, work := simulated(&p)
			defer turn.Leave()
			p.Set(cores, unlimited)
			start, last := time.Now(), time.Duration(0)
			for window := 1; window <= 20; window++ {
				for time.Since(start) < time.Duration(window)*time.Second {
					work(200 * time.Microsecond)
				}
				got, want := turn.Spent()-last, time.Duration(cores*float64(time.Second))
				// At the ends of a window, half a burst and what the last nap overran.
				if d := (got - want).Abs(); d > 3*mostQuantum {
					t.Errorf("cores %v: %v in second %d, want %v", cores, got, window, want)
				}
				last = turn.Spent()
			}
			if sum := turn.Spent() + turn.Paused(); (sum - time.Since(start)).Abs() > time.Millisecond {
				t.Errorf("spent and paused are %v of %v", sum, time.Since(start))
			}
		})
	}
}

func TestPaceIsSharedByTheWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pace
		p.Set(0.5, unlimited)
		end := time.Now().Add(10 * time.Second)
		var spent [3]time.Duration
		var all sync.WaitGroup
		for i := range spent {
			all.Go(func() {
				turn, work := simulated(&p)
				defer turn.Leave()
				for time.Now().Before(end) {
					work(300 * time.Microsecond)
				}
				spent[i] = turn.Spent()
			})
		}
		all.Wait()
		sum := spent[0] + spent[1] + spent[2]
		if (sum - 5*time.Second).Abs() > 200*time.Millisecond {
			t.Errorf("three workers used %v of 10s at 0.5 cores: %v", sum, spent)
		}
	})
}

func TestAWorkerThatGotNoCoreCatchesUpALittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pace
		turn, work := simulated(&p)
		defer turn.Leave()
		p.Set(0.5, unlimited)
		time.Sleep(time.Hour) // ready, but not running
		start := time.Now()
		for turn.Paused() == 0 {
			work(200 * time.Microsecond)
		}
		// It runs at one core until 16 ms of credit and half of the time are used up.
		if got := time.Since(start); got < catchUp || got > 3*catchUp+turn.Paused() {
			t.Errorf("it ran for %v before the first pause, want about %v", got-turn.Paused(), 2*catchUp)
		}
	})
}

func TestSetAndFreeEndANap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pace
		p.Set(1e-6, unlimited) // a nap of half an hour
		end := make(chan time.Duration)
		go func() {
			turn, work := simulated(&p)
			defer turn.Leave()
			for turn.Spent() < time.Second {
				work(time.Millisecond)
			}
			end <- turn.Paused()
		}()
		time.Sleep(time.Minute)
		p.Set(0.5, unlimited)
		time.Sleep(time.Second)
		p.Free()
		p.Free()
		p.Hold()
		paused := <-end
		// A minute of almost nothing, half of a second, and then none.
		if paused < 60*time.Second || paused > 61*time.Second {
			t.Errorf("paused for %v", paused)
		}
	})
}

func TestABudgetIsNotExceeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pace
		turn, work := simulated(&p)
		defer turn.Leave()
		go func() {
			for range 21 { // steps of 100 ms, with 30 ms for the workers each
				p.Set(0.5, 30*time.Millisecond)
				time.Sleep(100 * time.Millisecond)
			}
		}()
		synctest.Wait()
		for turn.Spent() < 590*time.Millisecond {
			work(200 * time.Microsecond)
		}
		// Half of a core for the first 60 ms of every step; each overruns a little.
		got := turn.Paused() + turn.Spent()
		if want := 1940 * time.Millisecond; (got - want).Abs() > 10*time.Millisecond {
			t.Errorf("590ms of work took %v, want %v", got, want)
		}
		time.Sleep(time.Second)
	})
}

// An owner that waits for the workers, and so sets nothing, does not wait for ever.
func TestAnExhaustedBudgetBindsForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pace
		turn, work := simulated(&p)
		defer turn.Leave()
		p.Set(0.5, 50*time.Millisecond) // for 100 ms
		start := time.Now()
		for turn.Spent() < 55*time.Millisecond {
			work(time.Millisecond)
		}
		if got := time.Since(start); got < 400*time.Millisecond || got > 420*time.Millisecond {
			t.Errorf("50ms of budget and 5 more took %v, want 410ms", got)
		}
	})
}

func TestFreedPaceSavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pace
		turn, work := simulated(&p)
		defer turn.Leave()
		p.Set(0.1, unlimited)
		p.Free()
		time.Sleep(time.Hour)
		p.Hold()
		start := turn.Spent()
		for turn.Paused() == 0 {
			work(200 * time.Microsecond)
		}
		if got := turn.Spent() - start; got > catchUp {
			t.Errorf("%v without a pause after an hour of freedom", got)
		}
	})
}

func TestZeroPaceLetsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pace
		turn, work := simulated(&p)
		defer turn.Leave()
		for _, cores := range []float64{0, -1, math.NaN()} {
			p.Set(cores, unlimited)
			for range 1000 {
				work(time.Millisecond)
			}
		}
		if turn.Paused() != 0 || turn.End() != 3*time.Second {
			t.Errorf("paused %v, spent %v", turn.Paused(), turn.Spent())
		}
	})
}

func TestHoldWithoutFreePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	new(Pace).Hold()
}

func TestThreadTimeCountsWorkAndNoSleep(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var p Pace
	turn := p.Join()
	defer turn.Leave()
	turn.Begin()
	start := time.Now()
	for x := 1.0; time.Since(start) < 20*time.Millisecond; x *= 1.5 {
		turn.Yield()
	}
	busy, wall := turn.End(), time.Since(start)
	if busy <= 0 || busy > wall+wall/1000 { // the clock of the wall may be slewed by 1 in 2000
		t.Errorf("%v of work in %v", busy, wall)
	}
	if runtime.GOOS == "linux" {
		turn.Begin()
		time.Sleep(20 * time.Millisecond)
		if idle := turn.End(); idle > 10*time.Millisecond {
			t.Errorf("%v of work while asleep", idle)
		}
	}
}

func TestYieldAllocatesNothing(t *testing.T) {
	var p Pace
	turn := p.Join()
	defer turn.Leave()
	var cpu time.Duration
	turn.clock = func(*Turn) time.Duration { cpu += time.Millisecond; return cpu }
	turn.Begin()
	p.Set(0.9, unlimited)
	n := testing.AllocsPerRun(20, func() { turn.look(time.Now()); turn.Yield(); p.Set(0.95, unlimited) })
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
	if turn.Paused() == 0 {
		t.Error("it never slept: the test shows nothing")
	}
}

// A job that is held back for longer than the timeout is not abandoned, nor does
// the time count as work; one that runs for so long is.
func TestTimeoutDoesNotCountPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pace Pace
		pace.Set(0.1, unlimited)
		var cpu time.Duration
		p, err := NewPool(PoolOptions[*Turn]{
			Timeout: time.Second,
			Open: func() (*Turn, error) {
				turn := pace.Join()
				turn.clock = func(*Turn) time.Duration { return cpu }
				return turn, nil
			},
			Close:  (*Turn).Leave,
			Paused: (*Turn).Paused,
		})
		if err != nil {
			t.Fatal(err)
		}
		outcome := make(chan error, 1)
		start := time.Now()
		p.Submit(&turnJob{func(turn *Turn) {
			turn.Begin()
			for turn.Spent() < 500*time.Millisecond {
				time.Sleep(time.Millisecond)
				cpu += time.Millisecond
				turn.Yield()
			}
		}, outcome})
		if err := <-outcome; err != nil {
			t.Errorf("paused job: %v", err)
		}
		if time.Since(start) < 4*time.Second {
			t.Errorf("it took only %v: the test shows nothing", time.Since(start))
		}
		if s := p.Stats(); s.Time != 500*time.Millisecond {
			t.Errorf("%v in jobs, want the time between the pauses", s.Time)
		}
		hung := make(chan struct{})
		p.Submit(&turnJob{func(*Turn) { <-hung }, outcome})
		if err := <-outcome; !errors.Is(err, ErrAbandoned) {
			t.Errorf("a job that hangs: %v", err)
		}
		close(hung)
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := len(pace.turns); n != 0 {
			t.Errorf("%d workers did not leave", n)
		}
	})
}

type turnJob struct {
	run  func(*Turn)
	done chan<- error
}

func (j *turnJob) Run(_ context.Context, t *Turn) error { j.run(t); return nil }
func (j *turnJob) Done(err error)                       { j.done <- err }
