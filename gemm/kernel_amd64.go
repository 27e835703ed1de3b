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
		lanes: 16, vectors: 3, rows: []int{0, 14, 14, 9},
		byRow: [][]func(*tile[float32]){nil, sTilesByRow1AVX512(), sTilesByRow2AVX512(), sTilesByRow3AVX512()},
		byCol: [][]func(*tile[float32]){nil, sTilesByCol1AVX512(), sTilesByCol2AVX512(), sTilesByCol3AVX512()},
		leaf:  14, solve: sSolveKernelsAVX512(), times: sTimesKernelsAVX512(),
		copyPanels: copyWith(sCopyAVX512), turnPanel: turnWith(sTurnsAVX512()),
		peak:     func(n int) int { sPeakAVX512(n); return n * 12 * 16 },
		blocking: blocking{kc: 512, mc: 2048, nc: 528, keepRows: 180, inPlaceA: 160 << 10, inPlaceB: 96 << 10},
	}
}

func familyDAVX512() *family[float64] {
	return &family[float64]{
		lanes: 8, vectors: 3, rows: []int{0, 14, 14, 9},
		byRow: [][]func(*tile[float64]){nil, dTilesByRow1AVX512(), dTilesByRow2AVX512(), dTilesByRow3AVX512()},
		byCol: [][]func(*tile[float64]){nil, dTilesByCol1AVX512(), dTilesByCol2AVX512(), dTilesByCol3AVX512()},
		leaf:  14, solve: dSolveKernelsAVX512(), times: dTimesKernelsAVX512(),
		copyPanels: copyWith(dCopyAVX512), turnPanel: turnWith(dTurnsAVX512()),
		peak:     func(n int) int { dPeakAVX512(n); return n * 12 * 8 },
		blocking: blocking{kc: 512, mc: 1024, nc: 264, keepRows: 180, inPlaceA: 80 << 10, inPlaceB: 48 << 10},
	}
}

func familySAVX2() *family[float32] {
	return &family[float32]{
		lanes: 8, vectors: 2, rows: []int{0, 6, 6},
		byRow: [][]func(*tile[float32]){nil, sTilesByRow1AVX2(), sTilesByRow2AVX2()},
		byCol: [][]func(*tile[float32]){nil, sTilesByCol1AVX2(), sTilesByCol2AVX2()},
		leaf:  6, solve: sSolveKernelsAVX2(), times: sTimesKernelsAVX2(),
		copyPanels: copyWith(sCopyAVX2), turnPanel: turnWith(sTurnsAVX2()),
		peak:     func(n int) int { sPeakAVX2(n); return n * 12 * 8 },
		blocking: blocking{kc: 256, mc: 2048, nc: 256, keepRows: 180, inPlaceA: 48 << 10, inPlaceB: 48 << 10},
	}
}

func familyDAVX2() *family[float64] {
	return &family[float64]{
		lanes: 4, vectors: 2, rows: []int{0, 6, 6},
		byRow: [][]func(*tile[float64]){nil, dTilesByRow1AVX2(), dTilesByRow2AVX2()},
		byCol: [][]func(*tile[float64]){nil, dTilesByCol1AVX2(), dTilesByCol2AVX2()},
		leaf:  6, solve: dSolveKernelsAVX2(), times: dTimesKernelsAVX2(),
		copyPanels: copyWith(dCopyAVX2), turnPanel: turnWith(dTurnsAVX2()),
		peak:     func(n int) int { dPeakAVX2(n); return n * 12 * 4 },
		blocking: blocking{kc: 256, mc: 1024, nc: 128, keepRows: 180, inPlaceA: 24 << 10, inPlaceB: 24 << 10},
	}
}

// copyWith adapts an assembly kernel to family.copyPanels.
func copyWith[T Float](kernel func(*T, int, *T, int, int, int, int, int, int, int)) func([]T, int, []T, int, int, int, int, panels) {
	return func(dst []T, ldd int, src []T, lds, depth, width, pad int, p panels) {
		_, _ = dst[(p.count-1)*p.dst+(depth-1)*ldd+pad-1], src[(p.count-1)*p.src+(depth-1)*lds+width-1]
		kernel(&dst[0], ldd, &src[0], lds, depth, width, pad, p.count, p.dst, p.src)
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
