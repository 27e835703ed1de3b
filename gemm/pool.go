package gemm

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// The hand-off costs a cache miss each way, not a wake-up: a worker that has
// nothing to do watches ticket for spinRounds loads (some tens of microseconds)
// before it parks on its channel.
const (
	spinRounds  = 40000
	yieldEvery  = 4096
	pollWaiting = 20000
)

// pool hands the chunks of one task at a time to its workers and the caller.
//
// ticket holds epoch<<32 | chunks not yet claimed. A chunk is claimed by lowering
// ticket by one, which fails when the epoch has moved on, so that a worker that
// wakes late cannot touch a later task. task and chunks may be read after a
// claim: the run cannot end before the claimed chunk is done.
type pool struct {
	ticket  atomic.Uint64
	_       [56]byte
	pending atomic.Int64 // chunks not yet done
	_       [56]byte
	busy    atomic.Bool
	closing atomic.Bool
	waiting atomic.Bool // the caller is parked on finished
	task    Task
	chunks  int
	spin    int

	finished chan struct{}
	workers  []*poolWorker
	wg       sync.WaitGroup
}

// poolWorker is one worker's parking place.
type poolWorker struct {
	parked atomic.Bool
	_      [63]byte
	wake   chan struct{}
	id     int
}

// newPool starts n workers. Where fewer processors than threads are available
// they park at once: spinning would take the processor from the caller.
func newPool(n int) *pool {
	p := &pool{finished: make(chan struct{}, 1)}
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
	p.ticket.Store((p.ticket.Load()>>32 + 1) << 32)
	p.wakeUp(len(p.workers))
	p.wg.Wait()
}

// run works on t with the workers, or reports false when they are taken. A task
// that panics here leaves the pool taken for good: later runs go without workers.
func (p *pool) run(chunks int, t Task) bool {
	if !p.busy.CompareAndSwap(false, true) {
		return false
	}
	p.task, p.chunks = t, chunks
	p.pending.Store(int64(chunks))
	epoch := p.ticket.Load()>>32 + 1
	p.ticket.Store(epoch<<32 | uint64(chunks))
	p.wakeUp(chunks - 1)
	p.work(epoch, 0)
	p.await()
	p.task = nil
	p.busy.Store(false)
	return true
}

// wakeUp wakes up to n parked workers.
func (p *pool) wakeUp(n int) {
	for _, w := range p.workers[:min(n, len(p.workers))] {
		if w.parked.Load() && w.parked.CompareAndSwap(true, false) {
			w.wake <- struct{}{}
		}
	}
}

// work claims chunks of one epoch until none is left.
func (p *pool) work(epoch uint64, worker int) {
	for {
		t := p.ticket.Load()
		left := t & (1<<32 - 1)
		if t>>32 != epoch&(1<<32-1) || left == 0 {
			return
		}
		if !p.ticket.CompareAndSwap(t, t-1) {
			continue
		}
		p.task.Do(p.chunks-int(left), worker)
		if p.pending.Add(-1) == 0 && p.waiting.CompareAndSwap(true, false) {
			p.finished <- struct{}{}
		}
	}
}

// await returns when every chunk is done: it polls, then parks. A worker that
// was slow to leave an earlier run may wake it too soon, so it looks again.
func (p *pool) await() {
	for i := 1; i < pollWaiting; i++ {
		if p.pending.Load() == 0 {
			return
		}
		if i%yieldEvery == 0 {
			runtime.Gosched()
		}
	}
	for p.pending.Load() != 0 {
		p.waiting.Store(true)
		if p.pending.Load() != 0 || !p.waiting.CompareAndSwap(true, false) {
			<-p.finished
		}
	}
}

// serve is the life of one worker.
func (p *pool) serve(w *poolWorker) {
	defer p.wg.Done()
	var epoch uint64
	for {
		epoch = p.next(w, epoch)
		if p.closing.Load() {
			return
		}
		p.work(epoch, w.id)
	}
}

// next waits for an epoch other than the last one: it polls, then parks.
func (p *pool) next(w *poolWorker, last uint64) uint64 {
	for i := 1; ; i++ {
		if e := p.ticket.Load() >> 32; e != last {
			return e
		}
		if i%yieldEvery == 0 {
			runtime.Gosched()
		}
		if i < p.spin {
			continue
		}
		w.parked.Store(true)
		if p.ticket.Load()>>32 == last || !w.parked.CompareAndSwap(true, false) {
			<-w.wake
		}
		i = 0
	}
}
