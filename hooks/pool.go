package hooks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Errors that a job is told by the pool rather than by itself.
var (
	// ErrAbandoned says that a job did not return in time; its goroutine is left
	// to itself and what it writes must never be used.
	ErrAbandoned = errors.New("hooks: job abandoned")
	// ErrClosed says that the pool was closed before the job began.
	ErrClosed = errors.New("hooks: pool closed")
)

// Job is work for a [Pool]. W is what a worker owns, such as a solver with its
// scratch memory.
type Job[W any] interface {
	// Run does the work on a worker's goroutine. ctx ends when nobody waits for
	// the job any more. A panic counts as an error.
	Run(ctx context.Context, w W) error
	// Done is called exactly once for every job handed to Submit: with what Run
	// returned, a [*PanicError], or an error that wraps [ErrAbandoned] or
	// [ErrClosed]. After ErrAbandoned Run may still be going on. Done must not
	// wait for the pool.
	Done(err error)
}

// PanicError is the error of a job that panicked.
type PanicError struct {
	Value any
	Stack []byte
}

// Error gives the value of the panic; the stack is in the field.
func (e *PanicError) Error() string { return fmt.Sprintf("hooks: job panicked: %v", e.Value) }

// PoolOptions configure a [Pool].
type PoolOptions[W any] struct {
	// Workers is the core budget: so many jobs run at once. 0 means 1.
	Workers int
	// Nice is added to the nice value of the workers' threads, 0 (unchanged) to
	// 19, where a thread has its own priority (Linux); elsewhere it is ignored.
	Nice int
	// Timeout abandons a job that runs longer; 0 means never.
	Timeout time.Duration
	// Paused tells how long a worker has slept so far, when jobs are held back as
	// by a [Pace]: that is no part of a job's time. nil means never. It is called
	// from any goroutine.
	Paused func(W) time.Duration
	// Queue is how many waiting jobs are held without allocating. More are held
	// too: the queue has no limit, since each waiting job is one block's memory,
	// which its owner has planned.
	Queue int
	// Open makes what a worker owns; nil leaves W zero. It is called for each
	// worker, and again for each that replaces an abandoned one.
	Open func() (W, error)
	// Close ends what Open made, on the worker's goroutine; nil does nothing.
	Close func(W)
}

// Validate reports every fault of o at once.
func (o PoolOptions[W]) Validate() error {
	var errs []error
	if o.Workers < 0 {
		errs = append(errs, fmt.Errorf("hooks: Workers %d, want 0 (default) or more", o.Workers))
	}
	if o.Nice < 0 || o.Nice > 19 {
		errs = append(errs, fmt.Errorf("hooks: Nice %d, want 0..19", o.Nice))
	}
	if o.Timeout < 0 {
		errs = append(errs, fmt.Errorf("hooks: Timeout %v, want 0 (never) or more", o.Timeout))
	}
	if o.Queue < 0 {
		errs = append(errs, fmt.Errorf("hooks: Queue %d, want 0 or more", o.Queue))
	}
	return errors.Join(errs...)
}

// Stats counts what a pool did and does.
type Stats struct {
	Workers   int           // that take jobs
	Backlog   int           // jobs waiting for a worker
	Busy      int           // jobs running, without the abandoned ones
	Done      int64         // jobs that ended without an error
	Failed    int64         // jobs that ended with one, panics included
	Abandoned int64         // jobs given up while they ran
	Time      time.Duration // spent in jobs that ended
}

// Pool runs jobs in the background on a bounded number of goroutines, each with
// an operating system thread of its own, in the order of submission. It is safe
// for concurrent use; [Pool.Close] it when done.
//
// A job that never returns costs its goroutine and its thread and nothing else:
// its worker is replaced, and Drain and Close do not wait for it.
type Pool[W any] struct {
	opts PoolOptions[W]

	mu      sync.Mutex
	work    sync.Cond // there is a job, or the pool is closed
	queue   ring[Job[W]]
	workers map[*poolWorker[W]]struct{}
	active  int             // jobs whose Done has not returned
	waiters []chan struct{} // closed when no job is queued or active
	closed  bool
	broken  error // why no worker is left
	stats   Stats
	live    sync.WaitGroup // workers that were not abandoned
}

