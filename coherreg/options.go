package coherreg

import (
	"errors"
	"fmt"
)

// Mode says when a published value is taken into use.
type Mode uint8

const (
	// Scheduled adopts at exactly the step given to Due.
	Scheduled Mode = iota
	// Ready adopts at the first adoption point after publication.
	Ready
	// Replay adopts what Options.Replay recorded, at the recorded steps.
	Replay
)

func (m Mode) String() string {
	switch m {
	case Scheduled:
		return "scheduled"
	case Ready:
		return "ready"
	case Replay:
		return "replay"
	}
	return fmt.Sprintf("mode %d", m)
}

// Budget bounds staleness, in steps.
type Budget struct {
	// Soft is the staleness beyond which Stale lists a block. 0 lists a block
	// as soon as it is one step behind.
	Soft int64
	// Hard is the staleness that Adopt never lets a block exceed. 0 means that
	// a refresh must be adopted in the step in which it is due.
	Hard int64
}

// Options configures a Registry. The zero value is Scheduled with a budget of 0.
type Options struct {
	Mode   Mode
	Budget Budget
	// Replay is the log of an earlier run in Ready mode, in the order that
	// Registry.Log gave. Only with Mode Replay.
	Replay []Adoption
	// Observer is told about transitions; nil functions are skipped.
	Observer Observer
}

// Observer receives transitions. Its functions are called without any lock held,
// on the goroutine that caused them.
type Observer struct {
	// Wait is called before Adopt starts to wait for a block, and again with
	// done true when it stopped waiting. block is the key's index.
	Wait func(block int, step int64, done bool)
	// Drop is called when a late value was dropped.
	Drop func(block int, asOf int64)
}

// Validate reports every fault of o together.
func (o Options) Validate() error {
	var errs []error
	if o.Mode > Replay {
		errs = append(errs, fmt.Errorf("coherreg: mode %d: want scheduled (0), ready (1) or replay (2)", o.Mode))
	}
	if o.Budget.Hard < 0 {
		errs = append(errs, fmt.Errorf("coherreg: hard budget %d: want 0 or more steps", o.Budget.Hard))
	}
	if o.Budget.Soft < 0 || o.Budget.Soft > o.Budget.Hard {
		errs = append(errs, fmt.Errorf("coherreg: soft budget %d: want 0 to the hard budget, %d", o.Budget.Soft, o.Budget.Hard))
	}
	if len(o.Replay) > 0 && o.Mode != Replay {
		errs = append(errs, fmt.Errorf("coherreg: a log to replay was given in mode %s", o.Mode))
	}
	return errors.Join(errs...)
}
