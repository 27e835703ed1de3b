package nvmepage

import (
	"io"
	"sync"
)

// poolEngine serves requests with the callers' threads and with goroutines. Small
// requests that follow each other in a file go to the system as one run: waking a
// thread, and the call, cost as much as a small read.
type poolEngine struct {
	queue   chan *request   // first requests of runs
	rooms   chan *runVector // one for each call to the system that may still be made
	workers sync.WaitGroup

	mu   sync.Mutex
	held run // not yet in the queue
}

// The bounds of a run. A drive is near its full speed with calls of runBytes; more
// would leave nothing to do beside the one in flight.
const (
	runBytes    = 256 << 10
	runRequests = 16
)

// summingDepth is from what depth on those who read also take checksums.
const summingDepth = 4

// run is a list of requests that follow each other in a file, all reads or all writes.
type run struct {
	first, last *request
	count, size int
}

// takes reports whether r may join the run.
func (u *run) takes(r *request) bool {
	l := u.last
	return l != nil && u.count < runRequests && u.size+r.size() <= runBytes &&
		l.file == r.file && l.write == r.write && l.off+int64(l.size()) == r.off
}

func (u *run) push(r *request) {
	if u.last == nil {
		u.first = r
	} else {
		u.last.next = r
	}
	u.last = r
	u.count++
	u.size += r.size()
}

// pop empties the run and returns its first request, nil if there is none.
func (u *run) pop() *request {
	first := u.first
	*u = run{}
	return first
}

func newPoolEngine(depth int) *poolEngine {
	e := &poolEngine{queue: make(chan *request, depth), rooms: make(chan *runVector, depth)}
	for range depth {
		e.rooms <- new(runVector)
		e.workers.Go(e.serve)
	}
	return e
}

func (e *poolEngine) serve() {
	for first := range e.queue {
		e.carry(first)
	}
}

// submit holds r back while the run that it is part of may grow.
func (e *poolEngine) submit(r *request) {
	if _, ok := r.file.(vectored); !ok {
		e.queue <- r
		return
	}
	var before, full *request
	e.mu.Lock()
	if !e.held.takes(r) {
		before = e.held.pop()
	}
	e.held.push(r)
	if e.held.size >= runBytes || e.held.count == runRequests {
		full = e.held.pop()
	}
	e.mu.Unlock()
	e.enqueue(before)
	e.enqueue(full)
}

func (e *poolEngine) release() {
	e.mu.Lock()
	first := e.held.pop()
	e.mu.Unlock()
	e.enqueue(first)
}

func (e *poolEngine) enqueue(first *request) {
	if first != nil {
		e.queue <- first
	}
}

// carry ends the requests of a run. If one call for all moves less than all, each has
// a call of its own, so that an error is of the request that it concerns.
func (e *poolEngine) carry(first *request) {
	done := first.next != nil && e.together(first)
	for r := first; r != nil; {
		next := r.next // once r is over, it is its owner's
		r.next = nil
		if done {
			e.summarize(r)
			r.finish(r.size(), nil)
		} else {
			e.perform(r)
		}
		r = next
	}
}

// together moves the requests of a run in one call and reports whether it moved all.
func (e *poolEngine) together(first *request) bool {
	room := <-e.rooms
	defer func() { e.rooms <- room }()
	want := 0
	for r := first; r != nil; r = r.next {
		want += r.size()
	}
	n, err := first.file.(vectored).moveRun(first, room)
	return err == nil && n == want
}

func (e *poolEngine) perform(r *request) {
	room := <-e.rooms
	n, err := transfer(r, room)
	e.rooms <- room
	if err == nil && n == r.size() {
		e.summarize(r)
	}
	r.finish(n, err)
}

// summarize takes the checksum of what was read, where that is a payload: several
// threads take more than one that waits for all of them. Few are better left to read
// on meanwhile.
func (e *poolEngine) summarize(r *request) {
	if r.whole && !r.write && cap(e.rooms) >= summingDepth {
		r.sum, r.summed = checksum(r.buf[:len(r.dst)]), true
	}
}

// vectored is a file that moves the pieces of requests that follow each other in one
// call.
type vectored interface {
	moveRun(first *request, room *runVector) (int, error)
}

// transfer moves a request's bytes.
func transfer(r *request, room *runVector) (int, error) {
	if f, ok := r.file.(vectored); ok {
		return f.moveRun(r, room)
	}
	n, err := move(r.file, r.head, r.off, r.write)
	if err != nil || n != len(r.head) {
		return n, err
	}
	m, err := move(r.file, r.buf, r.off+int64(n), r.write)
	return n + m, err
}

// move reads or writes buf. A read that ends at the end of the file with all bytes
// there is complete.
func move(f File, buf []byte, off int64, write bool) (int, error) {
	if len(buf) == 0 {
		return 0, nil
	}
	if write {
		return f.WriteAt(buf, off)
	}
	n, err := f.ReadAt(buf, off)
	if err == io.EOF && n == len(buf) {
		err = nil
	}
	return n, err
}

func (e *poolEngine) busy() bool { return len(e.rooms) < cap(e.rooms) }

func (e *poolEngine) turn() chan struct{} { return nil }

func (e *poolEngine) reap() bool { return false }

func (e *poolEngine) work() <-chan struct{} { return nil }

func (e *poolEngine) close() {
	close(e.queue)
	e.workers.Wait()
}

func (e *poolEngine) name() string { return Pool.String() }
