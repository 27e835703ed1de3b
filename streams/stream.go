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

// Stream is an ordered queue of asynchronous work.
type Stream struct {
	device   *Device
	priority Priority
	stopped  chan struct{} // closed when the serving goroutine ended

	mu     sync.Mutex
	work   *sync.Cond // signalled when the queue grows or the stream closes
	idle   *sync.Cond // signalled when the queue has run empty
	queue  []operation
	head   int  // first entry that did not run
	busy   bool // an entry is running
	closed bool
	err    error // first failure since the last Synchronize
}

func newStream(d *Device, p Priority) *Stream {
	s := &Stream{device: d, priority: p, stopped: make(chan struct{})}
	s.work, s.idle = sync.NewCond(&s.mu), sync.NewCond(&s.mu)
	go s.serve()
	return s
}

// Priority returns what the stream was made with.
func (s *Stream) Priority() Priority { return s.priority }

// Do enqueues a host function. f runs on the stream's own goroutine and must not
// wait for this stream.
func (s *Stream) Do(f func() error) error { return s.enqueue(operation{kind: call, f: f}) }

// Copy enqueues a copy of src to dst, which must have the same length. Both must
// stay alone until the copy ran.
func (s *Stream) Copy(dst, src []byte) error {
	if len(dst) != len(src) {
		panic("streams: copy of slices that differ in length")
	}
	return s.enqueue(operation{kind: copyBytes, dst: dst, src: src})
}

// Record makes e mark the point after all operations enqueued so far.
func (s *Stream) Record(e *Event) error {
	n := e.record()
	if err := s.enqueue(operation{kind: record, event: e, point: n}); err != nil {
		e.reach(n, err)
		return err
	}
	return nil
}

// Wait holds back all operations enqueued later until the point that e's latest
// Record marked has been reached. Where that point carries an error, this stream
// fails with it.
func (s *Stream) Wait(e *Event) error {
	return s.enqueue(operation{kind: wait, event: e, point: e.latest()})
}

func (s *Stream) enqueue(op operation) error {
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
func (s *Stream) serve() {
	defer close(s.stopped)
	if s.priority == Low {
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
func (s *Stream) next() (operation, bool) {
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
func (s *Stream) run(op operation) error {
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

func (s *Stream) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *Stream) finish(err error) {
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

// Query reports whether everything enqueued so far has run.
func (s *Stream) Query() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.empty()
}

func (s *Stream) empty() bool { return s.head == len(s.queue) && !s.busy }

// Synchronize waits until everything enqueued has run, returns the first error
// since the last Synchronize and clears it. When ctx ends first it returns the
// cause, and the error stays for the next call.
func (s *Stream) Synchronize(ctx context.Context) error {
	if s.Query() {
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

func (s *Stream) takeError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.err
	s.err = nil
	return err
}

// Close runs what is enqueued, ends the stream, and returns an error that no
// Synchronize returned. A second Close does nothing.
func (s *Stream) Close() error {
	s.mu.Lock()
	s.closed = true
	s.work.Signal()
	s.mu.Unlock()
	<-s.stopped
	s.device.forget(s)
	return s.takeError()
}
