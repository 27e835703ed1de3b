package streams

import (
	"context"
	"errors"
	"runtime"
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
