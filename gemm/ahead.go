package gemm

import "unsafe"

// packer packs the next panel of b in parts between the tiles of this one. While
// a tile runs, its kernel fetches the lines of the next part into the second-level
// cache, so that packing does not wait for the third. Packing a whole panel at once
// would: a panel is read only a few dozen times, and its rows, often a power of two
// apart, do not fit the cache's sets.
type packer[T Float] struct {
	active bool
	dst    []T
	ld     int // of dst
	w      walk
	width  int
	part   int // rows of the panel a part has
	lines  int // columns of lines a part has; a tile fetches one
	line   int // next one
	done   int // rows packed
}

// prepare sets p to pack panel next during panel w.
func (j *job[T]) prepare(p *packer[T], dst []T, w, next *walk) {
	p.active = j.ahead && next.kn > 0 && j.packs(next)
	if !p.active {
		return
	}
	p.dst, p.ld, p.w, p.width = dst, next.vectors*j.lanes, *next, j.width(next)
	p.line, p.done = 0, 0
	rows := w.i1 - w.i0
	if j.lower {
		rows = max(1, w.i1-max(w.i0, w.c0))
	}
	tiles := ceil(rows, j.tileRows(w.vectors))
	per := perLine[T]()
	if j.tb {
		p.lines = 1
		p.part = ceil(ceil(next.kn, per), tiles) * per
		return
	}
	p.lines = spannedLines(j.opB(next.k0, next.c0), p.width)
	p.part = ceil(next.kn, max(1, tiles/p.lines))
}

// fetchFor points t at the lines of the next part and reports whether there is one.
func (j *job[T]) fetchFor(p *packer[T], t *tile[T]) bool {
	t.fetch = 0
	if !p.active || p.done >= p.w.kn {
		return false
	}
	left := min(p.part, p.w.kn-p.done)
	t.step = j.ldb
	if j.tb {
		t.ahead, t.fetch = j.opB(p.w.k0+p.done, p.w.c0), p.width
		return true
	}
	at := min(p.line*perLine[T](), p.width-1)
	t.ahead, t.fetch = j.opB(p.w.k0+p.done, p.w.c0+at), left
	return true
}

// packSome packs the part whose last lines were fetched.
func (j *job[T]) packSome(p *packer[T]) {
	if p.line++; p.line == p.lines {
		p.line = 0
		j.packPart(p, min(p.part, p.w.kn-p.done))
	}
}

// finish packs what is left.
func (j *job[T]) finish(p *packer[T]) {
	if p.done < p.w.kn {
		j.packPart(p, p.w.kn-p.done)
	}
	p.active = false
}

// packPart packs the next n rows of the panel.
func (j *job[T]) packPart(p *packer[T], n int) {
	j.packColumns(p.dst[p.done*p.ld:], p.ld, p.w.c0, p.width, p.w.k0+p.done, n)
	p.done += n
}

// perLine is how many elements a cache line holds.
func perLine[T Float]() int {
	var v T
	return 64 / int(unsafe.Sizeof(v))
}

// spannedLines is how many lines the first width elements of x touch.
func spannedLines[T Float](x []T, width int) int {
	per := perLine[T]()
	skip := int(uintptr(unsafe.Pointer(&x[0]))%64) * per / 64
	return ceil(skip+width, per)
}
