package nvmepage

import "slices"

// extent is a range of a data file.
type extent struct{ off, n int64 }

// extents hands out ranges of a file: first fit over a list of free ranges in the
// order of their offsets, merged with their neighbours when they come back.
type extents struct {
	size int64 // bytes of the file that were allocated so far
	free []extent
}

// take returns a range of n bytes, or false when the file must grow.
func (e *extents) take(n int64) (int64, bool) {
	for i, f := range e.free {
		if f.n < n {
			continue
		}
		if f.n == n {
			e.free = slices.Delete(e.free, i, i+1)
		} else {
			e.free[i] = extent{f.off + n, f.n - n}
		}
		return f.off, true
	}
	return 0, false
}

// give returns a range.
func (e *extents) give(off, n int64) {
	i, _ := slices.BinarySearchFunc(e.free, off, func(f extent, off int64) int {
		return int(min(max(f.off-off, -1), 1))
	})
	e.free = slices.Insert(e.free, i, extent{off, n})
	if i+1 < len(e.free) && off+n == e.free[i+1].off {
		e.free[i].n += e.free[i+1].n
		e.free = slices.Delete(e.free, i+1, i+2)
	}
	if i > 0 && e.free[i-1].off+e.free[i-1].n == off {
		e.free[i-1].n += e.free[i].n
		e.free = slices.Delete(e.free, i, i+1)
	}
}

// need returns how much the file must grow so that n bytes fit at its end.
func (e *extents) need(n int64) int64 {
	if k := len(e.free); k > 0 && e.free[k-1].off+e.free[k-1].n == e.size {
		return n - e.free[k-1].n
	}
	return n
}

// grow records that the file is n bytes longer.
func (e *extents) grow(n int64) {
	e.size += n
	e.give(e.size-n, n)
}
