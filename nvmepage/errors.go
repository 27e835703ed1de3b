package nvmepage

import (
	"errors"
	"fmt"
)

// Errors that callers branch on.
var (
	// ErrNotFound is wrapped when the store has no such object.
	ErrNotFound = errors.New("nvmepage: no such object")
	// ErrCorrupt is wrapped when what is on disk is not what was written.
	ErrCorrupt = errors.New("nvmepage: corrupt page")
	// ErrFull is wrapped when the capacity or the drive is exhausted.
	ErrFull = errors.New("nvmepage: store full")
	// ErrLength is wrapped when a buffer does not have the object's length.
	ErrLength = errors.New("nvmepage: wrong length")
	// ErrIncomplete is wrapped when Open is to take over a store and lacks one of its
	// paths: what is in the others may be older than what the store held.
	ErrIncomplete = errors.New("nvmepage: a part of the store is missing")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("nvmepage: store is closed")
)

// CorruptError says where a page did not check.
type CorruptError struct {
	ID     uint64
	File   string
	Offset int64
	What   string // what differs, with both values
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("nvmepage: corrupt page: object %d in %s at byte %d: %s", e.ID, e.File, e.Offset, e.What)
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }
