//go:build !linux || (!amd64 && !arm64)

package mpi

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"
)

// Open reports that the library is not supported here.
func Open() (*Library, error) {
	return nil, fmt.Errorf("mpi: not on %s/%s: %w", runtime.GOOS, runtime.GOARCH, errors.ErrUnsupported)
}

func (l *Library) call(uintptr, ...uintptr) uintptr { panic("mpi: not supported here") }

func foreign(uintptr) unsafe.Pointer { return nil }
