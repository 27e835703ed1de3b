//go:build amd64 && !noasm

package invroot

import (
	"unsafe"

	"github.com/asteria-runtime/asteria/gemm"
)

// newKernels returns the vector code of the engine's own choice.
func newKernels[T gemm.Float](eng *gemm.Engine) kernels[T] {
	var k kernels[T]
	switch eng.Kernels() {
	case "avx512":
		k.set = avx512
		k.level2 = pick[T](&level2[float32]{sDots1AVX512, sDots4AVX512, sAxpys1AVX512, sAxpys4AVX512, sSymv1AVX512, sSymv4AVX512, sRotateAVX512},
			&level2[float64]{dDots1AVX512, dDots4AVX512, dAxpys1AVX512, dAxpys4AVX512, dSymv1AVX512, dSymv4AVX512, dRotateAVX512})
	case "avx2":
		k.set = avx2
		k.level2 = pick[T](&level2[float32]{sDots1AVX2, sDots4AVX2, sAxpys1AVX2, sAxpys4AVX2, sSymv1AVX2, sSymv4AVX2, sRotateAVX2},
			&level2[float64]{dDots1AVX2, dDots4AVX2, dAxpys1AVX2, dAxpys4AVX2, dSymv1AVX2, dSymv4AVX2, dRotateAVX2})
	}
	return k
}

// pick returns the table of the element type T.
func pick[T gemm.Float](s *level2[float32], d *level2[float64]) *level2[T] {
	if t, ok := any(s).(*level2[T]); ok {
		return t
	}
	t, _ := any(d).(*level2[T])
	return t
}

func (k kernelSet) secular(d, z2 []float64, origin, offset float64) (sum, slope float64) {
	n := len(d)
	if k == portable || n == 0 {
		return secularGeneric(d, z2, origin, offset)
	}
	_ = z2[n-1]
	var out [2]float64
	if k == avx512 {
		dSecularAVX512(n, &d[0], &z2[0], origin, offset, &out[0])
		return out[0], out[1]
	}
	dSecularAVX2(n, &d[0], &z2[0], origin, offset, &out[0])
	rest := n &^ 3
	sum, slope = secularGeneric(d[rest:], z2[rest:n], origin, offset)
	return out[0] + sum, out[1] + slope
}

func (k kernelSet) loewner(prod, d []float64, origin, offset, pole float64) {
	n := len(d)
	if k == portable || n == 0 {
		loewnerGeneric(prod, d, origin, offset, pole)
		return
	}
	_ = prod[n-1]
	if k == avx512 {
		dLoewnerAVX512(n, &prod[0], &d[0], origin, offset, pole)
		return
	}
	dLoewnerAVX2(n, &prod[0], &d[0], origin, offset, pole)
	rest := n &^ 3
	loewnerGeneric(prod[rest:], d[rest:], origin, offset, pole)
}

// vector is vectorGeneric in the set's code.
func vector[T gemm.Float](k kernelSet, out []T, d, z []float64, origin, offset float64) float64 {
	n := len(d)
	if k == portable || n == 0 {
		return vectorGeneric(out, d, z, origin, offset)
	}
	_, _ = out[n-1], z[n-1]
	var sum float64
	o := unsafe.Pointer(&out[0])
	single := unsafe.Sizeof(out[0]) == 4
	switch {
	case k == avx512 && single:
		sVectorAVX512(n, (*float32)(o), &d[0], &z[0], origin, offset, &sum)
		return sum
	case k == avx512:
		dVectorAVX512(n, (*float64)(o), &d[0], &z[0], origin, offset, &sum)
		return sum
	case single:
		sVectorAVX2(n, (*float32)(o), &d[0], &z[0], origin, offset, &sum)
	default:
		dVectorAVX2(n, (*float64)(o), &d[0], &z[0], origin, offset, &sum)
	}
	rest := n &^ 3
	return sum + vectorGeneric(out[rest:], d[rest:], z[rest:], origin, offset)
}
