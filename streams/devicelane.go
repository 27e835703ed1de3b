package streams

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/asteria-runtime/asteria/streams/internal/cuda"
)

// deviceLane is a stream of an accelerator.
type deviceLane struct {
	acc      *accelerator
	handle   uintptr
	borrowed bool // the stream is somebody else's

	mu     sync.Mutex // held while enqueuing: the order of the numbers is the driver's order
	number uint64     // of the latest operation
	fate   *fate
	frame  *cuda.Frame
	pins   runtime.Pinner // Go memory that copies in flight use
	closed bool
}

func (a *accelerator) newLane(p Priority) (*deviceLane, error) {
	l := &deviceLane{acc: a, fate: new(fate), frame: cuda.NewFrame()}
	err := a.do(func() error {
		var err error
		l.handle, err = a.driver.NewStream(a.priority(p))
		return err
	})
	return l, err
}

func (a *accelerator) borrow(handle uintptr) *deviceLane {
	return &deviceLane{acc: a, handle: handle, borrowed: true, fate: new(fate), frame: cuda.NewFrame()}
}

// enqueue gives the operation its number and runs f with the context current.
func (l *deviceLane) enqueue(f func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	l.number++
	return l.acc.do(f)
}

// hostCall is a host function on its way. It is recycled, so that enqueuing one
// allocates nothing in the long run.
type hostCall struct {
	f    func() error
	fate *fate
	at   uint64
	lane *deviceLane
}

var hostCalls = sync.Pool{New: func() any { return new(hostCall) }}

// RunHost implements [cuda.HostCall].
func (c *hostCall) RunHost() {
	if c.fate.failure(c.at) == nil {
		if err := protect(c.f); err != nil {
			c.fate.fail(c.at, err)
		}
	}
	*c = hostCall{}
	hostCalls.Put(c)
	cuda.Fence()
}

func (l *deviceLane) do(f func() error) error {
	return l.enqueue(func() error {
		c := hostCalls.Get().(*hostCall)
		*c = hostCall{f: f, fate: l.fate, at: l.number, lane: l}
		id := cuda.KeepCall(c)
		err := l.acc.driver.LaunchHost(l.handle, cuda.Callback(), id)
		if err != nil {
			cuda.TakeCall(id)
		}
		return err
	})
}

// copy may find plain Go memory at either end: it is pinned until the stream is
// next seen idle.
func (l *deviceLane) copy(dst, src []byte) error {
	if len(dst) == 0 {
		return nil
	}
	return l.enqueue(func() error {
		l.pins.Pin(&dst[0])
		l.pins.Pin(&src[0])
		return l.acc.driver.Copy(address(dst), address(src), len(dst), l.handle)
	})
}

func (l *deviceLane) record(e *Event) error {
	m, err := e.markOn(l.acc)
	if err != nil {
		return err
	}
	return l.enqueue(func() error {
		m.set(point{l.fate, l.number})
		return l.acc.driver.RecordEvent(m.handle, l.handle)
	})
}

func (l *deviceLane) wait(e *Event) error {
	m := e.onDevice()
	if m == nil {
		if e.latest() != 0 {
			return fmt.Errorf("%w: a stream of an accelerator cannot wait for a host stream", ErrForeignEvent)
		}
		return nil // never recorded
	}
	return l.enqueue(func() error {
		if p := m.get(); p.fate != l.fate {
			p.fate.follow(p.number, l.fate, l.number)
		}
		return l.acc.driver.WaitEvent(l.handle, m.handle)
	})
}

func (l *deviceLane) query() bool {
	done := true
	_ = l.acc.do(func() (err error) {
		done, err = l.acc.driver.StreamDone(l.handle)
		return err // a broken context has nothing left to run
	})
	return done
}

// synchronize drains the stream, and again when somebody enqueued meanwhile: what
// it reports and clears belongs to a stream that is empty.
func (l *deviceLane) synchronize(ctx context.Context) error {
	for {
		l.mu.Lock()
		before, closed := l.number, l.closed
		l.mu.Unlock()
		if closed {
			return nil
		}
		if err := l.drain(ctx); err != nil {
			return err
		}
		if empty, err := l.settle(before); empty {
			return err
		}
	}
}

// settle takes the stream's error if it is still empty.
func (l *deviceLane) settle(before uint64) (empty bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.number != before {
		return false, nil
	}
	l.pins.Unpin()
	if err = l.fate.failure(before + 1); err != nil {
		l.fate = new(fate)
		return true, err
	}
	l.fate.settle()
	return true, nil
}

// drain waits for the driver. Its error is the driver's or ctx's.
func (l *deviceLane) drain(ctx context.Context) error {
	err := l.acc.await(ctx, l.handle, (*cuda.Driver).StreamDone, (*cuda.Driver).AwaitStream)
	cuda.Fence()
	return err
}

// The pauses between looks at something that a context may end waiting for.
const (
	firstPause = 10 * time.Microsecond
	lastPause  = time.Millisecond
)

// await waits for a stream or an event: in the driver where ctx cannot end, and
// looking from time to time where it can.
func (a *accelerator) await(ctx context.Context, handle uintptr, done func(*cuda.Driver, uintptr) (bool, error), wait func(*cuda.Driver, uintptr) error) error {
	if ctx.Done() == nil {
		return a.do(func() error { return wait(a.driver, handle) })
	}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		var ready bool
		err := a.do(func() (err error) {
			ready, err = done(a.driver, handle)
			return err
		})
		if err != nil || ready {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		time.Sleep(pause)
	}
}

// close ends the stream. Host functions that a broken context will never run are
// dropped.
func (l *deviceLane) close() error {
	err := l.synchronize(context.Background())
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	var destroy error
	if !l.borrowed {
		destroy = l.acc.do(func() error { return l.acc.driver.CloseStream(l.handle) })
	}
	cuda.DropCalls(func(c cuda.HostCall) bool { h, ok := c.(*hostCall); return ok && h.lane == l })
	l.pins.Unpin()
	if err == nil {
		err = destroy
	}
	return err
}

// deviceMark is an event of the driver.
type deviceMark struct {
	acc    *accelerator
	handle uintptr

	mu sync.Mutex
	at point // of the latest record
}

func (a *accelerator) newMark() (*deviceMark, error) {
	m := &deviceMark{acc: a}
	err := a.do(func() (err error) {
		m.handle, err = a.driver.NewEvent(false)
		return err
	})
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.marks[m] = struct{}{}
	return m, nil
}

func (m *deviceMark) set(p point) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at = p
}

func (m *deviceMark) get() point {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at
}

func (m *deviceMark) done() bool {
	done := true
	_ = m.acc.do(func() (err error) {
		done, err = m.acc.driver.EventDone(m.handle)
		return err
	})
	return done
}

func (m *deviceMark) synchronize(ctx context.Context) error {
	p := m.get()
	if err := m.acc.await(ctx, m.handle, (*cuda.Driver).EventDone, (*cuda.Driver).AwaitEvent); err != nil {
		return err
	}
	cuda.Fence()
	return p.fate.failure(p.number)
}

// await is what a host stream does that waits for the mark.
func (m *deviceMark) await() error { return m.synchronize(context.Background()) }

func (m *deviceMark) close() error {
	m.acc.mu.Lock()
	_, open := m.acc.marks[m]
	delete(m.acc.marks, m)
	m.acc.mu.Unlock()
	if !open {
		return nil // went with its device
	}
	return m.acc.do(func() error { return m.acc.driver.CloseEvent(m.handle) })
}
