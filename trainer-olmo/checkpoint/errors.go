package checkpoint

import (
	"errors"
	"fmt"
	"strings"
)

// ErrNone says that a folder holds no complete checkpoint.
var ErrNone = errors.New("checkpoint: none found")

// ErrMismatch is what every [MismatchError] is.
var ErrMismatch = errors.New("checkpoint: does not fit the run")

// MismatchError lists, one by one, what a file and a run do not have in common.
type MismatchError struct {
	File       string
	Missing    []string // names that the run needs and the file lacks
	Unexpected []string // names in the file that the run does not know
	Reshaped   []string // names of another type or shape, with both
}

func (e *MismatchError) any() bool {
	return len(e.Missing)+len(e.Unexpected)+len(e.Reshaped) > 0
}

// Error lists every name on a line of its own.
func (e *MismatchError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "checkpoint: %s does not fit the run: %d missing, %d unexpected, %d reshaped",
		e.File, len(e.Missing), len(e.Unexpected), len(e.Reshaped))
	for _, part := range []struct {
		word  string
		names []string
	}{{"missing", e.Missing}, {"unexpected", e.Unexpected}, {"reshaped", e.Reshaped}} {
		for _, n := range part.names {
			fmt.Fprintf(&b, "\n  %s %s", part.word, n)
		}
	}
	return b.String()
}

// Is reports that e is [ErrMismatch].
func (e *MismatchError) Is(target error) bool { return target == ErrMismatch }
