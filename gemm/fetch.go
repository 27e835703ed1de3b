package gemm

import "unsafe"

// fetcher hands each tile call memory to fetch into the second-level cache: what
// the next panel will read, so that packing it and storing to it does not wait
// for the third level. A call fetches one line for two steps of k.
type fetcher[T Float] struct {
	areas [2]area[T]
	depth int // of the slice
}

// area is a block of rows to fetch, one column of lines after the other.
type area[T Float] struct {
	x          []T
	ld         int // elements between rows
	rows, cols int // cols counts lines
	line, row  int // next
}

// perLine is how many elements a cache line holds.
func perLine[T Float]() int {
	var v T
	return 64 / int(unsafe.Sizeof(v))
}

// reset sets the areas for the panel that starts at column c1 of rows [i0, i1).
func (f *fetcher[T]) reset(j *job[T], i0, i1, c1, end, k0, kn int) {
	f.depth = kn
	f.areas = [2]area[T]{}
	if !j.fetch || c1 >= end {
		return
	}
	width := min(j.panel(end-c1)*j.lanes, end-c1)
	lines := ceil(width, perLine[T]())
	if !j.tb {
		f.areas[0] = area[T]{x: j.opB(k0, c1), ld: j.ldb, rows: kn, cols: lines}
	}
	if j.lower {
		i0 = max(i0, c1)
	}
	if i0 < i1 {
		f.areas[1] = area[T]{x: j.c[i0*j.ldc+c1:], ld: j.ldc, rows: i1 - i0, cols: lines}
	}
}

// next points t at what to fetch and returns how many of the count tiles left to
// run with it.
func (f *fetcher[T]) next(t *tile[T], count int) int {
	for i := range f.areas {
		a := &f.areas[i]
		if a.line == a.cols {
			continue
		}
		t.ahead, t.step = a.x[a.row*a.ld+a.line*perLine[T]():], a.ld
		a.row += max(1, f.depth/2)
		if a.row >= a.rows {
			a.row, a.line = 0, a.line+1
		}
		return 1
	}
	t.ahead, t.step = t.b[:1], 0
	return count
}
