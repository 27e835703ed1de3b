package uvm

import (
	"errors"
	"fmt"
	"unsafe"
)

// ErrSize is wrapped when a size is not positive or does not fit the address space.
var ErrSize = errors.New("uvm: bad size")

// Allocator hands out buffers of n bytes. Implementations round up as they need;
// Bytes of the result has exactly n bytes, zeroed, aligned to a page at least.
type Allocator interface {
	Alloc(n int64) (*Buffer, error)
}

// Hint tells the system how a buffer will be used.
type Hint uint8

// The hints.
const (
	WillNeed   Hint = iota // soon: read ahead, fault in
	Sequential             // front to back
	Random                 // no order
	Cold                   // not for a while: may be reclaimed first
)

// Buffer is a range of memory outside the Go heap.
type Buffer struct {
	mem    []byte // page-aligned, as long as was asked for
	whole  []byte // what the system gave, at least mem
	pinned bool
	free   func(b *Buffer) error // how Close gives whole back; nil after Close

	driver  Driver // where the memory came from; nil for the system's
	managed bool   // it moves between host and device
	shared  bool   // the device may use its address
}

// Bytes returns the buffer's memory.
func (b *Buffer) Bytes() []byte {
	b.check()
	return b.mem
}

// Float32s returns the buffer's memory as float32 elements; a tail of fewer than
// four bytes is left out.
func (b *Buffer) Float32s() []float32 { return view[float32](b) }

// Float64s returns the buffer's memory as float64 elements; a tail of fewer than
// eight bytes is left out.
func (b *Buffer) Float64s() []float64 { return view[float64](b) }

// view is the one place where bytes become elements. It is sound because the
// memory is page-aligned, holds no pointers, and both element types accept every
// bit pattern.
func view[T float32 | float64](b *Buffer) []T {
	b.check()
	var zero T
	n := len(b.mem) / int(unsafe.Sizeof(zero))
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b.mem))), n)
}

// Addr returns the address of the first byte, for accelerator calls. The memory
// does not move while the buffer is open.
func (b *Buffer) Addr() uintptr {
	b.check()
	return uintptr(unsafe.Pointer(unsafe.SliceData(b.mem)))
}

// Len returns the size in bytes.
func (b *Buffer) Len() int64 { return int64(len(b.mem)) }

// Pinned reports whether the memory is locked into RAM.
func (b *Buffer) Pinned() bool { return b.pinned }

// Advise passes a hint to the system. Where the system has no such hint it does
// nothing.
func (b *Buffer) Advise(h Hint) error {
	b.check()
	if h > Cold {
		return fmt.Errorf("uvm: hint %d: want WillNeed (0) to Cold (3)", h)
	}
	if b.driver != nil {
		return nil // the system's advice does not hold for a driver's memory
	}
	return advise(b.whole, h)
}

// Prefetch faults the pages in, so that the first use does not.
func (b *Buffer) Prefetch() error { return b.Advise(WillNeed) }

// Release gives the pages back to the system and keeps the range: the contents
// are zero afterwards. A pinned buffer is unlocked first and stays unpinned. Memory
// of a driver is only zeroed: its pages are the driver's.
func (b *Buffer) Release() error {
	b.check()
	if b.driver != nil {
		clear(b.mem)
		return nil
	}
	if b.pinned {
		if err := unlock(b.whole); err != nil {
			return err
		}
		b.pinned = false
	}
	return release(b.whole)
}

// Close gives the memory back. A second Close does nothing.
func (b *Buffer) Close() error {
	free := b.free
	if free == nil {
		return nil
	}
	b.free = nil
	return free(b)
}

func (b *Buffer) check() {
	if b.free == nil {
		panic("uvm: use of a closed buffer")
	}
}
