package train

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/asteria"
	"github.com/asteria-runtime/asteria/trainer-olmo/checkpoint"
	"github.com/asteria-runtime/asteria/trainer-olmo/config"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// Seams that package asteria's runtime must fill.
var (
	_ param.Optimizer = (*asteria.Runtime[float32])(nil)
	_ param.Optimizer = (*asteria.Runtime[float64])(nil)
	_ totaler         = (*asteria.Runtime[float32])(nil)
	_ shadowed        = (*asteria.Runtime[float32])(nil)
)

// newSecondOrder builds the runtime of a second-order method, with what prepare
// adds to its options.
func newSecondOrder[T gemm.Float](c *config.Config, params []param.Param[T], eng *gemm.Engine, prepare func(*asteria.Options) error, log *slog.Logger) (param.Optimizer, error) {
	o, err := c.AsteriaOptions()
	if err != nil {
		return nil, fmt.Errorf("train: %w", err)
	}
	if err := prepare(&o); err != nil {
		return nil, err
	}
	if c.Runtime.Replay != "" {
		if o.Async.Replay, err = readAdoptions(c.Runtime.Replay); err != nil {
			return nil, err
		}
	}
	return onDevice(c, &o, log, func() (*asteria.Runtime[T], error) { return asteria.New(params, eng, o) })
}

// totaler is a second-order optimizer as the metrics see it.
type totaler interface{ Totals() asteria.Totals }

// shadowed is an optimizer with refreshes beside training.
type shadowed interface {
	Settle(ctx context.Context) error
	Hurry() int
	PendingSections() []param.Section
	Restored() error
	Load() (asteria.Load, bool)
}

// pendingPrefix begins the names of the sections of refreshes in flight.
const pendingPrefix = "pending/"

// pending lists the state of refreshes in flight, in place; with parallel.shard that
// of all ranks, on rank 0 while a checkpoint is made or read.
func (r *run[T]) pending() []param.Section {
	if s := r.stepper.sharding; s != nil {
		return s.parts[1].whole
	}
	if o, ok := r.stepper.opt.(shadowed); ok {
		return o.PendingSections()
	}
	return nil
}

// settle waits until no refresh runs: the save that follows stores the results. All
// ranks call it together, since each needs those of the others.
func (r *run[T]) settle() error {
	if o, ok := r.stepper.opt.(shadowed); ok {
		return o.Settle(context.Background())
	}
	return nil
}

// restoreRuntime reads the counters and, for refreshes beside training, the
// results that wait for their adoption. Counters never change a result, so that a
// run goes on without them; a result does.
func (r *run[T]) restoreRuntime(c *checkpoint.Checkpoint) error {
	o, ok := r.stepper.opt.(shadowed)
	has, err := c.HasRuntime(pendingPrefix)
	if err != nil {
		return err
	}
	wants := ok && len(r.pending()) > 0
	switch {
	case wants && has:
		err = c.Runtime(r.state().Runtime)
		if err != nil {
			return err
		}
	case has:
		r.log.Warn("train: the checkpoint has refreshes in flight, which this run's runtime.mode drops", "path", c.Path())
	default:
		if err := c.Runtime(r.counters()); err != nil {
			r.log.Warn("train: the counters of the checkpoint were not read", "err", err)
		}
	}
	if !ok || r.stepper.sharding != nil { // whose parts are not where they belong yet
		return nil
	}
	return o.Restored()
}

// hurryAfter is how long a run that is told to end waits for a refresh, and
// hurryEvery how often it looks again.
const (
	hurryAfter = 5 * time.Second
	hurryEvery = 500 * time.Millisecond
)

// hurry makes a run that is told to end give up, after a while, the refreshes that
// it would wait for, so that it can save. The returned function ends that.
func (r *run[T]) hurry(ctx context.Context) (stop func()) {
	o, ok := r.stepper.opt.(shadowed)
	if !ok {
		return func() {}
	}
	over := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		select {
		case <-over:
			return
		case <-ctx.Done():
		}
		for wait := hurryAfter; ; wait = hurryEvery {
			select {
			case <-over:
				return
			case <-time.After(wait):
			}
			if n := o.Hurry(); n > 0 {
				r.log.Warn("train: refreshes that did not end were given up, to save in time; they count as failed, and the run repeats only by runtime.replay", "refreshes", n)
			}
		}
	})
	return func() { close(over); all.Wait() }
}

// loadPersists is for how many steps in a row the workers must look too slow before
// the run says so: what else the machine does for a moment is not their fault. It
// is the default staleness budget, so that the first wait comes no sooner.
const loadPersists = 5

// warnOfLoad says once, with the arithmetic, that the workers cannot keep up:
// before the first step that waits for them, if the times so far tell.
func (r *run[T]) warnOfLoad() {
	o, ok := r.stepper.opt.(shadowed)
	if !ok || r.toldLoad {
		return
	}
	l, ok := o.Load()
	if !ok || l.KeepsUp() {
		r.slowFor = 0
		return
	}
	r.slowFor++
	if r.slowFor < loadPersists || r.stepper.pos.Step+1 < l.Start {
		return
	}
	r.toldLoad = true
	r.log.Warn("train: the refresh workers cannot keep up and training will wait for them: " + l.String() +
		"; more runtime.workers, a larger runtime.lag or optimizer.precondition_frequency, or optimizer.stagger help")
}
