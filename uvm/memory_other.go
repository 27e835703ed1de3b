//go:build !linux || race

package uvm

import (
	"errors"
	"fmt"
	"unsafe"
)

// pageSize aligns heap buffers as mappings are aligned.
const pageSize = 4096

// mapMemory takes the memory from the Go heap: on systems without the calls this
// package makes, and under the race detector, which does not see mapped memory.
func mapMemory(n int) ([]byte, error) {
	raw := make([]byte, n+pageSize)
	skip := 0
	if r := int(uintptr(unsafe.Pointer(unsafe.SliceData(raw))) % pageSize); r != 0 {
		skip = pageSize - r
	}
	return raw[skip : skip+n : skip+n], nil
}

func unmapMemory([]byte) error { return nil }

func lock([]byte) error {
	return fmt.Errorf("uvm: lock memory: looked for mlock: %w", errors.ErrUnsupported)
}

func unlock([]byte) error { return nil }

// release zeroes, which is what the next reader of released pages sees.
func release(mem []byte) error {
	clear(mem)
	return nil
}

func advise([]byte, Hint) error { return nil }
