package nvmepage

import (
	"fmt"
	"io"
	"sync"
)

// request is one read or write. Its memory must stay alive and alone until done
// was called.
type request struct {
	file  File
	buf   []byte
	off   int64
	write bool
	done  func(error)
}

// engine carries requests out, in any order. submit may wait for a place.
type engine interface {
	submit(r *request)
	close()
	name() string
}

// finish reports the outcome of n bytes moved. Fewer than asked is an error: a
// torn page must be seen where it happens.
func (r *request) finish(n int, err error) {
	if err == nil && n != len(r.buf) {
		err = io.ErrUnexpectedEOF
		if r.write {
			err = io.ErrShortWrite
		}
	}
	if err != nil {
		err = fmt.Errorf("%s of %d bytes at %d moved %d: %w", verb(r.write), len(r.buf), r.off, n, err)
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

// transfer moves a request's bytes; a read that ends at the end of the file with
// all bytes there is complete.
func transfer(r *request) (int, error) {
	if r.write {
		return r.file.WriteAt(r.buf, r.off)
	}
	n, err := r.file.ReadAt(r.buf, r.off)
	if err == io.EOF && n == len(r.buf) {
		err = nil
	}
	return n, err
}

func (e *poolEngine) submit(r *request) { e.queue <- r }

func (e *poolEngine) close() {
	close(e.queue)
	e.workers.Wait()
}

func (e *poolEngine) name() string { return Pool.String() }
