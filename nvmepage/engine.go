package nvmepage

import (
	"context"
	"fmt"
	"io"
)

// request is one read or write of two pieces of memory, either of which may be
// empty, that lie one behind the other in the file. The memory must stay alive and
// alone until the request is over. A request is used again and again; what it holds
// belongs to whoever prepared it, except between submit and the end.
type request struct {
	file      File
	name      string // of the file, for errors
	head, buf []byte
	off       int64
	write     bool
	vec       vector // the system's form of head and buf

	store  *Store // takes page and staged back; may be nil when there are none
	page   []byte // a header page that goes back with the end, nil for none
	staged []byte // a staging buffer that does, nil for none
	dst    []byte // of a read: where the payload is wanted
	whole  bool   // of a read: dst is all of the payload
	summed bool   // sum is the checksum of dst
	sum    uint32
	header header // of a read with a page: what the page says
	bad    error  // why the page says nothing

	next *request // behind it in a run of the pool

	err  error         // the outcome
	over chan struct{} // receives one value at the end

	byCaller bool // a place in the depth is all that the request wants of the engine
	slot     int  // that place; over receives a value when it is granted
}

func (r *request) size() int { return len(r.head) + len(r.buf) }

// engine carries requests out, in any order.
//
// An engine may have no goroutine of its own: then whoever waits for something that
// the end of a request brings about must offer itself for reaping meanwhile. See
// waitFor.
type engine interface {
	// submit has a request carried out meanwhile. It may wait for a place, and it may
	// hold a small request back for the next until somebody waits.
	submit(r *request)
	// release lets go what submit holds back.
	release()
	// perform is submit for a caller that would do nothing but wait: the caller's
	// thread carries the request out when its turn has come, which saves waking another
	// twice.
	perform(r *request)
	// busy reports whether requests are in flight.
	busy() bool
	// turn is where one takes the reaper's place, nil when the engine needs none.
	turn() chan struct{}
	// reap ends one request or more and reports true, or reports false when none is in
	// its hands. The caller holds the reaper's place.
	reap() bool
	// work receives a value after requests came into hands that were empty.
	work() <-chan struct{}
	close()
	name() string
}

// waitFor receives from c, which only the end of a request makes ready, and reaps
// until it is; or returns ctx's error.
func waitFor[T any](ctx context.Context, e engine, c <-chan T) (v T, err error) {
	select {
	case v = <-c:
		return v, nil
	default:
	}
	e.release()
	select {
	case v = <-c:
		return v, nil
	case <-ctx.Done():
		return v, context.Cause(ctx)
	case e.turn() <- struct{}{}:
		defer func() { <-e.turn() }()
		return reapFor(ctx, e, c)
	}
}

// reapFor is waitFor for the holder of the reaper's place. While the holder waits in
// reap, others may make c ready; it sees that when the next request ends.
func reapFor[T any](ctx context.Context, e engine, c <-chan T) (v T, err error) {
	for {
		select {
		case v = <-c:
			return v, nil
		case <-ctx.Done():
			return v, context.Cause(ctx)
		default:
		}
		if e.reap() {
			continue
		}
		select {
		case v = <-c:
			return v, nil
		case <-ctx.Done():
			return v, context.Cause(ctx)
		case <-e.work():
		}
	}
}

// wait returns a request's outcome after its end.
func (r *request) wait(e engine) error {
	_, _ = waitFor(context.Background(), e, r.over) // without a context, it cannot fail
	return r.err
}

// finish reports the outcome of n bytes moved. Fewer than asked is an error: a
// torn page must be seen where it happens.
func (r *request) finish(n int, err error) {
	if err == nil && n != r.size() {
		err = io.ErrUnexpectedEOF
		if r.write {
			err = io.ErrShortWrite
		}
	}
	if err != nil {
		err = fmt.Errorf("%s: %s of %d bytes at %d moved %d: %w", r.name, verb(r.write), r.size(), r.off, n, err)
	}
	r.err = err
	r.giveBack()
	r.over <- struct{}{}
}

// giveBack returns buffers as soon as they are not needed, so that many operations
// need few, and takes out of them what was read.
func (r *request) giveBack() {
	if r.page != nil {
		if !r.write {
			r.header, r.bad = decodeHeader(r.page)
		}
		r.store.pages.give(r.page)
		r.page = nil
	}
	if r.staged != nil {
		if !r.write {
			copy(r.dst, r.staged)
		}
		r.store.staging.give(r.staged)
		r.staged = nil
	}
	r.head, r.buf = nil, nil
}

func verb(write bool) string {
	if write {
		return "write"
	}
	return "read"
}
