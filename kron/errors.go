package kron

import (
	"errors"
	"fmt"
)

var (
	// ErrNonFinite reports a NaN or infinity in a factor or a refresh result.
	ErrNonFinite = errors.New("kron: non-finite numbers")
	// ErrRefresh is what [*RefreshError] matches.
	ErrRefresh = errors.New("kron: too many failed refreshes")
)

// RefreshError says that a block's refreshes failed more often in a row than
// Options.MaxFailures allows. The previous result stays installed.
type RefreshError struct {
	Block       string
	Mode        int   // first mode that failed last
	Consecutive int64 // failed refreshes since the last success
	Err         error // what the last one failed with
}

// Error names the block, so that a run's log says where to look.
func (e *RefreshError) Error() string {
	return fmt.Sprintf("kron: block %s: %d consecutive refreshes failed, last in mode %d: %v", e.Block, e.Consecutive, e.Mode, e.Err)
}

// Is makes the error match [ErrRefresh].
func (e *RefreshError) Is(target error) bool { return target == ErrRefresh }

// Unwrap returns the solver's error.
func (e *RefreshError) Unwrap() error { return e.Err }
