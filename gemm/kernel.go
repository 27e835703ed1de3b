package gemm

import (
	"errors"
	"fmt"
)

// Kernel names a kernel set.
type Kernel int

// The kernel sets. Auto is the best one that this CPU and build have.
const (
	Auto Kernel = iota
	Generic
	AVX2
	AVX512
	NEON
)

// String returns the name that [Engine.Kernels] reports.
func (k Kernel) String() string {
	switch k {
	case Auto:
		return "auto"
	case Generic:
		return "generic"
	case AVX2:
		return "avx2"
	case AVX512:
		return "avx512"
	case NEON:
		return "neon"
	}
	return fmt.Sprintf("Kernel(%d)", int(k))
}

// check reports whether k can run here.
func (k Kernel) check() error {
	switch {
	case k < Auto || k > NEON:
		return fmt.Errorf("gemm: Kernel is %d, want Auto, Generic, AVX2, AVX512 or NEON", int(k))
	case !k.available():
		return fmt.Errorf("gemm: kernel set %v is not on this CPU or in this build: %w", k, errors.ErrUnsupported)
	}
	return nil
}

// available reports whether this CPU and build have k. A set includes the smaller ones
// of its processors; NEON is the only one of its own.
func (k Kernel) available() bool {
	if k <= Generic || k == best() {
		return true
	}
	return k < best() && best() != NEON
}

// resolve turns Auto into the set that it stands for.
func (k Kernel) resolve() Kernel {
	if k == Auto {
		return best()
	}
	return k
}

// Store modes of a tile, combined by or: the product is scaled by alpha first,
// then C is added, or beta times C, or nothing.
const (
	modeScale = 1 << iota // multiply the product by alpha
	modeAdd               // add c
	modeBeta              // add beta*c
	modeLower             // store only columns <= row + diag
)

// tile is one kernel call: count tiles of rows×width elements of C, below each
// other or side by side as the steps say. The assembly reads it by offset (see tileOffsets in _gen).
type tile[T Float] struct {
	a, b, c []T // from the first element to use
	lda     int // elements: between rows of a, or between its columns when k-major
	ldb     int // elements between rows of b
	ldc     int // elements between rows of c
	k       int // depth, >= 1
	count   int // tiles, >= 1
	astep   int // elements between tiles in a
	width   int // columns, 1 to the family's nr
	mode    int
	diag    int // modeLower: last column stored in the first row, >= -16
	rows    int // rows of one tile, 1 to the family's limit for the width
	bstep   int // elements between tiles in b
	cstep   int // elements between tiles in c
	ahead   []T // what kernels for row-major a fetch into the cache meanwhile
	pace    int // bytes of ahead from one fetch to the next, in two steps of k; 0: none
	alpha   T
	beta    T
}

// panels are copied by one call: count of them, dst and src elements apart.
type panels struct{ count, dst, src int }

// family is a kernel set for one element type, with the blocking that suits it.
// Every kernel forms an element as one chain of multiply-adds over k in order, so
// that results depend on the slices of k only, not on tiles, panels or threads.
type family[T Float] struct {
	lanes   int // columns of a vector; panels are 1 to vectors of them wide
	vectors int
	rows    []int // most rows of a tile, by vectors of the panel
	masked  bool  // kernels read partial vectors of b in place

	// byRow and byCol hold the kernels for row-major and k-major a, by vectors and rows.
	byRow, byCol [][]func(*tile[T])

	// leaf is the largest order of the triangular kernels solve and times, which
	// are indexed by order and take panels of up to two vectors.
	leaf         int
	solve, times []func(*wedge[T])

	// copyPanels sets dst[r*ldd+x] = src[r*lds+x] for r < depth, x < width, and
	// zero for x in [width, pad), in each of some panels.
	copyPanels func(dst []T, ldd int, src []T, lds, depth, width, pad int, p panels)
	// turnPanel sets dst[r*ldd+x] = src[x*lds+r] likewise in one.
	turnPanel func(dst []T, ldd int, src []T, lds, depth, width, pad int)
	// peak does n rounds of multiply-adds and returns their number: the ceiling.
	peak func(n int) (madds int)

	blocking
}

// blocking is the tuning of a family.
type blocking struct {
	kc int // depth of a slice
	mc int // rows of a that are packed together
	nc int // columns of b that are packed together; nc×kc stay in the second-level cache

	// keepRows is the rows of a that are packed together when all slices of b are kept.
	keepRows int

	// Elements up to which an operand is used where it lies.
	inPlaceA, inPlaceB int
}
