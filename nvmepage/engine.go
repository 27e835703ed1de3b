package nvmepage

import (
	"context"
	"fmt"
	"io"
	"sync"
)

// request is one read or write of two pieces of memory, either of which may be
// empty, that lie one behind the other in the file. The memory must stay alive and
// alone until done was called.
type request struct {
	file      File
	head, buf []byte
	off       int64
	write     bool
	done      func(error)
}

func (r *request) size() int { return len(r.head) + len(r.buf) }

// engine carries requests out, in any order. submit may wait for a place.
//
// An engine may have no goroutine of its own: then whoever waits for something that
// the end of a request brings about must offer itself for reaping meanwhile. See
// waitFor.
type engine interface {
	submit(r *request)
	// turn is where one takes the reaper's place, nil when the engine needs none.
	turn() chan struct{}
	// reap ends one request or more. The caller holds the reaper's place and knows
	// that what it waits for has not come.
	reap()
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

// reapFor is waitFor for the holder of the reaper's place. Only the holder ends
// requests, so nothing comes between the look and the reaping.
func reapFor[T any](ctx context.Context, e engine, c <-chan T) (v T, err error) {
	for {
		select {
		case v = <-c:
			return v, nil
		case <-ctx.Done():
			return v, context.Cause(ctx)
		default:
			e.reap()
		}
	}
}

// vectored is a file that moves both pieces of a request in one call.
type vectored interface {
	moveBoth(r *request) (int, error)
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
		err = fmt.Errorf("%s of %d bytes at %d moved %d: %w", verb(r.write), r.size(), r.off, n, err)
	}
	r.done(err)
}

func verb(write bool) string {
	if write {
		return "write"
	}
	return "read"
}

// poolEngine serves requests with goroutines.
type poolEngine struct {
	queue   chan *request
	workers sync.WaitGroup
}

func newPoolEngine(depth int) *poolEngine {
	e := &poolEngine{queue: make(chan *request, depth)}
	for range depth {
		e.workers.Go(e.serve)
	}
	return e
}

func (e *poolEngine) serve() {
	for r := range e.queue {
		r.finish(transfer(r))
	}
}

// transfer moves a request's bytes.
func transfer(r *request) (int, error) {
	if f, ok := r.file.(vectored); ok && len(r.head) > 0 && len(r.buf) > 0 {
		return f.moveBoth(r)
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

func (e *poolEngine) submit(r *request) { e.queue <- r }

func (e *poolEngine) turn() chan struct{} { return nil }

func (e *poolEngine) reap() {}

func (e *poolEngine) close() {
	close(e.queue)
	e.workers.Wait()
}

func (e *poolEngine) name() string { return Pool.String() }
