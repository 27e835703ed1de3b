//go:build !linux

package hooks

import "time"

// threadTime stands in for the processor time of the thread: the time in which
// the worker did not sleep.
func threadTime(t *Turn) time.Duration { return time.Since(t.born) - t.Paused() }
