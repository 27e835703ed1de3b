package gemm

import "math/bits"

// Note: tree of groups. Parts of k in groups are summed like the leaves of a binary
// tree over all numbers from 0 on: a group's parts from left to right, then two
// neighbours before either meets a third, when the third lies outside of the smallest
// aligned range of a power of two that holds both. Groups without parts count as
// nothing. So whoever has the groups of an aligned range has the same partial sum.
//
// A stack of levels does it in one walk over k, as a binary counter counts: level 0 is
// c, the others are scratch of the lane, as large as what the lane works on at a time,
// so that they stay in the second-level cache.

// step is what becomes of the product of one slice of k.
type step struct {
	level  int  // that takes it
	add    bool // to what the level holds
	merges int  // then so many levels are added to the ones before them, the last first
}

// treeSteps appends a step for each slice, of which every part has per, and returns
// the number of levels. onto leaves what c holds in the sum, as its first operand.
func treeSteps(steps []step, groups []int, per int, onto bool) (all []step, levels int) {
	var last [bits.UintSize + 1]int // group of each level that was added last
	n := 0
	if onto {
		last[0], n = -1, 1 // joins the others when they are one
	}
	for s := range len(groups) * per {
		group, next := groups[s/per], -1
		if s+1 < len(groups)*per {
			next = groups[(s+1)/per]
		}
		st := step{level: n - 1, add: true}
		switch {
		case n > 0 && last[n-1] == group:
		case n > 0 && next != group && Meet(last[n-1], group, next): // at once: nothing else is in the group
			last[n-1] = group
		default:
			st = step{level: n}
			last[n] = group
			n++
		}
		levels = max(levels, n)
		for ; n > 1 && Meet(last[n-2], last[n-1], next); n-- {
			last[n-2] = last[n-1]
			st.merges++
		}
		steps = append(steps, st)
	}
	return steps, levels
}

// Meet is the rule of [MulTree]: whether two neighbouring sums, whose last groups are a
// and b, are added before the group next comes, which is -1 at the end. Others that add
// in the same order ask it, too.
func Meet(a, b, next int) bool {
	return next < 0 || bits.Len(uint(a^b)) < bits.Len(uint(b^next))
}

// levelSize is the number of elements of a level, and levelRows the fewest rows, for
// which the rows of a block are cut: packed columns of b must serve many.
const (
	levelSize = 128 << 10
	levelRows = 256
)

// planTree plans the steps of a product whose parts are in groups.
func (j *job[T]) planTree(groups []int) {
	j.s.steps, j.levels = treeSteps(j.s.steps[:0], groups, ceil(j.part, j.depth), j.beta != 0)
	j.steps = j.s.steps
}

// treeRows is the most rows of a block of cols columns.
func (j *job[T]) treeRows(rows, cols int) int {
	if j.steps == nil || j.packA {
		return rows
	}
	return min(rows, max(levelRows, levelSize/(ceil(cols, j.lanes)*j.lanes)))
}

// reserveLevels makes the scratch levels of one worker.
func (j *job[T]) reserveLevels(l *lane[T]) {
	rows, cols := ceil(j.m, j.mchunks), ceil(ceil(j.n, j.lanes), j.nchunks)*j.lanes
	size := 0
	switch {
	case j.packA:
		size = min(rows, j.height) * cols
	case j.packB:
		cols = min(cols, j.blockColumns())
		fallthrough
	default:
		size = min(rows*cols, max(levelRows*cols, levelSize))
	}
	for len(l.levels) < j.levels {
		l.levels = append(l.levels, nil)
	}
	for i := 1; i < j.levels; i++ {
		l.levels[i] = grow(l.levels[i], size)
	}
}

// target sets where the product of a block goes. Columns of a level start at column
// first.
func (j *job[T]) target(b *block, slice, first, cols int) {
	b.mode = j.mode(b.k0 == 0)
	if j.steps == nil {
		return
	}
	b.step = j.steps[slice]
	b.mode = j.mode(false)
	if !b.step.add {
		b.mode &^= modeAdd
	}
	b.first, b.ld = first, ceil(cols, j.lanes)*j.lanes
	b.top = b.i0
}

// at returns a level from element (i, j) on, and its stride.
func (j *job[T]) at(l *lane[T], b *block, level, i, col int) ([]T, int) {
	if level == 0 {
		return j.c[i*j.ldc+col:], j.ldc
	}
	return l.levels[level][(i-b.top)*b.ld+col-b.first:], b.ld
}

// merge adds levels to the ones before them as the step of the block says.
func (j *job[T]) merge(l *lane[T], b *block) {
	for level := b.step.level; level > b.step.level-b.step.merges; level-- {
		src, lds := j.at(l, b, level, b.i0, b.j0)
		dst, ldd := j.at(l, b, level-1, b.i0, b.j0)
		if level == 1 {
			raceWrite(dst, ldd, b.i1-b.i0, b.j1-b.j0)
		}
		j.addBlock(l, dst, ldd, src, lds, b.i1-b.i0, b.j1-b.j0)
	}
}

// addBlock adds rows×cols elements of src to dst: products of depth one with 1, panel by
// panel, of which a row is a tile.
func (j *job[T]) addBlock(l *lane[T], dst []T, ldd int, src []T, lds, rows, cols int) {
	t := &l.t
	l.one[0] = 1
	t.a, t.lda, t.astep, t.rows, t.k, t.mode = l.one[:], 1, 0, 1, 1, modeAdd
	t.count, t.bstep, t.cstep, t.ldb, t.ldc = rows, lds, ldd, lds, ldd
	for c := 0; c < cols; c += t.width {
		v := j.panel(cols - c)
		t.width = min(v*j.lanes, cols-c)
		t.b, t.c = src[c:], dst[c:]
		j.byRow[v][1](t)
	}
}
