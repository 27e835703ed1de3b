package cuda

import (
	"errors"
	"fmt"
	"strings"
)

// Codes of CUresult that callers branch on.
const (
	CodeOutOfMemory = 2
	CodeNoDevice    = 100
	CodeNotReady    = 600
	codeStub        = 34 // the toolkit's stand-in for the driver
	codeUnsupported = 801
	codeMismatch    = 803 // the driver's library and its kernel module differ
	codeCompat      = 804 // the library is for newer hardware drivers than this one
)

// ErrOutOfMemory is matched by the [Error] of an allocation that found no room.
var ErrOutOfMemory = errors.New("cuda: out of memory")

// Error is a status that a call returned.
type Error struct {
	Call string // function as the library exports it
	Code int    // numeric status
	Name string // its name, such as CUDA_ERROR_OUT_OF_MEMORY
	Text string // the library's own words, or the compiler's log
}

// Error implements the error interface.
func (e *Error) Error() string {
	return fmt.Sprintf("cuda: %s: %s (%d): %s", e.Call, e.Name, e.Code, e.Text)
}

// Is matches ErrOutOfMemory, and errors.ErrUnsupported where the status says that
// the driver, device or feature is not there.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrOutOfMemory:
		return e.Code == CodeOutOfMemory
	case errors.ErrUnsupported:
		switch e.Code {
		case codeUnsupported, CodeNoDevice, codeStub, codeMismatch, codeCompat:
			return true
		}
	}
	return false
}

// Missing says which library or symbol was looked for in vain. It matches
// errors.ErrUnsupported.
type Missing struct {
	Library string   // file names that were tried
	Symbol  string   // empty when the library itself was not found
	Reason  []string // what the loader said, one line a name
}

// Error implements the error interface.
func (e *Missing) Error() string {
	if e.Symbol != "" {
		return fmt.Sprintf("cuda: %s has no symbol %s: a newer driver is needed", e.Library, e.Symbol)
	}
	for _, r := range e.Reason {
		if !strings.Contains(r, "No such file") { // it is there and does not load
			return fmt.Sprintf("cuda: %s not usable: %s", e.Library, r)
		}
	}
	return fmt.Sprintf("cuda: %s not found", e.Library)
}

// Is matches errors.ErrUnsupported.
func (e *Missing) Is(target error) bool { return target == errors.ErrUnsupported }
