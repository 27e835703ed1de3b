package streams

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func newDevice(t *testing.T) *Device {
	t.Helper()
	d := Host()
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func stream(t *testing.T, d *Device, p Priority) *Stream {
	t.Helper()
	s, err := d.NewStream(p)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestOneStreamRunsInOrder(t *testing.T) {
	s := stream(t, newDevice(t), Normal)
	var got []int
	for i := range 1000 {
		must(t, s.Do(func() error { got = append(got, i); return nil }))
	}
	must(t, s.Synchronize(t.Context()))
	for i, v := range got {
		if i != v {
			t.Fatalf("operation %d ran at place %d", v, i)
		}
	}
	if len(got) != 1000 || !s.Query() {
		t.Fatalf("%d operations ran, idle %v", len(got), s.Query())
	}
}

func TestStreamsRunAtTheSameTime(t *testing.T) {
	d := newDevice(t)
	a, b := stream(t, d, Normal), stream(t, d, Low)
	meet := make(chan int)
	must(t, a.Do(func() error { meet <- 1; return nil }), b.Do(func() error { <-meet; return nil }))
	must(t, a.Synchronize(t.Context()), b.Synchronize(t.Context()))
}

func TestAnEventOrdersTwoStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDevice(t)
		a, b := stream(t, d, Normal), stream(t, d, Normal)
		var e Event
		x := 0
		must(t, a.Do(func() error { time.Sleep(time.Second); x = 1; return nil }), a.Record(&e))
		must(t, b.Wait(&e), b.Do(func() error { x *= 10; return nil }))
		if e.Query() || b.Query() {
			t.Error("the event was reached before its point")
		}
		must(t, b.Synchronize(t.Context()))
		if x != 10 || !e.Query() {
			t.Fatalf("x = %d: the second stream did not wait", x)
		}
		must(t, d.Close())
	})
}

func TestWaitTakesTheLatestRecordAtTheTimeOfItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDevice(t)
		a, b := stream(t, d, Normal), stream(t, d, Normal)
		var e Event
		release := make(chan struct{})
		must(t, a.Record(&e), b.Wait(&e))
		must(t, a.Do(func() error { <-release; return nil }), a.Record(&e))
		must(t, b.Synchronize(t.Context())) // must not wait for the second record
		close(release)
		must(t, e.Synchronize(t.Context()), d.Close())
	})
}

func TestWaitingForAnEventThatWasNeverRecordedDoesNotWait(t *testing.T) {
	s := stream(t, newDevice(t), Normal)
	var e Event
	must(t, s.Wait(&e), s.Synchronize(t.Context()), e.Synchronize(t.Context()))
	if !e.Query() {
		t.Error("an event without a record is not reached")
	}
}

func TestCopiesRunInOrderWithTheRest(t *testing.T) {
	s := stream(t, newDevice(t), Normal)
	src, mid, dst := []byte("state"), make([]byte, 5), make([]byte, 5)
	must(t, s.Copy(mid, src), s.Copy(dst, mid), s.Synchronize(t.Context()))
	if !bytes.Equal(dst, src) {
		t.Fatalf("copied %q", dst)
	}
	defer func() {
		if recover() == nil {
			t.Error("slices of different length were accepted")
		}
	}()
	_ = s.Copy(dst, src[:2])
}

func TestAnAsynchronousErrorSurfacesOnceAtTheNextSynchronise(t *testing.T) {
	s := stream(t, newDevice(t), Normal)
	cause := errors.New("no room")
	ran := false
	must(t, s.Do(func() error { return cause }), s.Do(func() error { ran = true; return nil }))
	if err := s.Synchronize(t.Context()); !errors.Is(err, cause) {
		t.Fatalf("err = %v, want %v", err, cause)
	}
	if ran {
		t.Error("the stream went on after a failure")
	}
	must(t, s.Do(func() error { ran = true; return nil }), s.Synchronize(t.Context()))
	if !ran {
		t.Error("the stream did not recover after its error was returned")
	}
}

func TestAPanicBecomesTheErrorOfItsStream(t *testing.T) {
	s := stream(t, newDevice(t), Normal)
	must(t, s.Do(func() error { panic("odd") }))
	if err := s.Synchronize(t.Context()); err == nil || !strings.Contains(err.Error(), "odd") {
		t.Fatalf("err = %v", err)
	}
}

func TestAnEventCarriesTheErrorToTheStreamThatWaits(t *testing.T) {
	d := newDevice(t)
	a, b := stream(t, d, Normal), stream(t, d, Normal)
	cause := errors.New("torn page")
	var e Event
	used := false
	must(t, a.Do(func() error { return cause }), a.Record(&e), b.Wait(&e), b.Do(func() error { used = true; return nil }))
	for name, err := range map[string]error{
		"a": a.Synchronize(t.Context()), "b": b.Synchronize(t.Context()), "event": e.Synchronize(t.Context()),
	} {
		if !errors.Is(err, cause) {
			t.Errorf("%s: %v, want %v", name, err, cause)
		}
	}
	if used {
		t.Error("the waiting stream used what was never made")
	}
}

func TestSynchroniseEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDevice(t)
		s := stream(t, d, Normal)
		release := make(chan struct{})
		var e Event
		must(t, s.Do(func() error { <-release; return nil }), s.Record(&e))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, err := range []error{s.Synchronize(ctx), e.Synchronize(ctx)} {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("err = %v", err)
			}
		}
		close(release)
		must(t, s.Synchronize(t.Context()), d.Close())
	})
}

func TestCloseRunsWhatIsEnqueuedAndReturnsUnseenErrors(t *testing.T) {
	d := Host()
	s := stream(t, d, Low)
	ran := false
	must(t, s.Do(func() error { time.Sleep(time.Millisecond); ran = true; return errors.New("unseen") }))
	if err := s.Close(); err == nil || !ran {
		t.Fatalf("ran %v, err %v", ran, err)
	}
	var e Event
	for _, err := range []error{s.Do(func() error { return nil }), s.Record(&e), s.Wait(&e)} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("work on a closed stream: %v", err)
		}
	}
	must(t, s.Close(), d.Close())
	if _, err := d.NewStream(Normal); !errors.Is(err, ErrClosed) {
		t.Errorf("a stream of a closed device: %v", err)
	}
}

func TestBadPriorityAndMissingDeviceAreErrors(t *testing.T) {
	if _, err := newDevice(t).NewStream(5); err == nil {
		t.Error("priority 5 was accepted")
	}
	if _, err := Open(0); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Open: %v, want ErrUnsupported", err)
	}
}

func TestLowPriorityIsLowOperatingSystemPriority(t *testing.T) {
	d := newDevice(t)
	nice := func(p Priority) (n int, err error) {
		s := stream(t, d, p)
		must(t, s.Do(func() error { n, err = threadNice(); return nil }), s.Synchronize(t.Context()))
		return n, err
	}
	normal, err := nice(Normal)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("threads have no priority of their own on this system")
	}
	low, _ := nice(Low)
	if low != 19 || normal >= 19 {
		t.Fatalf("nice %d for low, %d for normal", low, normal)
	}
}

func TestEnqueuingAllocatesNothing(t *testing.T) {
	s := stream(t, newDevice(t), Normal)
	var e Event
	f := func() error { return nil }
	src, dst := make([]byte, 8), make([]byte, 8)
	n := testing.AllocsPerRun(200, func() {
		_ = s.Do(f)
		_ = s.Copy(dst, src)
		_ = s.Record(&e)
		_ = s.Wait(&e)
		for !s.Query() {
			runtime.Gosched()
		}
	})
	if n > 0 {
		t.Fatalf("%v allocations", n)
	}
}

// TestRandomProgramsEqualTheirSequentialMeaning runs random programs of host
// functions, copies, records and waits on several streams. Every cell is only ever
// touched by operations that events order, so the sequential run is the only
// allowed outcome; an ordering bug shows as a wrong value or as a race.
func TestRandomProgramsEqualTheirSequentialMeaning(t *testing.T) {
	n := uint64(300)
	if testing.Short() {
		n = 60
	}
	if os.Getenv("ASTERIA_LONG") != "" {
		n = 10000
	}
	for seed := range n {
		if got, want := runProgram(t, seed, true), runProgram(t, seed, false); got != want {
			t.Fatalf("seed %d: %s\nsequentially: %s", seed, got, want)
		}
	}
}

// runProgram interprets a program over shared cells. Before an operation touches a
// cell, its stream waits for the event recorded after the cell's last user.
func runProgram(t *testing.T, seed uint64, asynchronous bool) string {
	g := rand.New(rand.NewPCG(seed, 11))
	d := newDevice(t)
	streams := make([]*Stream, 2+g.IntN(3))
	for i := range streams {
		streams[i] = stream(t, d, Priority(g.IntN(3)-1))
	}
	cells := make([]uint64, 4)
	last := make([]Event, len(cells))
	for range 30 {
		s := streams[g.IntN(len(streams))]
		from, to, k := g.IntN(len(cells)), g.IntN(len(cells)), g.Uint64()
		op := func() error { cells[to] = cells[to]*31 + cells[from] ^ k; return nil }
		if !asynchronous {
			must(t, op())
			continue
		}
		must(t, s.Wait(&last[from]), s.Wait(&last[to]), s.Do(op), s.Record(&last[to]), s.Record(&last[from]))
	}
	for _, s := range streams {
		must(t, s.Synchronize(t.Context()), s.Close())
	}
	return fmt.Sprint(cells)
}

func TestHammer(t *testing.T) {
	d := newDevice(t)
	s := stream(t, d, Normal)
	var e Event
	var sum int // touched by the stream alone
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				must(t, s.Do(func() error { sum++; return nil }), s.Record(&e))
				must(t, e.Synchronize(t.Context()))
			}
		})
	}
	wg.Wait()
	must(t, s.Synchronize(t.Context()))
	if sum != 800 {
		t.Fatalf("%d of 800 operations ran", sum)
	}
}
