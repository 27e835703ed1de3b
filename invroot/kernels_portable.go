package invroot

import "github.com/asteria-runtime/asteria/gemm"

func newKernels[T gemm.Float]() kernels[T] { return kernels[T]{} }

func (k kernels[T]) dots(out []T, rows gemm.Matrix[T], x []T) { dotsGeneric(out, rows, x) }

func (k kernels[T]) axpys(y, c []T, rows gemm.Matrix[T]) { axpysGeneric(y, c, rows) }

func (k kernels[T]) symvRows(y []T, a gemm.Matrix[T], x []T, lo, hi int) {
	symvRowsGeneric(y, a, x, lo, hi)
}

func (k kernels[T]) rotate(x, y []T, c, s T) { rotateGeneric(x, y, c, s) }

func (k kernels[T]) secular(d, z2 []float64, origin, offset float64) (float64, float64) {
	return secularGeneric(d, z2, origin, offset)
}

func (k kernels[T]) loewner(prod, d []float64, origin, offset, pole float64) {
	loewnerGeneric(prod, d, origin, offset, pole)
}

func (k kernels[T]) vector(out []T, d, z []float64, origin, offset float64) float64 {
	return vectorGeneric(out, d, z, origin, offset)
}
