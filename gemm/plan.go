package gemm

import "unsafe"

// planFor decides how to cut p up. The depth of a slice, which alone decides the
// rounding, depends on k only; packing depends on the whole product; the grid of
// chunks also on the number of threads.
//
// Packing an operand costs one pass over it and pays when the operand is larger
// than the caches or has a stride that maps its rows to the same cache lines, and
// when enough tiles use it.
func (f *family[T]) planFor(p *product[T], threads int) plan {
	q := plan{
		packA: p.n >= 6*f.lanes && (p.n >= 12*f.lanes && p.m*p.k > f.inPlaceA || aliased(p.lda) && p.k*p.m > f.inPlaceA/8),
		packB: p.tb || p.m >= 3*f.rows[1] && (p.k*p.n > f.inPlaceB || aliased(p.ldb) && p.k*p.n > f.inPlaceB/8),
	}
	slices := ceil(p.k, f.kc)
	q.depth = min(p.k, (ceil(p.k, slices)+3)&^3)
	q.mchunks, q.nchunks = f.grid(p, threads)
	q.height = ceil(p.m, q.mchunks)
	q.ahead = q.packB && p.k*p.n > f.inPlaceB
	return q
}

// aliased reports whether rows ld elements apart fall on few cache sets.
func aliased(ld int) bool { return ld%512 == 0 }

// grid returns the chunks of rows and of columns. One thread takes blocks as high
// as the cache allows. More threads get at least two chunks each, to even out
// their speeds, of columns first since each chunk packs its own columns of b,
// but none so small that handing it out shows.
func (f *family[T]) grid(p *product[T], threads int) (mchunks, nchunks int) {
	mchunks = ceil(p.m, f.mc)
	if threads == 1 {
		return mchunks, 1
	}
	const least = 100_000 // multiply-adds of a chunk
	want := min(2*threads, p.m*p.n*p.k/least)
	if mchunks >= want {
		return mchunks, 1
	}
	wide := p.n / (f.vectors * f.lanes)
	if p.m >= 8*f.mc/4 || p.m >= 4*p.n {
		return max(mchunks, min(want, ceil(p.m, 4*f.rows[1]))), 1
	}
	nchunks = max(1, min(ceil(want, mchunks), max(wide, ceil(p.n, 2*f.lanes))))
	return max(mchunks, min(ceil(want, nchunks), ceil(p.m, 2*f.rows[1]))), nchunks
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
