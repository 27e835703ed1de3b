//go:build amd64 && !noasm

package gemm

import "github.com/klauspost/cpuid/v2"

// best is the fastest kernel set of this CPU.
func best() Kernel {
	switch {
	case cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512DQ, cpuid.AVX512BW, cpuid.AVX512VL, cpuid.BMI2, cpuid.FMA3):
		return AVX512
	case cpuid.CPU.Supports(cpuid.AVX2, cpuid.FMA3, cpuid.BMI2, cpuid.POPCNT):
		return AVX2
	}
	return Generic
}

// families returns the kernels of k.
func families(k Kernel) (*family[float32], *family[float64]) {
	switch k {
	case AVX512:
		return familySAVX512(), familyDAVX512()
	case AVX2:
		return familySAVX2(), familyDAVX2()
	}
	return genericFamily[float32](), genericFamily[float64]()
}

func familySAVX512() *family[float32] {
	return &family[float32]{
		mr: 14, nr: 32, half: 16,
		byRow: sTilesByRowFullAVX512(), byCol: sTilesByColFullAVX512(),
		byRowHalf: sTilesByRowHalfAVX512(), byColHalf: sTilesByColHalfAVX512(),
		copyPanel: copyWith(sCopyAVX512), turnPanel: turnWith(sTurnsAVX512()),
		kc: 512, mc: 256, nc: 256,
	}
}

func familyDAVX512() *family[float64] {
	return &family[float64]{
		mr: 14, nr: 16, half: 8,
		byRow: dTilesByRowFullAVX512(), byCol: dTilesByColFullAVX512(),
		byRowHalf: dTilesByRowHalfAVX512(), byColHalf: dTilesByColHalfAVX512(),
		copyPanel: copyWith(dCopyAVX512), turnPanel: turnWith(dTurnsAVX512()),
		kc: 512, mc: 256, nc: 256,
	}
}

func familySAVX2() *family[float32] {
	return &family[float32]{
		mr: 6, nr: 16, half: 8,
		byRow: sTilesByRowFullAVX2(), byCol: sTilesByColFullAVX2(),
		byRowHalf: sTilesByRowHalfAVX2(), byColHalf: sTilesByColHalfAVX2(),
		copyPanel: copyWith(sCopyAVX2), turnPanel: turnWith(sTurnsAVX2()),
		kc: 512, mc: 256, nc: 256,
	}
}

func familyDAVX2() *family[float64] {
	return &family[float64]{
		mr: 6, nr: 8, half: 4,
		byRow: dTilesByRowFullAVX2(), byCol: dTilesByColFullAVX2(),
		byRowHalf: dTilesByRowHalfAVX2(), byColHalf: dTilesByColHalfAVX2(),
		copyPanel: copyWith(dCopyAVX2), turnPanel: turnWith(dTurnsAVX2()),
		kc: 512, mc: 256, nc: 256,
	}
}

// copyWith adapts an assembly kernel to family.copyPanel.
func copyWith[T Float](kernel func(*T, int, *T, int, int, int, int)) func([]T, int, []T, int, int, int, int) {
	return func(dst []T, ldd int, src []T, lds, depth, width, pad int) {
		_, _ = dst[(depth-1)*ldd+pad-1], src[(depth-1)*lds+width-1]
		kernel(&dst[0], ldd, &src[0], lds, depth, width, pad)
	}
}

// turnWith adapts assembly kernels, indexed by the rows that each transposes, to
// family.turnPanel. Rows beyond the last kernel's go to a second call.
func turnWith[T Float](kernels []func(*T, int, *T, int, int, int, int)) func([]T, int, []T, int, int, int, int) {
	lanes := len(kernels) - 1
	return func(dst []T, ldd int, src []T, lds, depth, width, pad int) {
		_, _ = dst[(depth-1)*ldd+pad-1], src[(width-1)*lds+depth-1]
		for at := 0; at < width; at += lanes {
			w := min(lanes, width-at)
			kernels[w](&dst[at], ldd, &src[at*lds], lds, depth, w, min(lanes, pad-at))
		}
	}
}
