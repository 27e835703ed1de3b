// Package cu stands in for gorgonia.org/cu where no CUDA headers are: the types and
// methods that the adapter uses, over numbers.
package cu

import "unsafe"

// CUContext is a CUDA context.
type CUContext struct{ ctx unsafe.Pointer }

// Ctx is a context with a goroutine of its own.
type Ctx struct{ CUContext }

// CUDAContext returns the context.
func (ctx *Ctx) CUDAContext() CUContext { return ctx.CUContext }

// Stream is a CUDA stream.
type Stream struct{ s unsafe.Pointer }

// Priority returns the stream's priority number.
func (hStream Stream) Priority() (priority int, err error) { return 0, nil }

// StreamPriorityRange returns the numbers of the lowest and the highest priority.
func StreamPriorityRange() (leastPriority int, greatestPriority int, err error) { return 0, -5, nil }
