//go:build !amd64 || noasm

package invroot

import "github.com/asteria-runtime/asteria/gemm"

func newKernels[T gemm.Float](*gemm.Engine) kernels[T] { return kernels[T]{} }

func (kernelSet) secular(d, z2 []float64, origin, offset float64) (sum, slope float64) {
	return secularGeneric(d, z2, origin, offset)
}

func (kernelSet) loewner(prod, d []float64, origin, offset, pole float64) {
	loewnerGeneric(prod, d, origin, offset, pole)
}

func vector[T gemm.Float](_ kernelSet, out []T, d, z []float64, origin, offset float64) float64 {
	return vectorGeneric(out, d, z, origin, offset)
}
