package gemm

// checkSizes panics on a negative size.
func checkSizes(m, n, k int) {
	switch {
	case m < 0:
		panic("gemm: m < 0")
	case n < 0:
		panic("gemm: n < 0")
	case k < 0:
		panic("gemm: k < 0")
	}
}

// checkMatrix panics with the given constants when a rows×cols matrix does not
// fit its stride or its slice.
func checkMatrix[T Float](rows, cols int, x []T, ld int, badStride, short string) {
	if ld < max(1, cols) {
		panic(badStride)
	}
	if rows > 0 && cols > 0 && len(x) < (rows-1)*ld+cols {
		panic(short)
	}
}

// checkOp is checkMatrix for a matrix whose op is rows×cols.
func checkOp[T Float](trans bool, rows, cols int, x []T, ld int, badStride, short string) {
	if trans {
		rows, cols = cols, rows
	}
	checkMatrix(rows, cols, x, ld, badStride, short)
}
