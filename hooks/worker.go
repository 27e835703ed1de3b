package hooks

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"
)

// poolWorker is one goroutine. Its fields but own and ctx are under Pool.mu.
type poolWorker[W any] struct {
	own     W
	ctx     context.Context
	cancel  context.CancelCauseFunc
	job     Job[W] // running, nil otherwise
	started time.Time
	paused  time.Duration // until then
	timer   *time.Timer   // the watchdog; nil without a timeout
	gone    bool          // abandoned: it touches the pool no more
}

// start adds a worker.
func (p *Pool[W]) start() error {
	x := &poolWorker[W]{}
	if p.opts.Open != nil {
		own, err := p.opts.Open()
		if err != nil {
			return fmt.Errorf("hooks: start a worker: %w", err)
		}
		x.own = own
	}
	x.ctx, x.cancel = context.WithCancelCause(context.Background())
	if d := p.opts.Timeout; d > 0 {
		x.timer = time.AfterFunc(d, func() { p.bark(x) })
		x.timer.Stop()
	}
	p.mu.Lock()
	closed := p.closed
	if !closed { // else Close may be past waiting for workers
		p.workers[x] = struct{}{}
		p.stats.Workers++
		p.live.Add(1)
		go p.run(x)
	}
	p.mu.Unlock()
	if closed && p.opts.Close != nil {
		p.opts.Close(x.own)
	}
	return nil
}

// run is a worker's goroutine. The thread stays locked, so that it ends with the
// goroutine and its lowered priority reaches nobody else.
func (p *Pool[W]) run(x *poolWorker[W]) {
	runtime.LockOSThread()
	lower(p.opts.Nice)
	defer func() { p.leave(x, recover()) }()
	for {
		job := p.take(x)
		if job == nil {
			return
		}
		if err := protect(x, job); !p.finish(x, job, err) {
			return
		}
	}
}

// protect turns a panic of the job into its error.
func protect[W any](x *poolWorker[W], job Job[W]) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return job.Run(x.ctx, x.own)
}

// take waits for a job; nil ends the worker.
func (p *Pool[W]) take(x *poolWorker[W]) Job[W] {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.queue.len() == 0 && !p.closed {
		p.work.Wait()
	}
	if p.closed {
		return nil
	}
	x.job, x.started, x.paused = p.queue.pop(), time.Now(), p.paused(x)
	p.active++
	p.stats.Busy++
	if x.timer != nil {
		x.timer.Reset(p.opts.Timeout)
	}
	return x.job
}

// elapsed is how long the job on x has run, its pauses not counted; under mu.
func (p *Pool[W]) elapsed(x *poolWorker[W]) time.Duration {
	return time.Since(x.started) - (p.paused(x) - x.paused)
}

func (p *Pool[W]) paused(x *poolWorker[W]) time.Duration {
	if p.opts.Paused == nil {
		return 0
	}
	return p.opts.Paused(x.own)
}

// finish ends a job that returned; false tells the worker that the job was
// abandoned before, and the worker with it.
func (p *Pool[W]) finish(x *poolWorker[W], job Job[W], err error) bool {
	p.mu.Lock()
	if x.gone {
		p.mu.Unlock()
		return false
	}
	if x.timer != nil {
		x.timer.Stop()
	}
	x.job = nil
	p.stats.Busy--
	p.stats.Time += p.elapsed(x)
	if err == nil {
		p.stats.Done++
	} else {
		p.stats.Failed++
	}
	p.mu.Unlock()
	job.Done(err)
	p.release(1)
	return true
}

// release takes note that Done of n jobs has returned.
func (p *Pool[W]) release(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active -= n
	p.tellWaiters()
}

func (p *Pool[W]) tellWaiters() {
	if p.active > 0 || p.queue.len() > 0 {
		return
	}
	for _, w := range p.waiters {
		close(w)
	}
	p.waiters = nil
}

// leave ends a worker: the pool is closed, or the worker was abandoned, or its
// job ended the goroutine, which counts as a failure of the job.
func (p *Pool[W]) leave(x *poolWorker[W], panicked any) {
	if panicked != nil {
		panic(panicked) // of Done or the pool itself: not to be hidden
	}
	p.mu.Lock()
	job, gone := x.job, x.gone
	p.mu.Unlock()
	if job != nil && !gone && p.finish(x, job, &PanicError{Value: "the job ended its goroutine"}) {
		p.replace(x)
		gone = true
	}
	x.cancel(ErrClosed)
	if p.opts.Close != nil {
		p.opts.Close(x.own)
	}
	if !gone {
		p.mu.Lock()
		p.forget(x)
		p.mu.Unlock()
	}
}

// forget drops a worker from the books; under mu.
func (p *Pool[W]) forget(x *poolWorker[W]) {
	x.gone = true
	delete(p.workers, x)
	p.stats.Workers--
	p.live.Done()
}

// replace drops a worker and starts another in its place. With none left, the
// jobs that wait learn why.
func (p *Pool[W]) replace(x *poolWorker[W]) {
	p.mu.Lock()
	p.forget(x)
	closed := p.closed
	p.mu.Unlock()
	if closed {
		return
	}
	if err := p.start(); err != nil {
		p.mu.Lock()
		if p.stats.Workers == 0 {
			p.broken = err
		}
		p.mu.Unlock()
		p.flush(nil)
	}
}

// bark is the watchdog of x: the job may have run for the whole of the timeout.
func (p *Pool[W]) bark(x *poolWorker[W]) {
	p.mu.Lock()
	job := x.job
	// A timer that fired while the job before ended finds a younger one, and one
	// that was paused has time left.
	young := p.opts.Timeout - p.elapsed(x)
	if job != nil && !x.gone && young > 0 {
		x.timer.Reset(young)
		job = nil
	}
	p.mu.Unlock()
	if job != nil {
		p.abandon(x, job, fmt.Errorf("%w after %v", ErrAbandoned, p.opts.Timeout))
	}
}

// abandon gives up job on x and replaces the worker, unless the job ended.
func (p *Pool[W]) abandon(x *poolWorker[W], job Job[W], cause error) bool {
	p.mu.Lock()
	if x.gone || x.job != job {
		p.mu.Unlock()
		return false
	}
	x.gone = true
	if x.timer != nil {
		x.timer.Stop()
	}
	p.stats.Busy--
	p.stats.Abandoned++
	p.mu.Unlock()
	x.cancel(cause)
	job.Done(cause)
	p.replace(x)
	p.release(1)
	return true
}
