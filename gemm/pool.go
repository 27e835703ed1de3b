package gemm

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// The hand-off costs a cache miss each way, not a wake-up: a worker that has
// nothing to do watches ticket for spinRounds loads (some tens of microseconds)
// before it parks on its channel. It does not yield meanwhile: the caller yields, and
// two goroutines that yield at once may leave with each other's thread, away from the
// data in its caches.
const (
	spinRounds  = 80_000
	spinLate    = 16 // times as long for a worker that woke too late, lest it does so each time
	spinBusy    = 16 // times more while others are at work on the run: the next one may follow at once
	yieldEvery  = 4096
	pollWaiting = 800_000
)

// patience is how long a worker may take to wake before the caller makes room for it.
const patience = 100 * time.Microsecond

// A ticket holds epoch<<epochShift | back<<backShift | front: the chunks in
// [front, back) are not yet claimed.
const (
	backShift  = 20
	epochShift = 40
	mostChunks = 1<<backShift - 1 // that a ticket can hold
	frontOne   = 1
	backOne    = 1 << backShift
)

// pool hands the chunks of one task at a time to its workers and the caller.
//
// A chunk is claimed by moving an end of the ticket, which fails when the epoch has
// moved on, so that a worker that wakes late cannot touch a later task. task, chunks
// and each may be read after a claim: the run cannot end before the claimed chunk is
// done. The caller and the even workers claim from the front, the odd workers from the
// back: with two threads, passes over the same data find it where they left it.
//
// ticket and done share a cache line on purpose: it changes hands twice a run, when
// the caller opens it and when it sees the last worker's chunk done.
type pool struct {
	ticket atomic.Uint64
	done   atomic.Int64 // tickets that workers finished, in all runs
	_      [48]byte

	busy    atomic.Bool
	closing atomic.Bool
	waiting atomic.Bool // the caller is parked on finished
	task    Task
	chunks  int
	woken   time.Time // when the caller woke workers that it looks out for, or zero
	each    int       // chunks a ticket
	before  int64     // done when the run has ended
	spin    int

	finished chan struct{}
	workers  []*poolWorker
	wg       sync.WaitGroup
}

// poolWorker is one worker's parking place.
type poolWorker struct {
	parked atomic.Bool
	absent atomic.Bool // woken, and not here yet
	_      [62]byte
	wake   chan struct{}
	id     int
}

// newPool starts n workers. Where fewer processors than threads are available
// they park at once: spinning would take the processor from the caller.
func newPool(n int) *pool {
	p := &pool{finished: make(chan struct{}, 1)}
	prepareStepAside()
	if runtime.GOMAXPROCS(0) > n {
		p.spin = spinRounds
	}
	for i := range n {
		w := &poolWorker{wake: make(chan struct{}, 1), id: i + 1}
		p.workers = append(p.workers, w)
		p.wg.Add(1)
		go p.serve(w)
	}
	return p
}

// close stops the workers and waits for them.
func (p *pool) close() {
	p.closing.Store(true)
	p.ticket.Store((p.ticket.Load()>>epochShift + 1) << epochShift)
	p.wakeUp(len(p.workers))
	p.wg.Wait()
}

// run works on t with the workers, or reports false when they are taken. The caller
// has the first chunk without a claim. A task that panics here leaves the pool taken
// for good: later runs go without workers.
func (p *pool) run(chunks int, t Task) bool {
	if !p.busy.CompareAndSwap(false, true) {
		return false
	}
	p.task, p.chunks, p.each = t, chunks, ceil(chunks, mostChunks)
	tickets := ceil(chunks, p.each)
	epoch := p.ticket.Load()>>epochShift + 1
	p.ticket.Store(epoch<<epochShift | uint64(tickets)<<backShift | 1)
	if p.wakeUp(tickets - 1) {
		p.woken = time.Now()
	}
	p.do(0, 0)
	p.lookOut()
	mine := 1
	for {
		i, ok := p.claim(epoch, 0)
		if !ok {
			break
		}
		p.do(i, 0)
		p.lookOut()
		mine++
	}
	p.before += int64(tickets - mine)
	p.await()
	p.task = nil
	p.busy.Store(false)
	return true
}

