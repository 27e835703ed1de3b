package streams

import (
	"context"
	"fmt"
	"runtime"
	"sync"
)

// kind of an operation.
type kind uint8

const (
	call kind = iota
	copyBytes
	record
	wait
)

// operation is one entry of a stream's queue. It is a value, so that enqueuing
// allocates nothing once the queue has grown.
type operation struct {
	kind     kind
	f        func() error
	dst, src []byte
	event    *Event
	point    uint64
}

// hostLane is a stream of the host device: a queue and a goroutine that serves it.
type hostLane struct {
	low     bool
	stopped chan struct{} // closed when the serving goroutine ended

	mu     sync.Mutex
	work   *sync.Cond // signalled when the queue grows or the stream closes
	idle   *sync.Cond // signalled when the queue has run empty
	queue  []operation
	head   int  // first entry that did not run
	busy   bool // an entry is running
	closed bool
	err    error // first failure since the last Synchronize
}

func newHostLane(p Priority) *hostLane {
	s := &hostLane{low: p == Low, stopped: make(chan struct{})}
	s.work, s.idle = sync.NewCond(&s.mu), sync.NewCond(&s.mu)
	go s.serve()
	return s
}

func (s *hostLane) do(f func() error) error { return s.enqueue(operation{kind: call, f: f}) }

func (s *hostLane) copy(dst, src []byte) error {
	return s.enqueue(operation{kind: copyBytes, dst: dst, src: src})
}

func (s *hostLane) record(e *Event) error {
	n := e.record()
	if err := s.enqueue(operation{kind: record, event: e, point: n}); err != nil {
		e.reach(n, err)
		return err
	}
	return nil
}

func (s *hostLane) wait(e *Event) error {
	if d := e.onDevice(); d != nil {
		return s.enqueue(operation{kind: call, f: d.await})
	}
	return s.enqueue(operation{kind: wait, event: e, point: e.latest()})
}

func (s *hostLane) enqueue(op operation) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if s.head == len(s.queue) {
		s.queue, s.head = s.queue[:0], 0
	}
	s.queue = append(s.queue, op)
	s.work.Signal()
	return nil
}

// serve runs the queue. A low-priority stream keeps an operating-system thread for
// itself and ends with it locked, so that the lowered thread is not reused.
func (s *hostLane) serve() {
	defer close(s.stopped)
	if s.low {
		runtime.LockOSThread()
		lowerThread()
	}
	for {
		op, ok := s.next()
		if !ok {
			return
		}
		s.finish(s.run(op))
	}
}

// next takes the next operation, or reports false when the stream is closed and
// its queue empty.
func (s *hostLane) next() (operation, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.head == len(s.queue) {
		if s.closed {
			return operation{}, false
		}
		s.work.Wait()
	}
	op := s.queue[s.head]
	s.queue[s.head] = operation{} // drop references
	s.head++
	s.busy = true
	return op, true
}

// run executes one operation. Events are reached and waited for even after a
// failure, or a stream that waits for this one would hang.
func (s *hostLane) run(op operation) error {
	failed := s.failure()
	switch op.kind {
	case record:
		op.event.reach(op.point, failed)
	case wait:
		return op.event.await(op.point)
	case copyBytes:
		if failed == nil {
			copy(op.dst, op.src)
		}
	case call:
		if failed == nil {
			return protect(op.f)
		}
	}
	return nil
}

// protect turns a panic of f into its error.
func protect(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("streams: host function panicked: %v", r)
		}
	}()
	return f()
}

func (s *hostLane) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *hostLane) finish(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = false
	if s.err == nil {
		s.err = err
	}
	if s.head == len(s.queue) {
		s.idle.Broadcast()
	}
}

func (s *hostLane) query() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.empty()
}

func (s *hostLane) empty() bool { return s.head == len(s.queue) && !s.busy }

func (s *hostLane) synchronize(ctx context.Context) error {
	if s.query() {
		return s.takeError() // the common case needs no watch on ctx
	}
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.idle.Broadcast()
	})
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.empty() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s.idle.Wait()
	}
	err := s.err
	s.err = nil
	return err
}

func (s *hostLane) takeError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.err
	s.err = nil
	return err
}

func (s *hostLane) close() error {
	s.mu.Lock()
	s.closed = true
	s.work.Signal()
	s.mu.Unlock()
	<-s.stopped
	return s.takeError()
}
