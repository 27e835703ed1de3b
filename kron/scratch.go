package kron

import "github.com/asteria-runtime/asteria/gemm"

// scratchBuffers is how many block-sized buffers a step needs beside the
// packed gradient: see klBegin, which needs most.
const scratchBuffers = 4

// Scratch is the working memory of one goroutine that steps blocks. Its
// contents mean nothing between calls.
type Scratch[T gemm.Float] struct {
	packed []T                 // gradient, when the caller's is strided
	buf    [scratchBuffers][]T // see Note: buffers
	vector [2 * MaxOrder][]T   // one per side: old gains, and one to spare each
	rows   []T                 // one for each row along the last mode: see klWhiten
}

// ScratchLen returns how many elements [NewScratch] allocates for these blocks.
func ScratchLen[T gemm.Float](blocks ...*Block[T]) int {
	size, side, rows := scratchExtent(blocks)
	return (1+scratchBuffers)*size + 2*MaxOrder*side + rows
}

// NewScratch returns scratch that serves each of the blocks, one at a time.
func NewScratch[T gemm.Float](blocks ...*Block[T]) *Scratch[T] {
	size, side, rows := scratchExtent(blocks)
	mem := gemm.OnHugePages(make([]T, ScratchLen(blocks...)))
	take := func(n int) []T {
		part := mem[:n:n]
		mem = mem[n:]
		return part
	}
	sc := &Scratch[T]{packed: take(size)}
	for i := range sc.buf {
		sc.buf[i] = take(size)
	}
	for i := range sc.vector {
		sc.vector[i] = take(side)
	}
	sc.rows = take(rows)
	return sc
}

// MoveScratchLen returns how many elements [NewMoveScratch] allocates for these blocks.
func MoveScratchLen[T gemm.Float](blocks ...*Block[T]) (elements int) {
	for _, b := range blocks {
		if b.opts.Method.late() {
			elements = max(elements, 2*b.size)
		}
	}
	return elements
}

// NewMoveScratch returns scratch that serves [Block.Move] of each of the blocks, one at
// a time, and nothing else.
func NewMoveScratch[T gemm.Float](blocks ...*Block[T]) *Scratch[T] {
	n := MoveScratchLen(blocks...)
	mem := gemm.OnHugePages(make([]T, n))
	sc := new(Scratch[T])
	sc.buf[0], sc.buf[1] = mem[:n/2], mem[n/2:]
	return sc
}

func scratchExtent[T gemm.Float](blocks []*Block[T]) (size, side, rows int) {
	for _, b := range blocks {
		size = max(size, b.size)
		if b.opts.Method == KLShampoo && b.order > 0 {
			rows = max(rows, b.modes[b.order-1].pre)
		}
		for k := range b.order {
			side = max(side, b.FactorOrder(k))
		}
	}
	return size, side, rows
}

// gather returns v's elements side by side: v's own storage where they already
// lie so, else a copy in buf. Steps read gradients only through it, so a strided
// gradient gives the same bits as a packed one. See Note: the host's turn.
func gather[T gemm.Float](ops Ops[T], buf []T, v View[T]) []T {
	n := v.Len()
	if v.packed() {
		return v.Data[:n]
	}
	_ = ops.Sync()
	at := 0
	for i := range v.Dims[0] {
		for j := range v.Dims[1] {
			src := v.Data[i*v.Strides[0]+j*v.Strides[1]:]
			if v.Strides[2] == 1 {
				at += copy(buf[at:], src[:v.Dims[2]])
				continue
			}
			for k := range v.Dims[2] {
				buf[at] = src[k*v.Strides[2]]
				at++
			}
		}
	}
	return buf[:n]
}

// shrinkAndStep sets w = keep*w - step*u element by element; it touches no
// element outside the view.
func shrinkAndStep[T gemm.Float](ops Ops[T], w View[T], u []T, keep, step T) {
	if w.packed() {
		ops.Axpby(-step, u[:w.Len()], keep, w.Data[:w.Len()])
		return
	}
	run := w.Dims[2]
	for i := range w.Dims[0] {
		for j := range w.Dims[1] {
			at := (i*w.Dims[1] + j) * run
			dst := w.Data[i*w.Strides[0]+j*w.Strides[1]:]
			if w.Strides[2] == 1 {
				ops.Axpby(-step, u[at:at+run], keep, dst[:run])
				continue
			}
			for k := range run {
				e := k * w.Strides[2]
				ops.Axpby(-step, u[at+k:at+k+1], keep, dst[e:e+1])
			}
		}
	}
}
