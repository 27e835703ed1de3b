package hiersync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// Handle is an operation under way. The zero value is ready for a start; after
// Wait it is ready for the next, and keeps the memory it needed. It must not be
// copied.
type Handle struct {
	c        *Comm
	op       operation
	finished chan struct{} // one signal per operation
	running  atomic.Bool
	over     atomic.Bool
	err      error // valid once over
}

// operation is what the dispatcher works on. It belongs to the dispatcher from
// start to finish.
type operation struct {
	kind     kind
	elem     elem
	red      Reduction
	seq      uint64
	root     int   // of a broadcast
	counts   []int // of an allgather, elements per rank
	buf      []byte
	deadline time.Time
	folds    []fold   // lanes of a sum
	spreads  []spread // lanes of a broadcast or an allgather
}

// Done reports whether the operation has ended, well or not. Wait must still be
// called.
func (h *Handle) Done() bool { return h.over.Load() }

// Wait waits for the end of the operation and returns its error. A context that
// ends first ends the communicator of all ranks ([ErrCanceled]): the others
// cannot finish without this one. Waiting for a handle that was not started
// returns nil.
func (h *Handle) Wait(ctx context.Context) error {
	if !h.running.Load() {
		return nil
	}
	select {
	case <-h.finished:
	case <-ctx.Done():
		h.c.fail(&RankError{
			Rank: h.c.rank, Op: h.op.kind.String(), Seq: h.op.seq,
			Cause: fmt.Errorf("%w: %w", ErrCanceled, context.Cause(ctx)),
		})
		<-h.finished
	}
	err := h.err
	h.running.Store(false)
	return err
}

// errBusy is returned when a handle is started again before Wait.
var errBusy = errors.New("hiersync: the handle's operation was not waited for")

// begin takes the handle for an operation.
func (h *Handle) begin(c *Comm, k kind, e elem, buf []byte) error {
	if h.running.Swap(true) {
		return errBusy
	}
	if h.finished == nil {
		h.finished = make(chan struct{}, 1)
	}
	h.c, h.err = c, nil
	h.over.Store(false)
	h.op.kind, h.op.elem, h.op.red, h.op.buf = k, e, Sum, buf
	h.op.folds, h.op.spreads = h.op.folds[:0], h.op.spreads[:0]
	return nil
}

// finish is the operation's end. The buffer is the caller's again.
func (h *Handle) finish(err error) {
	h.err, h.op.buf = err, nil
	h.over.Store(true)
	h.finished <- struct{}{}
}

// abort ends a handle that never reached the dispatcher.
func (h *Handle) abort(err error) {
	h.op.buf = nil
	h.running.Store(false)
	h.err = err
}

// grow lengthens s by one and returns the new element, keeping the memory that
// an earlier use left in it.
func grow[T any](s *[]T) *T {
	n := len(*s)
	*s = slices.Grow(*s, 1)[:n+1]
	return &(*s)[n]
}
