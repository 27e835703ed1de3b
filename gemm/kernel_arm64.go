//go:build arm64 && !noasm

package gemm

import "github.com/klauspost/cpuid/v2"

// best is the fastest kernel set of this CPU.
func best() Kernel {
	if cpuid.CPU.Supports(cpuid.FP, cpuid.ASIMD) {
		return NEON
	}
	return Generic
}

// families returns the kernels of k.
func families(k Kernel) (*family[float32], *family[float64]) {
	if k == NEON {
		return familySNEON(), familyDNEON()
	}
	return genericFamily[float32](), genericFamily[float64]()
}

// The blocking fits caches of 64 KiB and 1 MiB, as the Neoverse and Cortex-X cores
// of GH200 and GB10 have them: a panel of b takes 12 KiB, a packed block 252 KiB. It
// follows from sizes alone; no run on such a machine has confirmed it.

func familySNEON() *family[float32] {
	return &family[float32]{
		lanes: 4, vectors: 3, rows: []int{0, 8, 8, 7},
		byRow: [][]func(*tile[float32]){nil, sTilesByRow1NEON(), sTilesByRow2NEON(), sTilesByRow3NEON()},
		byCol: [][]func(*tile[float32]){nil, sTilesByCol1NEON(), sTilesByCol2NEON(), sTilesByCol3NEON()},
		leaf:  8, solve: sSolveKernelsNEON(), times: sTimesKernelsNEON(),
		copyPanels: copyRowsWith(sCopyNEON), turnPanel: turnBlocksWith(4, sTurnNEON),
		peak:     func(n int) int { sPeakNEON(n); return n * 24 * 4 },
		blocking: blocking{kc: 256, mc: 2048, nc: 252, keepRows: 180, inPlaceA: 48 << 10, inPlaceB: 48 << 10},
	}
}

func familyDNEON() *family[float64] {
	return &family[float64]{
		lanes: 2, vectors: 3, rows: []int{0, 8, 8, 7},
		byRow: [][]func(*tile[float64]){nil, dTilesByRow1NEON(), dTilesByRow2NEON(), dTilesByRow3NEON()},
		byCol: [][]func(*tile[float64]){nil, dTilesByCol1NEON(), dTilesByCol2NEON(), dTilesByCol3NEON()},
		leaf:  8, solve: dSolveKernelsNEON(), times: dTimesKernelsNEON(),
		copyPanels: copyRowsWith(dCopyNEON), turnPanel: turnBlocksWith(2, dTurnNEON),
		peak:     func(n int) int { dPeakNEON(n); return n * 24 * 2 },
		blocking: blocking{kc: 256, mc: 1024, nc: 126, keepRows: 180, inPlaceA: 24 << 10, inPlaceB: 24 << 10},
	}
}

// copyRowsWith adapts the copying kernel, which does one panel, to family.copyPanels.
func copyRowsWith[T Float](kernel func(*T, int, *T, int, int, int, int)) func([]T, int, []T, int, int, int, int, panels) {
	return func(dst []T, ldd int, src []T, lds, depth, width, pad int, p panels) {
		_, _ = dst[(p.count-1)*p.dst+(depth-1)*ldd+pad-1], src[(p.count-1)*p.src+(depth-1)*lds+width-1]
		for q := range p.count {
			kernel(&dst[q*p.dst], ldd, &src[q*p.src], lds, depth, width, pad)
		}
	}
}

// turnBlocksWith adapts the kernel that transposes lanes rows in square blocks to
// family.turnPanel. What is left of a block goes the portable way: no arithmetic is
// in it.
func turnBlocksWith[T Float](lanes int, kernel func(dst *T, ldd int, src *T, lds, blocks int)) func([]T, int, []T, int, int, int, int) {
	return func(dst []T, ldd int, src []T, lds, depth, width, pad int) {
		_, _ = dst[(depth-1)*ldd+pad-1], src[(width-1)*lds+depth-1]
		blocks := depth / lanes
		whole, at := blocks*lanes, 0
		for ; blocks > 0 && at+lanes <= width; at += lanes {
			kernel(&dst[at], ldd, &src[at*lds], lds, blocks)
			if whole < depth {
				turnPanel(dst[whole*ldd+at:], ldd, src[at*lds+whole:], lds, depth-whole, lanes, lanes)
			}
		}
		if at < width {
			turnPanel(dst[at:], ldd, src[at*lds:], lds, depth, width-at, pad-at)
		} else if at < pad {
			turnPanel(dst[at:], ldd, nil, lds, depth, 0, pad-at)
		}
	}
}