// NewPool starts the workers.
func NewPool[W any](opts PoolOptions[W]) (*Pool[W], error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	opts.Workers = max(1, opts.Workers)
	p := &Pool[W]{opts: opts, workers: make(map[*poolWorker[W]]struct{}, opts.Workers)}
	p.work.L = &p.mu
	p.queue.reserve(opts.Queue)
	for range opts.Workers {
		if err := p.start(); err != nil {
			_ = p.Close(context.Background()) // nothing runs yet
			return nil, err
		}
	}
	return p, nil
}

// Submit queues a job. It never waits and never refuses work: on a closed pool, or
// one whose workers could not be replaced, the job's Done is called with the
// reason before Submit returns.
func (p *Pool[W]) Submit(job Job[W]) {
	p.mu.Lock()
	if cause := p.refusal(); cause != nil {
		p.mu.Unlock()
		job.Done(cause)
		return
	}
	p.queue.push(job)
	p.mu.Unlock()
	p.work.Signal()
}

func (p *Pool[W]) refusal() error {
	if p.closed {
		return ErrClosed
	}
	return p.broken
}

// flush fails the jobs that wait: with cause, or when that is nil with what keeps
// the pool from working, if anything does.
func (p *Pool[W]) flush(cause error) int {
	p.mu.Lock()
	if cause == nil {
		cause = p.refusal()
	}
	var jobs []Job[W]
	for cause != nil && p.queue.len() > 0 {
		jobs = append(jobs, p.queue.pop())
		p.active++
	}
	p.mu.Unlock()
	for _, job := range jobs {
		job.Done(cause)
	}
	p.release(len(jobs))
	return len(jobs)
}

// Abandon gives up every job that waits or runs now, and returns how many: each
// learns an error that wraps [ErrAbandoned]. The pool goes on with new workers.
func (p *Pool[W]) Abandon() int {
	n := p.flush(ErrAbandoned)
	for x, job := range p.running() {
		if p.abandon(x, job, ErrAbandoned) {
			n++
		}
	}
	return n
}

// AbandonAfter gives up every job that has run for d or longer, and returns how
// many: what looks hung, where what is only busy is to go on.
func (p *Pool[W]) AbandonAfter(d time.Duration) (n int) {
	for x, job := range p.running() {
		p.mu.Lock()
		young := x.job != job || p.elapsed(x) < d
		p.mu.Unlock()
		if !young && p.abandon(x, job, fmt.Errorf("%w after %v", ErrAbandoned, d)) {
			n++
		}
	}
	return n
}

func (p *Pool[W]) running() map[*poolWorker[W]]Job[W] {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[*poolWorker[W]]Job[W])
	for x := range p.workers {
		if x.job != nil && !x.gone {
			out[x] = x.job
		}
	}
	return out
}

// Drain waits until no job waits or runs. Jobs submitted meanwhile count too.
// When ctx ends first, it returns the cause, with what was left.
func (p *Pool[W]) Drain(ctx context.Context) error {
	p.mu.Lock()
	if p.active == 0 && p.queue.len() == 0 {
		p.mu.Unlock()
		return nil
	}
	quiet := make(chan struct{})
	p.waiters = append(p.waiters, quiet)
	p.mu.Unlock()
	select {
	case <-quiet:
		return nil
	case <-ctx.Done():
		s := p.Stats()
		return fmt.Errorf("hooks: drain: %d jobs wait, %d run: %w", s.Backlog, s.Busy, context.Cause(ctx))
	}
}

// Close fails the jobs that wait, ends the contexts of those that run, and
// returns when every worker has ended. When ctx ends first, the jobs that still
// run are abandoned, and the error says how many. Closing again waits too.
func (p *Pool[W]) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	for x := range p.workers {
		x.cancel(ErrClosed)
	}
	p.mu.Unlock()
	p.work.Broadcast()
	p.flush(ErrClosed)
	ended := make(chan struct{})
	go func() { p.live.Wait(); close(ended) }()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	n := p.Abandon()
	<-ended // what was not abandoned ends at once
	if n == 0 {
		return nil
	}
	return fmt.Errorf("hooks: close: %d jobs did not end: %w", n, context.Cause(ctx))
}

// Stats returns a copy of the counters.
func (p *Pool[W]) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Backlog = p.queue.len()
	return s
}
