package hooks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

var background = context.Background()

func TestZeroScheduleFiresNothing(t *testing.T) {
	var s Schedule
	for p := range points {
		if err := s.Fire(background, Event{Point: p, Layer: -1}); err != nil {
			t.Fatal(err)
		}
		if n := s.Names(p); n != nil {
			t.Fatalf("%v lists %v", p, n)
		}
	}
}

func TestErrorNamesHookAndEventAndWraps(t *testing.T) {
	var s Schedule
	cause := errors.New("disk full")
	after := false
	s.On(StepEnd, "save", nil, func(context.Context, Event) error { return cause })
	s.On(StepEnd, "later", nil, func(context.Context, Event) error { after = true; return nil })
	err := s.Fire(background, Event{Point: StepEnd, Step: 12, Layer: -1})
	var e *Error
	if !errors.Is(err, cause) || !errors.As(err, &e) || e.Hook != "save" || e.Event.Step != 12 {
		t.Fatalf("error %#v", err)
	}
	if want := `hooks: "save" at StepEnd, step 12: disk full`; err.Error() != want {
		t.Fatalf("%q, want %q", err, want)
	}
	if after {
		t.Fatal("a hook ran after the failure")
	}
}

func TestContextReachesTheHook(t *testing.T) {
	var s Schedule
	type key struct{}
	ctx := context.WithValue(background, key{}, 7)
	s.On(GradReady, "look", nil, func(ctx context.Context, _ Event) error {
		if ctx.Value(key{}) != 7 {
			t.Error("another context arrived")
		}
		return ctx.Err()
	})
	if err := s.Fire(ctx, Event{Point: GradReady}); err != nil {
		t.Fatal(err)
	}
}

func TestMisusePanics(t *testing.T) {
	var s Schedule
	nop := func(context.Context, Event) error { return nil }
	for name, f := range map[string]func(){
		"fire":   func() { s.Fire(background, Event{Point: points}) },
		"on":     func() { s.On(points, "x", nil, nop) },
		"nil":    func() { s.On(StepEnd, "x", nil, nil) },
		"names":  func() { s.Names(points) },
		"every":  func() { Every(0, 0) },
		"period": func() { Stagger(nil, 0) },
		"cost":   func() { Stagger([]int64{-1}, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Fatal("no panic")
				}
			}()
			f()
		})
	}
}

func TestPointNamesParse(t *testing.T) {
	for p := range points {
		if q, err := ParsePoint(p.String()); err != nil || q != p {
			t.Fatalf("%v parses as %v, %v", p, q, err)
		}
	}
	if _, err := ParsePoint("stepend"); err == nil {
		t.Fatal("stepend accepted")
	}
	if s := points.String(); s != "Point(9)" {
		t.Fatal(s)
	}
}

func TestFireDoesNotAllocate(t *testing.T) {
	var s Schedule
	ev := Event{Point: PreForward, Step: 3, Layer: 1}
	if a := testing.AllocsPerRun(100, func() { s.Fire(background, ev) }); a != 0 {
		t.Fatalf("empty point: %v allocations", a)
	}
	n := 0
	for range 3 {
		s.On(PreForward, "count", Every(3, 0), func(context.Context, Event) error { n++; return nil })
	}
	if a := testing.AllocsPerRun(100, func() { s.Fire(background, ev) }); a != 0 || n == 0 {
		t.Fatalf("three hooks: %v allocations, %d calls", a, n)
	}
}

// Writers register and remove without pause while readers fire. Every firing must
// see a subsequence of the order of registration, and the permanent hooks always.
func TestHammer(t *testing.T) {
	const writers, readers, rounds = 4, 4, 300
	var s Schedule
	var permanent atomic.Int64
	s.On(StepEnd, "first", nil, func(context.Context, Event) error { permanent.Add(1); return nil })
	var clock atomic.Int64
	var reading, writing sync.WaitGroup
	stop := make(chan struct{})
	var fires atomic.Int64
	for range readers {
		reading.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				var seen []int64
				ctx := context.WithValue(background, seenKey{}, &seen)
				if err := s.Fire(ctx, Event{Point: StepEnd}); err != nil {
					t.Error(err)
				}
				fires.Add(1)
				if !slices.IsSorted(seen) {
					t.Errorf("order %v", seen)
				}
			}
		})
	}
	var order sync.Mutex // makes the stamp and the registration one step
	for w := range writers {
		writing.Go(func() {
			for range rounds {
				order.Lock()
				stamp := clock.Add(1)
				remove := s.On(StepEnd, fmt.Sprint(w), nil, func(ctx context.Context, _ Event) error {
					seen := ctx.Value(seenKey{}).(*[]int64)
					*seen = append(*seen, stamp)
					return nil
				})
				order.Unlock()
				s.Names(StepEnd)
				remove()
				remove()
			}
		})
	}
	writing.Wait()
	close(stop)
	reading.Wait()
	if got := s.Names(StepEnd); !slices.Equal(got, []string{"first"}) {
		t.Fatalf("left over: %v", got)
	}
	if permanent.Load() != fires.Load() {
		t.Fatalf("the permanent hook ran %d times in %d firings", permanent.Load(), fires.Load())
	}
}

type seenKey struct{}
