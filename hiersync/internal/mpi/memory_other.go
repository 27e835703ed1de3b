//go:build !linux

package mpi

import "errors"

// Memory reports that there is none.
func Memory(int) ([]byte, error) { return nil, errors.ErrUnsupported }
