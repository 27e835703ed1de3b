package streamstest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/asteria-runtime/asteria/streams"
)

// Options sets how much [Run] does.
type Options struct {
	// Programs is the number of random programs; 0 means 300.
	Programs uint64
	// Memory returns n bytes for the cells of a program, until the test's cleanup:
	// what the device's copies are meant for. Default the Go heap.
	Memory func(t *testing.T, n int) []byte
}

// Run checks the device that open returns; closing it is the test's cleanup.
//
// Drivers run all host functions of a device on one thread of theirs, so the suite
// never lets one wait for another.
func Run(t *testing.T, open func(t *testing.T) *streams.Device, o Options) {
	s := suite{open: open, Options: o}
	if s.Programs == 0 {
		s.Programs = 300
	}
	if s.Memory == nil {
		s.Memory = func(_ *testing.T, n int) []byte { return make([]byte, n) }
	}
	for _, c := range []struct {
		name string
		f    func(t *testing.T)
	}{
		{"one stream runs in order", s.order},
		{"an event orders two streams", s.event},
		{"wait takes the latest record", s.latest},
		{"an event without a record holds nothing back", s.unrecorded},
		{"copies run in order with the rest", s.copies},
		{"an error surfaces once and the stream recovers", s.failure},
		{"a panic becomes its stream's error", s.panics},
		{"an event carries the error to who waits", s.carries},
		{"an error is handed on through a chain", s.chain},
		{"an earlier point carries no later error", s.earlier},
		{"synchronise ends with its context", s.deadline},
		{"close runs what is enqueued", s.closing},
		{"a host stream waits for an event", s.host},
		{"random programs equal their sequential meaning", s.random},
		{"hammer", s.hammer},
	} {
		t.Run(c.name, c.f)
	}
}

type suite struct {
	Options
	open func(t *testing.T) *streams.Device
}

