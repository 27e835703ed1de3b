package asteria

import (
	"errors"
	"fmt"
	"time"

	"github.com/asteria-runtime/asteria/coherreg"
	"github.com/asteria-runtime/asteria/kron"
)

// Mode says where refreshes run.
type Mode uint8

const (
	// Native runs each refresh inside the step in which it is due.
	Native Mode = iota
	// Asteria runs refreshes beside training and adopts them later.
	Asteria
)

var modeNames = [...]string{"native", "asteria"}

// String returns the word used in configuration files.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// Adopt says when a finished refresh is taken into use.
type Adopt uint8

const (
	// Scheduled adopts exactly Async.Lag steps after the snapshot: the run
	// repeats to the bit.
	Scheduled Adopt = iota
	// Ready adopts at the first opportunity after the refresh has ended: the
	// results are fresher, and repeat only by Async.Replay.
	Ready
)

var adoptNames = [...]string{"scheduled", "ready"}

// String returns the word used in configuration files.
func (a Adopt) String() string {
	if int(a) < len(adoptNames) {
		return adoptNames[a]
	}
	return fmt.Sprintf("adopt(%d)", uint8(a))
}

// Async configures the mode [Asteria]; the mode [Native] takes JobTimeout alone. Steps are
// counted as the blocks count gradients, from 1.
type Async struct {
	// Staleness is the budget in steps: no step runs with a refresh that has been
	// due for longer and is not adopted. 0 means 5, negative means none, which is
	// the native optimizer bit for bit.
	Staleness int64
	// Lag is the number of steps from snapshot to adoption with Scheduled, at
	// most Staleness and at most the refresh interval. 0 means the smaller of the
	// two, negative means none.
	Lag int64
	// LagStart is the first step whose refreshes may be adopted late, and are then
	// late by Lag; negative means from the start. Early in training the bases turn
	// fast, and a late one costs loss: 0 means from five refresh intervals on, and
	// by no more than a part of the steps so far; see Note: lateness.
	LagStart int64
	// LagRamp is how many steps of training pay for one step of lateness, where
	// LagStart is 0. 0 means 50, with a KL method 100.
	LagRamp int64
	// Selective leaves out refreshes that the budget allows to leave out: of those
	// in a row that are due within Staleness minus Lag steps only the last is begun,
	// and adopted Lag steps later. Whatever is due is then covered by an adoption at
	// most Staleness steps later, with as few results as possible: what ranks need
	// that have to send them. While Staleness is below Lag plus the interval, as it
	// is by default, nothing is left out.
	Selective bool
	// Adopt says when results are taken into use.
	Adopt Adopt
	// ReadyShare bounds, with Ready, the refreshes in flight: to this part of all
	// blocks, counted by what their snapshots and adoptions cost the step, and to what
	// the workers end within a step. 0 means 0.2, 1 leaves the second bound alone. See
	// Note: turns.
	ReadyShare float64
	// Replay repeats the adoptions of an earlier run, whatever the mode of
	// adoption that made them; see [Observer.Adopted]. Not nil turns it on.
	Replay []coherreg.Adoption

	// Workers is the number of refreshes that run at once, each on a thread of
	// its own; 0 means 1. It changes no result.
	Workers int
	// Nice is added to the nice value of the workers' threads, 0 to 19: right
	// where there are spare cores, and starving the workers where there are none.
	Nice int
	// Paced spreads the work of the refreshes evenly over the steps until they are
	// needed, with scheduled adoption, so that every step is slowed alike; see
	// Note: pacing.
	Paced bool
	// JobTimeout counts a refresh beside training that takes longer as failed, and
	// gives up its worker and its memory; 0 means never. Inside the step, in the mode
	// Native too, it bounds each call of a solver, of which a refresh makes one for
	// each side. A run in which that happens repeats only by Replay, and not at all
	// if it happens inside a step.
	JobTimeout time.Duration
	// Observer is told what happens beside the step.
	Observer Observer
}

// Observer receives what happens beside the step; nil functions are skipped. They
// are called on several goroutines and must not call the runtime.
type Observer struct {
	// Adopted is told of every refresh that an adoption point resolved, after the
	// step, in the order of blocks: the log that Async.Replay takes.
	Adopted func(coherreg.Adoption)
	// Refreshed is told of every refresh that ended, on a worker (counted from
	// 1), or inside the step (worker 0).
	Refreshed func(block string, worker int, start time.Time, d time.Duration)
	// Waited is told of every adoption point that had to wait for a worker.
	Waited func(block string, start time.Time, d time.Duration)
}

// staleness is the budget in steps.
func (a Async) staleness() int64 { return max(0, or(a.Staleness, 5)) }

// readyShare is the part of the blocks that may be in flight with ready adoption.
func (a Async) readyShare() float64 { return or(a.ReadyShare, 0.2) }

// lag is the delay of scheduled adoptions, for an interval of so many steps.
func (a Async) lag(every int64) int64 {
	return max(0, or(a.Lag, min(a.staleness(), every)))
}

// group is of how many refreshes in a row one is begun.
func (a Async) group(every int64) int64 {
	if lag := a.lag(every); a.Selective && lag > 0 && a.staleness() > lag {
		return 1 + (a.staleness()-lag)/every
	}
	return 1
}

// Note: lateness
//
// A basis that is late by L steps is a basis that is older by L, and what a step of
// age costs falls with the age of the run, as the bases turn ever more slowly: it is
// about the same for equal parts of the run so far. So by default the lag grows
// with the run, one step every Async.LagRamp steps, up to Async.Lag. It is a function of
// the step alone, like all else that scheduled adoption does.
//
// With a KL method the factors themselves depend on the bases in use, and a step of age
// costs more than twice as much.

// lagRamp is the default of Async.LagRamp.
func lagRamp(m kron.Method) int64 {
	if m == kron.KLShampoo || m == kron.KLSOAP {
		return 100
	}
	return 50
}

// lagStart is the first step whose refreshes may be late.
func (a Async) lagStart(every int64) int64 { return max(0, or(a.LagStart, 5*every)) }

// lagAt is the delay of a refresh due at a step, with scheduled adoption.
func (a Async) lagAt(step, every int64) int64 {
	switch lag := a.lag(every); {
	case step < a.lagStart(every):
		return 0
	case a.LagStart == 0:
		return min(lag, max(1, step/a.LagRamp))
	default:
		return lag
	}
}

// validate reports every fault, given the refresh interval.
func (a Async) validate(every int64) error {
	var errs []error
	bad := func(cond bool, format string, args ...any) {
		if cond {
			errs = append(errs, fmt.Errorf("asteria: "+format, args...))
		}
	}
	bad(a.Adopt > Ready, "Adopt %d, want scheduled (0) or ready (1)", a.Adopt)
	bad(!(a.ReadyShare >= 0 && a.ReadyShare <= 1), "ReadyShare %v, want above 0 and up to 1, or 0 (default)", a.ReadyShare)
	lag := a.lag(every)
	bad(lag > a.staleness(), "Lag %d is above Staleness %d", lag, a.staleness())
	bad(lag > every, "Lag %d is above the refresh interval %d: a refresh would be due while the one before is not adopted", lag, every)
	bad(a.LagRamp < 0, "LagRamp %d, want 0 (default) or more", a.LagRamp)
	bad(a.Workers < 0, "Workers %d, want 0 (default) or more", a.Workers)
	bad(a.Nice < 0 || a.Nice > 19, "Nice %d, want 0..19", a.Nice)
	bad(a.JobTimeout < 0, "JobTimeout %v, want 0 (never) or more", a.JobTimeout)
	return errors.Join(errs...)
}
