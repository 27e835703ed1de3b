package hiersync

import (
	"errors"
	"fmt"
)

// Causes of a [RankError]. Match them with errors.Is.
var (
	// ErrDead: the rank's heartbeat connection ended without a goodbye.
	ErrDead = errors.New("connection lost, the process is gone")
	// ErrStuck: the rank sent no heartbeat within the deadline.
	ErrStuck = errors.New("no heartbeat within the deadline")
	// ErrLate: the rank is alive but did not do its part of an operation within
	// the deadline.
	ErrLate = errors.New("did not do its part within the deadline")
	// ErrMismatch: the rank called another operation, or one of another size, at
	// the same place of the order.
	ErrMismatch = errors.New("called a different operation at this place")
	// ErrLeft: the rank closed its communicator while others still need it.
	ErrLeft = errors.New("has closed its communicator")
	// ErrCanceled: the context of a wait on that rank ended. No collective can be
	// finished without it, so this ends the communicator of all ranks.
	ErrCanceled = errors.New("gave up waiting, its context ended")
	// ErrEngine: the message layer below reported a failure.
	ErrEngine = errors.New("the message layer failed")
	// ErrAborted: the rank called Abort because of an error of its own.
	ErrAborted = errors.New("gave up because of an error of its own")
)

// ErrClosed is returned by calls after Close.
var ErrClosed = errors.New("hiersync: communicator is closed")

// causes in the order of their number on the wire; append only.
var causes = [...]error{ErrDead, ErrStuck, ErrLate, ErrMismatch, ErrLeft, ErrCanceled, ErrEngine, ErrAborted}

// RankError names the rank because of which a communicator ended. It is the same
// on all ranks that survive.
type RankError struct {
	Rank  int    // the rank to blame; -1 when nobody can tell
	Op    string // the operation during which it was noticed; empty between operations
	Seq   uint64 // number of that operation, from 1
	Cause error  // one of the causes above, possibly wrapped
}

// Error names rank, cause and operation.
func (e *RankError) Error() string {
	who := "an unknown rank"
	if e.Rank >= 0 {
		who = fmt.Sprintf("rank %d", e.Rank)
	}
	if e.Op == "" {
		return fmt.Sprintf("hiersync: %s: %v", who, e.Cause)
	}
	return fmt.Sprintf("hiersync: %s: %v (%s, operation %d)", who, e.Cause, e.Op, e.Seq)
}

// Unwrap returns the cause.
func (e *RankError) Unwrap() error { return e.Cause }

// engineCode is the number of ErrEngine, which stands for what has no number.
const engineCode = 6

// causeCode is the number of a cause on the wire.
func causeCode(err error) byte {
	for i, c := range causes {
		if errors.Is(err, c) {
			return byte(i)
		}
	}
	return engineCode
}

// causeOf is the cause with a number; an unknown number is the engine's.
func causeOf(code byte) error {
	if int(code) < len(causes) {
		return causes[code]
	}
	return ErrEngine
}
