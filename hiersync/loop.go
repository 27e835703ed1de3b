package hiersync

import (
	"errors"
	"time"
)

// maxActive is how many operations are worked on at once; later ones queue. All
// ranks start in the same order, so the first unfinished one is active on all.
const maxActive = 64

// dispatcher is the one goroutine that talks to the transport.
type dispatcher struct {
	c      *Comm
	tr     transport
	active []exec
	queued []*Handle
	limit  int       // of active: tags of two active operations must differ
	broken time.Time // when the transport failed; zero while it has not
	cause  error
	looked time.Time // when deadlines were looked at last; zero before there were any
}

// run works until Close, or until the communicator has failed and is closed.
func (d *dispatcher) run() {
	for {
		open, failure := d.fetch()
		if failure != nil {
			d.abandon(failure)
			break
		}
		if !open && len(d.active)+len(d.queued) == 0 {
			break
		}
		moved := d.work()
		if !moved && d.c.Err() == nil {
			d.rest()
		}
	}
	d.awaitClose()
	failure := d.c.Err()
	d.c.beats.close()
	d.c.engineErr = d.tr.close(failure == nil)
	close(d.c.stopped)
}

// fetch takes over what was started and makes it active in order.
func (d *dispatcher) fetch() (open bool, failure *RankError) {
	c := d.c
	c.mu.Lock()
	d.queued = append(d.queued, c.queue...)
	clear(c.queue)
	c.queue = c.queue[:0]
	open, failure = !c.closing, c.failure
	c.mu.Unlock()
	n := 0
	for n < len(d.queued) && len(d.active) < d.limit {
		x := exec{c: c, tr: d.tr, h: d.queued[n]}
		x.plan()
		d.active = append(d.active, x)
		n++
	}
	d.queued = append(d.queued[:0], d.queued[n:]...)
	return open, failure
}

// work lets every active operation go on.
func (d *dispatcher) work() (moved bool) {
	if !d.broken.IsZero() {
		d.blameBroken()
		return false
	}
	moved, err := d.tr.progress()
	if err != nil {
		d.fault(err)
		return moved
	}
	kept := d.active[:0]
	for i := range d.active {
		x := d.active[i]
		m, finished, err := x.step()
		if err != nil {
			d.fault(err)
		}
		moved = moved || m || finished
		if finished && err == nil {
			d.c.counters.operations.Add(1)
			x.h.finish(nil)
			continue
		}
		kept = append(kept, x)
	}
	clear(d.active[len(kept):])
	d.active = kept
	d.checkDeadline()
	return moved
}

// fault ends the communicator with a rank's error. An error of the transport is
// held back for a while: the heartbeats know better who is to blame.
func (d *dispatcher) fault(err error) {
	var e *RankError
	if errors.As(err, &e) && !errors.Is(err, ErrEngine) {
		d.c.fail(e)
		return
	}
	if d.broken.IsZero() {
		d.broken, d.cause = time.Now(), err
	}
}

// blameBroken reports the transport's failure when the heartbeats had the time to
// name a rank and did not.
func (d *dispatcher) blameBroken() {
	if time.Since(d.broken) < 2*d.c.opts.Beat {
		return
	}
	var e *RankError
	if !errors.As(d.cause, &e) {
		e = &RankError{Rank: -1, Cause: errors.Join(ErrEngine, d.cause)}
	}
	d.c.fail(e)
}

// checkDeadline ends the communicator when the oldest operation is overdue.
func (d *dispatcher) checkDeadline() {
	if len(d.active) == 0 {
		d.looked = time.Time{}
		return
	}
	now := time.Now()
	d.excuse(now)
	x := &d.active[0]
	if now.Before(x.h.op.deadline) {
		return
	}
	rank, cause := d.c.beats.blame(x.h.op.seq, x.waitsFor())
	if cause == ErrLate && d.c.beats.patient(rank) {
		for i := range d.active {
			d.active[i].h.op.deadline = time.Now().Add(d.c.opts.Deadline)
		}
		return
	}
	d.c.fail(&RankError{Rank: rank, Op: x.h.op.kind.String(), Seq: x.h.op.seq, Cause: cause})
}

// heldUp is how many beats may pass between two looks at the deadlines before this
// process counts as held up itself. It looks once a beat or more often.
const heldUp = 3

// excuse moves the deadlines by the time for which this process did not run: a job
// that is suspended, and a machine that sleeps, stop all ranks, and nobody is late.
func (d *dispatcher) excuse(now time.Time) {
	pause := now.Sub(d.looked)
	if !d.looked.IsZero() && pause > heldUp*d.c.opts.Beat {
		for _, x := range d.active {
			x.h.op.deadline = x.h.op.deadline.Add(pause)
		}
		for _, h := range d.queued {
			h.op.deadline = h.op.deadline.Add(pause)
		}
	}
	d.looked = now
}

// rest waits for something to happen, one beat at most while there are deadlines.
func (d *dispatcher) rest() {
	var until time.Time
	if len(d.active) > 0 {
		until = d.active[0].h.op.deadline
		if look := d.looked.Add(d.c.opts.Beat); look.Before(until) {
			until = look
		}
	}
	if !d.broken.IsZero() {
		until = d.broken.Add(2 * d.c.opts.Beat)
	}
	d.tr.wait(d.c.wake, until, len(d.active) > 0 && d.broken.IsZero())
}

// abandon ends every operation with the failure. The transport forgets buffers
// first: the callers own them as soon as Wait returns.
func (d *dispatcher) abandon(failure *RankError) {
	d.tr.drop()
	for _, x := range d.active {
		x.h.finish(failure)
	}
	for _, h := range d.queued {
		h.finish(failure)
	}
	d.active, d.queued = nil, nil
}

// awaitClose idles after a failure: operations are refused at their start.
func (d *dispatcher) awaitClose() {
	for {
		d.c.mu.Lock()
		closing := d.c.closing
		d.c.mu.Unlock()
		if closing {
			return
		}
		<-d.c.wake
	}
}
