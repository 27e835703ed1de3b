package invroot

import (
	"math"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/gemm/vec"
)

// Ops does the products of the coupled iterations and of a basis refresh where an
// accelerator may do them. Calls may be asynchronous until Sync; those that return
// numbers wait for their operands and their result. Before Sync the solver neither
// writes an operand nor reads a result. Results must not depend on how work is
// divided. An Ops serves one goroutine unless it says more.
//
// Everything else of a refresh (reductions to tridiagonal form, reflectors, the
// float64 attempts after a failure) works on the host.
type Ops[T gemm.Float] interface {
	// Gemm sets c = alpha*op(a)*op(b) + beta*c.
	Gemm(ta, tb bool, alpha T, a, b gemm.Matrix[T], beta T, c gemm.Matrix[T])
	// Shift sets dst = factor*src + diagonal*I, all n×n; dst may be src. With
	// factor 0 it does not read src.
	Shift(dst, src gemm.Matrix[T], factor, diagonal T)
	// IdentityError returns max|m-I|, not a number when an element is not finite.
	IdentityError(m gemm.Matrix[T]) float64
	// RowDots sets dst[i] to the product of the rows i of x and y, and waits.
	RowDots(dst []T, x, y gemm.Matrix[T])
	// Sync waits for all calls and returns the first failure.
	Sync() error
}

// CPU is the [Ops] of the host. It has no state of its own and is as concurrent as
// its engine.
type CPU[T gemm.Float] struct {
	engine *gemm.Engine
	k      kernels[T]
}

// NewCPU returns the operations on e, which the caller closes.
func NewCPU[T gemm.Float](e *gemm.Engine) *CPU[T] { return &CPU[T]{engine: e, k: newKernels[T](e)} }

// Gemm implements [Ops].
func (c *CPU[T]) Gemm(ta, tb bool, alpha T, a, b gemm.Matrix[T], beta T, dst gemm.Matrix[T]) {
	gemm.Mul(c.engine, ta, tb, alpha, a, b, beta, dst)
}

// Shift implements [Ops].
func (c *CPU[T]) Shift(dst, src gemm.Matrix[T], factor, diagonal T) {
	same := dst.Rows > 0 && &dst.Data[0] == &src.Data[0]
	for i := range dst.Rows {
		row := dst.Row(i)
		switch {
		case factor == 0:
			clear(row)
		case factor != 1 || !same:
			vec.ScaleTo(row, factor, src.Row(i))
		}
		row[i] += diagonal
	}
}

// IdentityError implements [Ops].
func (c *CPU[T]) IdentityError(m gemm.Matrix[T]) float64 {
	var worst T
	for i := range m.Rows {
		row := m.Row(i)
		off := max(maxAbsRow(row[:i]), maxAbsRow(row[i+1:]))
		worst = max(worst, off, T(math.Abs(float64(row[i])-1)))
	}
	if math.IsInf(float64(worst), 1) { // so maxAbsRow reports a NaN
		return math.NaN()
	}
	return float64(worst)
}

// RowDots implements [Ops].
func (c *CPU[T]) RowDots(dst []T, x, y gemm.Matrix[T]) {
	for i := range dst {
		c.k.dots(dst[i:i+1], x.Slice(i, 0, 1, x.Cols), y.Row(i))
	}
}

// Sync implements [Ops]; every call has already finished.
func (c *CPU[T]) Sync() error { return nil }