// do works on the chunks of one ticket.
func (p *pool) do(ticket, worker int) {
	for c := ticket * p.each; c < min((ticket+1)*p.each, p.chunks); c++ {
		p.task.Do(c, worker)
	}
}

// claim takes a ticket of an epoch, or reports false when none is left.
func (p *pool) claim(epoch uint64, worker int) (ticket int, ok bool) {
	for {
		t := p.ticket.Load()
		front, back := int(t%backOne), int(t>>backShift%backOne)
		if t>>epochShift != epoch%(1<<(64-epochShift)) || front >= back {
			return 0, false
		}
		if worker%2 == 0 {
			if p.ticket.CompareAndSwap(t, t+frontOne) {
				return front, true
			}
		} else if p.ticket.CompareAndSwap(t, t-backOne) {
			return back - 1, true
		}
	}
}

// wakeUp wakes up to n parked workers and reports whether there were any.
func (p *pool) wakeUp(n int) (any bool) {
	for _, w := range p.workers[:min(n, len(p.workers))] {
		if w.parked.Load() && w.parked.CompareAndSwap(true, false) {
			w.absent.Store(true)
			w.wake <- struct{}{}
			any = true
		}
	}
	return any
}

// lookOut makes the caller change its processor when a worker that it woke does not
// come. A system may queue a thread that wakes behind the one that woke it, for the
// milliseconds of a time slice, though other processors are idle.
func (p *pool) lookOut() {
	if p.woken.IsZero() {
		return
	}
	if p.anyAbsent() {
		if time.Since(p.woken) < patience {
			return
		}
		stepAside()
		for i := 0; i < spinRounds && p.anyAbsent(); i++ {
			// Without this wait the caller would take the next chunk, and the worker
			// would find none.
		}
	}
	p.woken = time.Time{}
}

// anyAbsent reports whether a worker was woken that has not come yet.
func (p *pool) anyAbsent() bool {
	for _, w := range p.workers {
		if w.absent.Load() {
			return true
		}
	}
	return false
}

// work claims and does tickets of one epoch until none is left, and reports whether
// there was one.
func (p *pool) work(epoch uint64, worker int) (some bool) {
	for {
		i, ok := p.claim(epoch, worker)
		if !ok {
			return some
		}
		some = true
		p.do(i, worker)
		p.done.Add(1)
		if p.waiting.Load() && p.waiting.CompareAndSwap(true, false) {
			p.finished <- struct{}{}
		}
	}
}

// await returns when the workers have done their tickets: it polls, for longer than they
// usually differ, then parks. Every ticket that is done wakes it, so it looks again.
func (p *pool) await() {
	for i := 1; i < pollWaiting; i++ {
		if p.done.Load() == p.before {
			return
		}
		if i%yieldEvery == 0 {
			runtime.Gosched()
		}
	}
	for p.done.Load() != p.before {
		p.waiting.Store(true)
		if p.done.Load() != p.before || !p.waiting.CompareAndSwap(true, false) {
			<-p.finished
		}
	}
}

// serve is the life of one worker.
func (p *pool) serve(w *poolWorker) {
	defer p.wg.Done()
	var epoch uint64
	spin := p.spin
	for {
		epoch = p.next(w, epoch, spin)
		if p.closing.Load() {
			return
		}
		spin = p.spin
		if !p.work(epoch, w.id) {
			spin *= spinLate
		}
	}
}

// next waits for an epoch other than the last one: it polls, spin times after the end of a
// run, then parks. To be woken takes longer than chunks differ.
func (p *pool) next(w *poolWorker, last uint64, spin int) uint64 {
	for i, busy := 1, 0; ; i++ {
		if e := p.ticket.Load() >> epochShift; e != last {
			return e
		}
		if i < spin {
			continue
		}
		if busy++; busy <= spinBusy && spin > 0 && p.busy.Load() {
			i = 0
			continue
		}
		w.parked.Store(true)
		if p.ticket.Load()>>epochShift == last || !w.parked.CompareAndSwap(true, false) {
			<-w.wake
			w.absent.Store(false)
		}
		i, busy = 0, 0
	}
}
