package gemm

// Copy sets dst to src, of the same shape, on the calling goroutine, by the kernel that
// packs operands: for views whose rows are short.
func Copy[T Float](e *Engine, dst, src Matrix[T]) {
	if !movable(dst, src, src.Rows, src.Cols) {
		return
	}
	f := kitOf[T](e)
	wide := f.vectors * f.lanes
	for c := 0; c < src.Cols; c += wide {
		n := min(wide, src.Cols-c)
		f.copyPanels(dst.Data[c:], dst.Stride, src.Data[c:], src.Stride, src.Rows, n, n, panels{count: 1})
	}
}

// Transpose sets dst to the transpose of src on the calling goroutine, for matrices that
// fit into a cache. A right operand that several products read transposed is turned once
// that way instead of in each. dst must not overlap src.
func Transpose[T Float](e *Engine, dst, src Matrix[T]) {
	if !movable(dst, src, src.Cols, src.Rows) {
		return
	}
	kitOf[T](e).turnPanel(dst.Data, dst.Stride, src.Data, src.Stride, src.Cols, src.Rows, src.Rows)
}

// movable reports whether a move to dst of the given shape has anything to do, and tells
// the race detector what it reads and writes.
func movable[T Float](dst, src Matrix[T], rows, cols int) bool {
	if dst.Rows != rows || dst.Cols != cols {
		panic("gemm: move to another shape")
	}
	if rows == 0 || cols == 0 {
		return false
	}
	raceRead(src.Data, src.Stride, src.Rows, src.Cols)
	raceWrite(dst.Data, dst.Stride, dst.Rows, dst.Cols)
	return true
}
