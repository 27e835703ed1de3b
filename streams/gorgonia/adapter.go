//go:build cuda

package gorgonia

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/asteria-runtime/asteria/streams"
)

// Both of Gorgonia's types are structs of one C pointer, which is what the driver
// calls a context or a stream; drift_test.go watches that. The arrays do not compile
// otherwise.
var (
	_ [unsafe.Sizeof(uintptr(0))]byte = [unsafe.Sizeof(cu.CUContext{})]byte{}
	_ [unsafe.Sizeof(uintptr(0))]byte = [unsafe.Sizeof(cu.Stream{})]byte{}
)

func contextHandle(c cu.CUContext) uintptr { return *(*uintptr)(unsafe.Pointer(&c)) }

func streamHandle(s cu.Stream) uintptr { return *(*uintptr)(unsafe.Pointer(&s)) }

// Device returns our device number ordinal in Gorgonia's context, which must be one
// of that device. The context stays Gorgonia's and must outlive the device.
func Device(ordinal int, ctx *cu.Ctx) (*streams.Device, error) {
	if ctx == nil {
		return nil, fmt.Errorf("gorgonia: device %d: no context", ordinal)
	}
	return streams.OpenContext(ordinal, contextHandle(ctx.CUDAContext()))
}

// Stream returns Gorgonia's stream as one of ours, of a device that [Device] made.
// It stays Gorgonia's: closing ours waits for it and leaves it open.
func Stream(d *streams.Device, s cu.Stream) (*streams.Stream, error) {
	p, err := priority(s)
	if err != nil {
		return nil, fmt.Errorf("gorgonia: priority of the stream: %w", err)
	}
	return d.Borrow(streamHandle(s), p)
}

// priority translates the driver's number: smaller is higher.
func priority(s cu.Stream) (streams.Priority, error) {
	n, err := s.Priority()
	if err != nil {
		return 0, err
	}
	lowest, highest, err := cu.StreamPriorityRange()
	switch {
	case err != nil:
		return 0, err
	case lowest == highest:
		return streams.Normal, nil
	case n >= lowest:
		return streams.Low, nil
	case n <= highest:
		return streams.High, nil
	}
	return streams.Normal, nil
}

// Share returns our stream as one of Gorgonia's. It stays ours: Gorgonia must not
// destroy it, nor use it after it was closed.
func Share(s *streams.Stream) (cu.Stream, error) {
	h := s.Handle()
	if h == 0 {
		return cu.Stream{}, fmt.Errorf("gorgonia: share a stream of the host device: it has no CUDA stream")
	}
	return *(*cu.Stream)(unsafe.Pointer(&h)), nil
}
