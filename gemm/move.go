package gemm

// Copy sets dst to src, of the same shape, on the calling goroutine, by the kernel that
// packs operands: for views whose rows are short.
func Copy[T Float](e *Engine, dst, src Matrix[T]) {
	if dst.Rows != src.Rows || dst.Cols != src.Cols {
		panic("gemm: copy to another shape")
	}
	if dst.Rows == 0 || dst.Cols == 0 {
		return
	}
	reportMove(dst, src)
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
	if dst.Rows != src.Cols || dst.Cols != src.Rows {
		panic("gemm: transpose to another shape")
	}
	if dst.Rows == 0 || dst.Cols == 0 {
		return
	}
	reportMove(dst, src)
	kitOf[T](e).turnPanel(dst.Data, dst.Stride, src.Data, src.Stride, src.Cols, src.Rows, src.Rows)
}

// reportMove tells the race detector what a move reads and writes.
func reportMove[T Float](dst, src Matrix[T]) {
	raceRead(src.Data, src.Stride, src.Rows, src.Cols)
	raceWrite(dst.Data, dst.Stride, dst.Rows, dst.Cols)
}
