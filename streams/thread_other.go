//go:build !linux

package streams

import "errors"

// lowerThread does nothing: threads have no priority of their own here that Go can set.
func lowerThread() {}

func threadNice() (int, error) { return 0, errors.ErrUnsupported }