func stream(t *testing.T, d *streams.Device, p streams.Priority) *streams.Stream {
	t.Helper()
	s, err := d.NewStream(p)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// pair opens a device with two streams.
func (s suite) pair(t *testing.T) (a, b *streams.Stream) {
	d := s.open(t)
	return stream(t, d, streams.Normal), stream(t, d, streams.Low)
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func (s suite) order(t *testing.T) {
	a, _ := s.pair(t)
	var got []int
	for i := range 500 {
		must(t, a.Do(func() error { got = append(got, i); return nil }))
	}
	must(t, a.Synchronize(t.Context()))
	for i, v := range got {
		if i != v {
			t.Fatalf("operation %d ran at place %d", v, i)
		}
	}
	if len(got) != 500 || !a.Query() {
		t.Fatalf("%d operations ran, idle %v", len(got), a.Query())
	}
}

// slow is a host function that gives a missing dependency time to show.
func slow(f func()) func() error {
	return func() error { time.Sleep(5 * time.Millisecond); f(); return nil }
}

func (s suite) event(t *testing.T) {
	a, b := s.pair(t)
	var e streams.Event
	x := 0
	must(t, a.Do(slow(func() { x = 1 })), a.Record(&e), b.Wait(&e), b.Do(func() error { x *= 10; return nil }))
	must(t, b.Synchronize(t.Context()))
	if x != 10 || !e.Query() {
		t.Fatalf("x = %d, reached %v: the second stream did not wait", x, e.Query())
	}
	must(t, a.Synchronize(t.Context()), e.Close())
}

func (s suite) latest(t *testing.T) {
	a, b := s.pair(t)
	var e streams.Event
	release := make(chan struct{})
	must(t, a.Record(&e), b.Wait(&e))
	must(t, a.Do(func() error { <-release; return nil }), a.Record(&e))
	must(t, b.Synchronize(t.Context())) // must not wait for the second record
	if e.Query() {
		t.Error("the second point counts as reached before it was")
	}
	close(release)
	must(t, e.Synchronize(t.Context()), a.Synchronize(t.Context()))
}

func (s suite) unrecorded(t *testing.T) {
	a, _ := s.pair(t)
	var e streams.Event
	must(t, a.Wait(&e), a.Synchronize(t.Context()), e.Synchronize(t.Context()))
	if !e.Query() {
		t.Error("an event without a record is not reached")
	}
}

func (s suite) copies(t *testing.T) {
	a, _ := s.pair(t)
	src, mid, dst := s.Memory(t, 5), s.Memory(t, 5), s.Memory(t, 5)
	copy(src, "state")
	must(t, a.Copy(mid, src), a.Copy(dst, mid), a.Copy(dst[:0], src[:0]), a.Synchronize(t.Context()))
	if !bytes.Equal(dst, src) {
		t.Fatalf("copied %q", dst)
	}
	defer func() {
		if recover() == nil {
			t.Error("slices of different length were accepted")
		}
	}()
	_ = a.Copy(dst, src[:2])
}

func (s suite) failure(t *testing.T) {
	a, _ := s.pair(t)
	cause := errors.New("no room")
	ran := false
	must(t, a.Do(func() error { return cause }), a.Do(func() error { ran = true; return nil }))
	if err := a.Synchronize(t.Context()); !errors.Is(err, cause) {
		t.Fatalf("err = %v, want %v", err, cause)
	}
	if ran {
		t.Error("a host function ran after a failure")
	}
	must(t, a.Do(func() error { ran = true; return nil }), a.Synchronize(t.Context()))
	if !ran {
		t.Error("the stream did not recover after its error was returned")
	}
}

func (s suite) panics(t *testing.T) {
	a, _ := s.pair(t)
	must(t, a.Do(func() error { panic("odd") }))
	if err := a.Synchronize(t.Context()); err == nil || !strings.Contains(err.Error(), "odd") {
		t.Fatalf("err = %v", err)
	}
}

func (s suite) carries(t *testing.T) {
	a, b := s.pair(t)
	cause := errors.New("torn page")
	var e streams.Event
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
	// An event recorded before the error was taken still carries it.
	must(t, b.Wait(&e))
	if err := b.Synchronize(t.Context()); !errors.Is(err, cause) {
		t.Errorf("a later wait: %v, want %v", err, cause)
	}
}

func (s suite) chain(t *testing.T) {
	d := s.open(t)
	cause := errors.New("first link")
	var events [3]streams.Event
	var lanes [3]*streams.Stream
	for i := range lanes {
		lanes[i] = stream(t, d, streams.Normal)
		if i > 0 {
			must(t, lanes[i].Wait(&events[i-1]))
		} else {
			must(t, lanes[0].Do(func() error { time.Sleep(5 * time.Millisecond); return cause }))
		}
		must(t, lanes[i].Record(&events[i]))
	}
	for i := len(lanes) - 1; i >= 0; i-- {
		if err := lanes[i].Synchronize(t.Context()); !errors.Is(err, cause) {
			t.Errorf("stream %d: %v, want %v", i, err, cause)
		}
	}
}

func (s suite) earlier(t *testing.T) {
	a, b := s.pair(t)
	var e streams.Event
	must(t, a.Record(&e), a.Do(func() error { return errors.New("later") }), b.Wait(&e))
	must(t, b.Synchronize(t.Context()), e.Synchronize(t.Context()))
	if a.Synchronize(t.Context()) == nil {
		t.Error("the error is lost")
	}
}

func (s suite) deadline(t *testing.T) {
	a, _ := s.pair(t)
	release := make(chan struct{})
	var e streams.Event
	must(t, a.Do(func() error { <-release; return nil }), a.Record(&e))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	for _, err := range []error{a.Synchronize(ctx), e.Synchronize(ctx)} {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("err = %v", err)
		}
	}
	close(release)
	must(t, a.Synchronize(t.Context()), e.Synchronize(context.Background()))
}

func (s suite) closing(t *testing.T) {
	d := s.open(t)
	a := stream(t, d, streams.Low)
	ran := false
	must(t, a.Do(slow(func() { ran = true })), a.Do(func() error { return errors.New("unseen") }))
	if err := a.Close(); err == nil || !ran {
		t.Fatalf("ran %v, err %v", ran, err)
	}
	var e streams.Event
	for _, err := range []error{a.Do(func() error { return nil }), a.Record(&e), a.Copy(make([]byte, 1), make([]byte, 1))} {
		if !errors.Is(err, streams.ErrClosed) {
			t.Errorf("work on a closed stream: %v", err)
		}
	}
	if _, err := d.NewStream(5); err == nil {
		t.Error("priority 5 was accepted")
	}
	must(t, a.Close(), a.Synchronize(t.Context()), d.Close())
	if _, err := d.NewStream(streams.Normal); !errors.Is(err, streams.ErrClosed) {
		t.Errorf("a stream of a closed device: %v", err)
	}
}

func (s suite) host(t *testing.T) {
	a, _ := s.pair(t)
	host := streams.Host()
	defer host.Close()
	h := stream(t, host, streams.Normal)
	var e streams.Event
	x := 0
	must(t, a.Do(slow(func() { x = 1 })), a.Record(&e), h.Wait(&e), h.Do(func() error { x *= 10; return nil }))
	must(t, h.Synchronize(t.Context()))
	if x != 10 {
		t.Fatalf("x = %d: the host stream did not wait", x)
	}
}

// random runs programs of host functions, copies, records and waits. Every cell is
// only ever touched by operations that events order, so the sequential run is the
// only allowed outcome; an ordering bug shows as a wrong value.
func (s suite) random(t *testing.T) {
	d := s.open(t)
	cells := s.Memory(t, cellCount*cellBytes)
	for seed := range s.Programs {
		p := newProgram(seed)
		var want [cellCount * cellBytes]byte
		p.sequential(want[:])
		clear(cells)
		if err := p.run(t, d, cells); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !bytes.Equal(cells, want[:]) {
			t.Fatalf("seed %d: %x\nsequentially: %x", seed, cells, want)
		}
	}
}

const (
	cellCount = 4
	cellBytes = 8
)

// program is a list of operations over cells, each on one of a few streams.
type program struct {
	priorities []streams.Priority
	ops        []step
}

type step struct {
	stream, from, to int
	k                uint64
	copies           bool
}

func newProgram(seed uint64) program {
	g := rand.New(rand.NewPCG(seed, 11))
	var p program
	for range 2 + g.IntN(3) {
		p.priorities = append(p.priorities, streams.Priority(g.IntN(3)-1))
	}
	for range 24 {
		p.ops = append(p.ops, step{
			g.IntN(len(p.priorities)), g.IntN(cellCount), g.IntN(cellCount), g.Uint64(), g.IntN(3) == 0,
		})
	}
	return p
}

func cell(cells []byte, i int) []byte { return cells[i*cellBytes : (i+1)*cellBytes] }

func (o step) apply(cells []byte) {
	from, to := cell(cells, o.from), cell(cells, o.to)
	if o.copies {
		copy(to, from)
		return
	}
	u := binary.LittleEndian
	u.PutUint64(to, u.Uint64(to)*31+u.Uint64(from)^o.k)
}

func (p program) sequential(cells []byte) {
	for _, o := range p.ops {
		o.apply(cells)
	}
}

// run interprets the program with streams: before an operation touches a cell, its
// stream waits for the event recorded after the cell's last user.
func (p program) run(t *testing.T, d *streams.Device, cells []byte) error {
	var lanes []*streams.Stream
	for _, priority := range p.priorities {
		lanes = append(lanes, stream(t, d, priority))
	}
	var last [cellCount]streams.Event
	var errs []error
	for _, o := range p.ops {
		s := lanes[o.stream]
		errs = append(errs, s.Wait(&last[o.from]), s.Wait(&last[o.to]))
		if o.copies && o.from != o.to {
			errs = append(errs, s.Copy(cell(cells, o.to), cell(cells, o.from)))
		} else {
			errs = append(errs, s.Do(func() error { o.apply(cells); return nil }))
		}
		errs = append(errs, s.Record(&last[o.to]), s.Record(&last[o.from]))
	}
	for _, s := range lanes {
		errs = append(errs, s.Synchronize(t.Context()), s.Close())
	}
	for i := range last {
		errs = append(errs, last[i].Close())
	}
	return errors.Join(errs...)
}

func (s suite) hammer(t *testing.T) {
	a, _ := s.pair(t)
	var e streams.Event
	var sum int // touched by the stream alone
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				if err := errors.Join(a.Do(func() error { sum++; return nil }), a.Record(&e), e.Synchronize(t.Context())); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	must(t, a.Synchronize(t.Context()))
	if sum != 400 {
		t.Fatalf("%d of 400 operations ran", sum)
	}
}
