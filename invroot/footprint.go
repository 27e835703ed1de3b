package invroot

import (
	"unsafe"

	"github.com/asteria-runtime/asteria/gemm"
)

// ScratchBytes returns the bytes of scratch that a Solver[T] for orders up to
// maxOrder holds once it has run every method in every precision that opts
// allows, its engines' packing buffers apart. It is what a memory plan needs
// before anything is allocated; threads is the engine's.
func ScratchBytes[T gemm.Float](maxOrder, threads int, opts Options) int64 {
	total := coreBytes[T](maxOrder, threads)
	if unsafe.Sizeof(T(0)) == 4 && opts.Precision != Single {
		total += coreBytes[float64](maxOrder, threads)
	}
	return total
}

// coreBytes adds up what newCore, spare and factorizer allocate.
func coreBytes[T gemm.Float](n, threads int) int64 {
	matrix := func(rows, cols int) int { return rows * stride[T](cols) }
	elements := 5*matrix(n, n) + // a, z, u, g, x
		2*matrix(2*maxPanel, n) + matrix(symvChunks, n) + 3*n + // reduction
		2*matrix(maxBlock, maxBlock) + threads*matrix(maxStrip, maxBlock) + // back-transform
		3*matrix(n, panelRows) + matrix(panelRows, panelRows) + // QR
		2*n // probe and its image
	const words = 2 + 2 + 1 + 9 + 5 // float64 and int vectors of reduction, core and merges
	fixed := threads * int(unsafe.Sizeof(worker[T]{}))
	return int64(elements)*int64(unsafe.Sizeof(T(0))) + int64(8*words*n+n+fixed)
}
