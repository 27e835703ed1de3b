package gemm

import "unsafe"

// planFor decides how to cut p up. The depth of a slice, which alone decides the
// rounding, depends on k only; packing depends on the whole product; the grid of
// chunks also on the number of threads.
//
// Packing b costs one pass over it and pays when b is larger than the caches or has
// a stride that maps its rows to the same cache lines, and enough tiles use it. Rows
// of a are used in place: a tile of them passes by all panels of a block. Columns of
// a, when a is transposed, are packed where they are far apart.
func (f *family[T]) planFor(p *product[T], threads int) plan {
	q := plan{packB: p.tb || p.m >= 3*f.rows[1] && (p.k*p.n > f.inPlaceB || aliased(p.ldb) && p.k*p.n > f.inPlaceB/8)}
	q.packA = p.ta && p.n >= 12*f.lanes && (p.m*p.k > f.inPlaceA || aliased(p.lda) && p.k*p.m > f.inPlaceA/8)
	slices := ceil(p.k, f.kc)
	q.depth = min(p.k, (ceil(p.k, slices)+3)&^3)
	q.mchunks, q.nchunks = f.grid(p, threads)
	return q
}

// aliased reports whether rows ld elements apart fall on few cache sets.
func aliased(ld int) bool { return ld%512 == 0 }

// grid returns the chunks of rows and of columns. More than one thread get at
// least two chunks each, to even out their speeds: of columns first, since each
// chunk packs its own columns of b, but none so small that handing it out shows.
func (f *family[T]) grid(p *product[T], threads int) (mchunks, nchunks int) {
	if threads == 1 {
		return 1, 1
	}
	const least = 100_000 // multiply-adds of a chunk
	want := max(1, min(2*threads, p.m*p.n*p.k/least))
	narrow := 4 * f.vectors * f.lanes // columns that still share a tile of rows well
	if p.m*p.n*p.k <= 4*threads*least {
		narrow = 2 * f.lanes
	}
	nchunks = max(1, min(want, p.n/narrow))
	mchunks = max(1, min(ceil(want, nchunks), p.m/(2*f.rows[1])))
	return mchunks, nchunks
}

// aligned returns n zeros that start at a cache line.
func aligned[T Float](n int) []T {
	const line = 64
	var v T
	size := int(unsafe.Sizeof(v))
	buf := make([]T, n+line/size)
	skip := int(-uintptr(unsafe.Pointer(&buf[0])) % line / uintptr(size))
	return buf[skip : skip+n : skip+n]
}
