package hiersync

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Comm is one rank's end of a world. See the package comment for its rules.
type Comm struct {
	opts     Options
	rank     int
	size     int
	topo     Topology
	view     *view
	tagOps   uint64 // operations after which tags repeat
	counters counters

	wake    chan struct{} // tells the dispatcher of work; one signal is enough
	failed  chan struct{} // closed by the first failure
	stopped chan struct{} // closed when the dispatcher has ended
	beats   *beats        // nil for a world of one

	mu      sync.Mutex
	seq     uint64 // of the last operation started
	queue   []*Handle
	failure *RankError
	closing bool

	engineErr error // of the transport's end; valid after stopped
}

// Rank is this rank's number, from 0.
func (c *Comm) Rank() int { return c.rank }

// Size is the number of ranks.
func (c *Comm) Size() int { return c.size }

// Topology says which ranks share a node. The slices must not be changed.
func (c *Comm) Topology() Topology { return c.topo }

// Deadline is the bound of every wait.
func (c *Comm) Deadline() time.Duration { return c.opts.Deadline }

// Err is the failure that ended the communicator, nil while it works.
func (c *Comm) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure != nil {
		return c.failure
	}
	return nil
}

// Failed is closed when the communicator fails, so that a long computation can
// be left before its next operation.
func (c *Comm) Failed() <-chan struct{} { return c.failed }

// StartAllreduce starts to replace buf on every rank by the reduction over all
// ranks. All ranks pass the same length and reduction. A rank with nothing to
// contribute passes zeros (see [StartAbsent]).
func StartAllreduce[T float32 | float64 | int64](c *Comm, h *Handle, r Reduction, buf []T) error {
	e := elemOf[T]()
	if !allowed(e, r) {
		return fmt.Errorf("hiersync: allreduce: %s is not defined for %T", r, buf)
	}
	return c.start(h, kindReduce, e, bytesOf(buf), func(op *operation) { op.red = r })
}

// StartAbsent takes part in a sum or an average without a contribution: buf is
// cleared first, and holds the result of the others afterwards.
func StartAbsent[T Float](c *Comm, h *Handle, r Reduction, buf []T) error {
	clear(buf)
	return StartAllreduce(c, h, r, buf)
}

// StartBroadcast starts to copy buf of rank root to all ranks. All ranks pass the
// same length and root.
func StartBroadcast[T Element](c *Comm, h *Handle, root int, buf []T) error {
	if root < 0 || root >= c.size {
		return fmt.Errorf("hiersync: broadcast: root %d of %d ranks", root, c.size)
	}
	return c.start(h, kindBroadcast, elemOf[T](), bytesOf(buf), func(op *operation) { op.root = root })
}

// StartAllgather starts to fill buf with the parts of all ranks, in rank order.
// counts holds the number of elements of each rank, the same on all ranks; the
// counts may be uneven and zero and must add up to len(buf). This rank's part
// must stand at its place in buf.
func StartAllgather[T Element](c *Comm, h *Handle, buf []T, counts []int) error {
	total := 0
	for _, n := range counts {
		if n < 0 {
			return fmt.Errorf("hiersync: allgather: a part of %d elements", n)
		}
		total += n
	}
	if len(counts) != c.size || total != len(buf) {
		return fmt.Errorf("hiersync: allgather: %d counts that add up to %d for %d ranks and %d elements", len(counts), total, c.size, len(buf))
	}
	return c.start(h, kindAllgather, elemOf[T](), bytesOf(buf), func(op *operation) {
		op.counts = append(op.counts[:0], counts...)
	})
}

// Allreduce is StartAllreduce and Wait.
func Allreduce[T float32 | float64 | int64](ctx context.Context, c *Comm, r Reduction, buf []T) error {
	var h Handle
	if err := StartAllreduce(c, &h, r, buf); err != nil {
		return err
	}
	return h.Wait(ctx)
}

// Broadcast is StartBroadcast and Wait. When it returns on the root, the buffer
// may be overwritten: all ranks get the bytes as they were.
func Broadcast[T Element](ctx context.Context, c *Comm, root int, buf []T) error {
	var h Handle
	if err := StartBroadcast(c, &h, root, buf); err != nil {
		return err
	}
	return h.Wait(ctx)
}

// Allgather is StartAllgather and Wait.
func Allgather[T Element](ctx context.Context, c *Comm, buf []T, counts []int) error {
	var h Handle
	if err := StartAllgather(c, &h, buf, counts); err != nil {
		return err
	}
	return h.Wait(ctx)
}

// Agree replaces each of the values by its reduction over all ranks, so that all
// ranks decide alike: Max, Min, And, Or or Sum.
func (c *Comm) Agree(ctx context.Context, r Reduction, values ...*int64) error {
	buf := make([]int64, len(values))
	for i, v := range values {
		buf[i] = *v
	}
	if err := Allreduce(ctx, c, r, buf); err != nil {
		return err
	}
	for i, v := range values {
		*v = buf[i]
	}
	return nil
}

// Barrier returns when all ranks have called it.
func (c *Comm) Barrier(ctx context.Context) error {
	var one int64
	return c.Agree(ctx, Max, &one)
}

// start queues an operation for the dispatcher.
func (c *Comm) start(h *Handle, k kind, e elem, buf []byte, set func(*operation)) error {
	if err := h.begin(c, k, e, buf); err != nil {
		return err
	}
	set(&h.op)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.failure != nil:
		h.abort(c.failure)
		return c.failure
	case c.closing:
		h.abort(ErrClosed)
		return ErrClosed
	}
	c.seq++
	h.op.seq = c.seq
	h.op.deadline = time.Now().Add(c.opts.Deadline)
	c.queue = append(c.queue, h)
	c.beats.enter(c.seq)
	c.signal()
	return nil
}

// signal wakes the dispatcher.
func (c *Comm) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// fail records the first failure, tells the other ranks and the dispatcher.
func (c *Comm) fail(e *RankError) {
	c.mu.Lock()
	first, beats := c.failure == nil, c.beats
	if first {
		c.failure = e
		close(c.failed)
	}
	c.mu.Unlock()
	if first {
		c.opts.Logger.Error("hiersync: the world ends", "rank", c.rank, "err", e)
		beats.tell(e)
		c.signal()
	}
}

// Abort ends the world because of an error of this rank outside of hiersync, so that
// the others need not wait for the deadline to notice. Close must still be called.
func (c *Comm) Abort(err error) {
	c.fail(&RankError{Rank: c.rank, Cause: fmt.Errorf("%w: %w", ErrAborted, err)})
}

// Busy tells the other ranks that this one will let them wait for something that may
// take longer than the deadline, such as a disk, or that it is back. While it is
// busy they extend the deadline of operations that it has not entered, as long as
// its heart beats. It may be said at any time and takes effect within a beat.
func (c *Comm) Busy(yes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.beats != nil {
		c.beats.busy.Store(yes)
	}
}

// Close leaves the world. Operations under way are finished first, within the
// deadline; none may be started afterwards. All ranks must call it: the engine
// ends together. After a failure it only releases what this rank holds, and
// returns nil.
func (c *Comm) Close() error {
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		return nil
	}
	c.closing = true
	c.mu.Unlock()
	c.signal()
	ctx, cancel := context.WithTimeout(context.Background(), 2*c.opts.Deadline)
	defer cancel()
	select {
	case <-c.stopped:
	case <-ctx.Done():
		c.beats.close()
		return errors.New("hiersync: close: the engine does not end; the process should")
	}
	return c.engineErr
}
