package gemm

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Engine runs the kernels on the calling goroutine and its own workers. Its
// methods are safe for concurrent use: one call at a time gets the workers, the
// others run on their callers. Close it when done.
type Engine struct {
	threads int
	isa     Kernel
	pool    *pool // nil with one thread
	s       kit[float32]
	d       kit[float64]
	closed  atomic.Bool
	once    sync.Once
}

// Options configure an engine. The zero value is one thread and the best kernels
// of this CPU.
type Options struct {
	// Threads is how many threads work on one call, the caller included; 0 is 1.
	Threads int
	// Kernel forces a kernel set; the default is the best one of this CPU.
	Kernel Kernel
}

// Validate reports every fault of o: a negative Threads, a Kernel that this CPU
// or build lacks (that one wraps [errors.ErrUnsupported]).
func (o Options) Validate() error {
	var errs []error
	if o.Threads < 0 {
		errs = append(errs, fmt.Errorf("gemm: Threads is %d, want >= 0", o.Threads))
	}
	if err := o.Kernel.check(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// New returns an engine for threads threads: the calling goroutine and threads-1
// workers. The kernels are the best of this CPU.
func New(threads int) *Engine {
	e, err := NewWith(Options{Threads: max(1, threads)})
	if err != nil {
		panic("gemm: default options refused")
	}
	return e
}

// NewWith is New with options.
func NewWith(o Options) (*Engine, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	e := &Engine{threads: max(1, o.Threads), isa: o.Kernel.resolve()}
	e.s.family, e.d.family = families(e.isa)
	if e.threads > 1 {
		e.pool = newPool(e.threads - 1)
	}
	return e, nil
}

// Close stops the workers and waits for them. Calls after it panic; a second
// Close does nothing.
func (e *Engine) Close() {
	e.once.Do(func() {
		if e.pool != nil {
			e.pool.close()
		}
		e.closed.Store(true)
	})
}

// Threads reports how many threads work on one call.
func (e *Engine) Threads() int { return e.threads }

// Kernels names the kernel set in use: "avx512", "avx2", "neon" or "generic". Results
// repeat bit for bit only within one set, so that checkpoints record it.
func (e *Engine) Kernels() string { return e.isa.String() }

// Task is work that Run splits into chunks. Implementations are reused from call
// to call, so that a step allocates nothing.
type Task interface {
	// Do works on one chunk; worker is in [0, Threads()) and no two chunks of
	// one Run have the same worker at once.
	Do(chunk, worker int)
}

// Run calls t.Do for every chunk in [0, chunks) and returns when all are done.
// Chunks are handed out dynamically; a result must not depend on who did what.
// A Run inside a task, or beside another Run, does its chunks itself, all as
// worker 0: give such calls tasks of their own.
func (e *Engine) Run(chunks int, t Task) {
	if e.closed.Load() {
		panic("gemm: engine used after Close")
	}
	if e.pool != nil && chunks > 1 && e.pool.run(chunks, t) {
		return
	}
	for i := range chunks {
		t.Do(i, 0)
	}
}
