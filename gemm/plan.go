package gemm

import "unsafe"

// planFor decides how to cut p up. The depth of a slice, which alone decides the
// rounding, depends on k and its parts only; packing depends on the whole product; chunks also on the
// number of threads.
//
// Packing b costs one pass over it and pays when b is larger than the caches or has
// a stride that maps its rows to the same cache lines, and enough tiles use it. Rows
// of a are used in place: a tile of them passes by all panels of a block. Columns of
// a, when a is transposed, are packed where they are far apart. When k has parts, the
// packed columns of b serve one block of rows after the other, so that the rows of c stay
// in the second-level cache while the parts are added up.
func (f *family[T]) planFor(p *product[T], threads int) plan {
	q := plan{mchunks: 1, nchunks: 1}
	q.packB = p.tb || p.m >= 3*f.rows[1] && (p.k*p.n > f.inPlaceB || aliased(p.ldb) && p.k*p.n > f.inPlaceB/8)
	q.packA = q.packB && p.ta && p.n >= 12*f.lanes && (p.m*p.k > f.inPlaceA || aliased(p.lda) && p.k*p.m > f.inPlaceA/8)
	long := p.longest()
	q.depth = min(long, (ceil(long, ceil(long, f.kc))+3)&^3)
	q.height = f.mc
	if q.packA && long < p.k && ceil(p.n, f.lanes)*f.lanes*p.k <= f.blockColumns()*f.kc {
		q.keepB, q.height = true, f.keepRows
	}
	if threads > 1 {
		f.spread(p, &q, threads)
	}
	return q
}

// spread cuts p into chunks for more than one thread: one each, along the dimension
// along which they pack least, since every chunk packs what it needs; columns when b
// is in place or of a triangle. Large products and chunks that fill a packed block are
// cut further and handed out one by one, to even out the speeds of the threads.
func (f *family[T]) spread(p *product[T], q *plan, threads int) {
	const (
		least = 100_000     // multiply-adds worth handing out
		large = 400_000_000 // multiply-adds of a thread, of which it may lose a slice to others
	)
	want := min(threads, p.m*p.n*p.k/least)
	columns, rows := p.n/threads, p.n
	if q.packA { // narrow panels: an element costs more than one of b
		columns, rows = columns+2*p.m, rows+2*p.m/threads
	}
	if !p.lower && (q.packB && rows < columns || p.n < 2*f.lanes*want) {
		q.mchunks = max(1, min(want, p.m/(2*f.rows[1])))
		return
	}
	q.nchunks = max(1, min(want, p.n/(2*f.lanes)))
	if q.packB && !q.packA && p.m*p.n*p.k/threads > large {
		q.nchunks = max(q.nchunks, min(2*threads, p.n/(4*f.lanes)))
	}
	if blocks := p.n / f.blockColumns() / threads * threads; q.packB && !q.packA && !p.lower {
		q.nchunks = max(q.nchunks, min(blocks, 4*threads))
	}
}

// aliased reports whether rows ld elements apart fall on few cache sets.
func aliased(ld int) bool { return ld%512 == 0 }

// hugeSize is the size in bytes of a huge page on the systems that have them.
const hugeSize = 2 << 20

// OnHugePages asks the system for huge pages under x and returns x. Products of large
// matrices wait less for address translation then, most of all in a virtual machine,
// where a translation that is not at hand costs two walks. A slice that fills at least
// two gets those that it fills; a smaller one those that it reaches into, so that
// neighbours share them. It must be called before x is first written, does nothing to
// small slices and where there is no such request, and cannot fail.
func OnHugePages[E any](x []E) []E {
	var e E
	size := len(x) * int(unsafe.Sizeof(e))
	switch {
	case size >= 2*hugeSize:
		start := uintptr(unsafe.Pointer(&x[0]))
		skip := -start % hugeSize
		adviseHuge(start+skip, (uintptr(size)-skip)/hugeSize*hugeSize)
	case size >= hugeSize/8:
		adviseAround(uintptr(unsafe.Pointer(&x[0])), size)
	}
	return x
}

// adviseAround asks for the huge pages that size bytes from start on reach into.
func adviseAround(start uintptr, size int) {
	first := start / hugeSize * hugeSize
	adviseHuge(first, uintptr(ceil(int(start-first)+size, hugeSize))*hugeSize)
}

// aligned returns n zeros that start at a cache line. Where they fill a good part of a
// huge page, the system is asked for huge pages under them and what lies around them:
// rounding them up to whole ones would cost more memory than they have.
func aligned[T Float](n int) []T {
	const line = 64
	var v T
	size := int(unsafe.Sizeof(v))
	buf := make([]T, n+line/size)
	skip := int(-uintptr(unsafe.Pointer(&buf[0])) % line / uintptr(size))
	buf = buf[skip : skip+n : skip+n]
	if n*size >= hugeSize/4 {
		adviseAround(uintptr(unsafe.Pointer(&buf[0])), n*size)
	}
	return buf
}
