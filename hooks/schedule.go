package hooks

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// Func is a hook. It runs on the goroutine that fires; an error ends the firing.
// A panic is not caught.
type Func func(ctx context.Context, ev Event) error

// When chooses the events that a hook runs at; nil means all.
type When func(Event) bool

// Error is a hook's failure; it wraps what the hook returned.
type Error struct {
	Hook  string // the name it was registered with
	Event Event
	Err   error
}

// Error names hook, point, step and layer.
func (e *Error) Error() string {
	return fmt.Sprintf("hooks: %q at %s: %v", e.Hook, e.Event, e.Err)
}

// Unwrap returns what the hook returned.
func (e *Error) Unwrap() error { return e.Err }

type hook struct {
	name string
	when When
	f    Func
	gone atomic.Bool
}

// Schedule holds hooks by point. The zero value is ready. It must not be copied
// after first use. Safe for concurrent use.
//
// Each list is immutable once published and replaced as a whole, under mu, so
// that Fire takes no lock and hooks may register and remove hooks.
type Schedule struct {
	mu   sync.Mutex // serialises writers
	list [points]atomic.Pointer[[]*hook]
}

// On registers f at p under a name for errors and listings; names need not be
// unique. Hooks at one point run in the order of registration. A nil when means
// every event. The returned function removes the hook; calling it again, from
// any goroutine, is harmless.
func (s *Schedule) On(p Point, name string, when When, f Func) (remove func()) {
	if p >= points {
		panic("hooks: unknown point")
	}
	if f == nil {
		panic("hooks: nil function")
	}
	h := &hook{name: name, when: when, f: f}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := append(slices.Clone(s.at(p)), h)
	s.list[p].Store(&next)
	return func() { s.remove(p, h) }
}

func (s *Schedule) remove(p Point, h *hook) {
	if h.gone.Swap(true) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := slices.DeleteFunc(slices.Clone(s.at(p)), func(x *hook) bool { return x == h })
	if len(next) == 0 {
		s.list[p].Store(nil)
		return
	}
	s.list[p].Store(&next)
}

func (s *Schedule) at(p Point) []*hook {
	if l := s.list[p].Load(); l != nil {
		return *l
	}
	return nil
}

// Fire runs the hooks of ev.Point that are due, in order, and returns the first
// failure as an [*Error]; the hooks after it do not run. ctx goes to the hooks and
// is not looked at here. Firing a point without hooks costs a load and a branch;
// Fire never allocates unless a hook fails.
func (s *Schedule) Fire(ctx context.Context, ev Event) error {
	if ev.Point >= points {
		panic("hooks: unknown point")
	}
	l := s.list[ev.Point].Load()
	if l == nil {
		return nil
	}
	return run(ctx, ev, *l)
}

func run(ctx context.Context, ev Event, list []*hook) error {
	for _, h := range list {
		if h.gone.Load() || h.when != nil && !h.when(ev) {
			continue
		}
		if err := h.f(ctx, ev); err != nil {
			return &Error{Hook: h.name, Event: ev, Err: err}
		}
	}
	return nil
}

// Names lists the hooks at p in the order in which they run.
func (s *Schedule) Names(p Point) []string {
	if p >= points {
		panic("hooks: unknown point")
	}
	var names []string
	for _, h := range s.at(p) {
		names = append(names, h.name)
	}
	return names
}
