package gemm

import "unsafe"

// planFor decides how to cut p up.
func (f *family[T]) planFor(p *product[T]) plan {
	q := plan{packA: true, packB: true}
	slices := ceil(p.k, f.kc)
	q.depth = min(p.k, (ceil(p.k, slices)+3)&^3)
	q.mchunks = ceil(p.m, f.mc)
	q.nchunks = ceil(p.n, f.nc)
	q.height = ceil(p.m, q.mchunks)
	return q
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
