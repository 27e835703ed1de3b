package streams

import (
	"context"
	"sync"
)

// Event marks a point of a stream. The zero value was never recorded. An event may
// be recorded again and again, so a step path needs no new ones.
type Event struct {
	mu       sync.Mutex
	reached  *sync.Cond // made on first use; signalled when done grows
	recorded uint64     // number of Record calls
	done     uint64     // number of those whose point was reached; points are reached in order of their records only within one stream
	pending  map[uint64]struct{}
	err      error // of the latest point reached

	mark   *deviceMark // made on the first record on an accelerator
	marked bool        // the latest record is the mark's
}

// onDevice returns the accelerator's mark, nil when the latest record was a host
// stream's or there is none.
func (e *Event) onDevice() *deviceMark {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.marked {
		return nil
	}
	return e.mark
}

// markOn returns the event's mark on a, making it when there is none.
func (e *Event) markOn(a *accelerator) (*deviceMark, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mark != nil && e.mark.acc == a {
		e.marked = true
		return e.mark, nil
	}
	m, err := a.newMark()
	if err != nil {
		return nil, err
	}
	old := e.mark
	e.mark, e.marked = m, true
	if old != nil {
		return m, old.close()
	}
	return m, nil
}

// Close gives back what an accelerator holds for the event; waits that are already
// enqueued stay. An event that only host streams recorded needs no Close, and one
// that is not closed is given back with its device.
func (e *Event) Close() error {
	e.mu.Lock()
	m := e.mark
	e.mark, e.marked = nil, false
	e.mu.Unlock()
	if m == nil {
		return nil
	}
	return m.close()
}

// record numbers a new point.
func (e *Event) record() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.init()
	e.marked = false
	e.recorded++
	e.pending[e.recorded] = struct{}{}
	return e.recorded
}

func (e *Event) init() {
	if e.reached == nil {
		e.reached = sync.NewCond(&e.mu)
		e.pending = map[uint64]struct{}{}
	}
}

// latest returns the number of the newest point, 0 when there is none.
func (e *Event) latest() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.recorded
}

func (e *Event) reach(n uint64, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.pending, n)
	if n > e.done {
		e.done, e.err = n, err
	}
	e.reached.Broadcast()
}

// await waits until point n was reached and returns the error it carries, when it
// is still the latest point reached.
func (e *Event) await(n uint64) error {
	if n == 0 {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.isPending(n) {
		e.reached.Wait()
	}
	if e.done == n {
		return e.err
	}
	return nil
}

func (e *Event) isPending(n uint64) bool {
	_, waiting := e.pending[n]
	return waiting
}

// Query reports whether the latest recorded point was reached, without waiting.
func (e *Event) Query() bool {
	if d := e.onDevice(); d != nil {
		return d.done()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.isPending(e.recorded)
}

// Synchronize waits until the point of the latest Record was reached and returns
// the error that it carries. When ctx ends first it returns the cause.
func (e *Event) Synchronize(ctx context.Context) error {
	if d := e.onDevice(); d != nil {
		return d.synchronize(ctx)
	}
	n := e.latest()
	if n == 0 {
		return nil
	}
	wake := func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.reached.Broadcast()
	}
	stop := context.AfterFunc(ctx, wake)
	defer stop()
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.isPending(n) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		e.reached.Wait()
	}
	if e.done == n {
		return e.err
	}
	return nil
}
