package gemm

import (
	"math"
	"sync"
	"sync/atomic"
)

// product is one C = alpha*op(A)*op(B) + beta*C, checked and not trivial.
type product[T Float] struct {
	ta, tb        bool
	lower         bool // only columns <= row of C
	m, n, k       int
	part          int   // k is cut at its multiples, see MulParts; 0: nowhere
	groups        []int // of the parts, see MulTree; nil: no tree
	alpha, beta   T
	a, b, c       []T
	lda, ldb, ldc int
}

// longest is the length of the parts of k, all of it when there is one.
func (p *product[T]) longest() int {
	if p.part == 0 {
		return p.k
	}
	return p.part
}

// mode returns the store mode of a slice of k.
func (p *product[T]) mode(first bool) int {
	mode := 0
	if p.alpha != 1 {
		mode |= modeScale
	}
	switch {
	case !first || p.beta == 1:
		mode |= modeAdd
	case p.beta != 0:
		mode |= modeBeta
	}
	return mode
}

// opA returns a from element (i, l) of op(A).
func (p *product[T]) opA(i, l int) []T {
	if p.ta {
		return p.a[l*p.lda+i:]
	}
	return p.a[i*p.lda+l:]
}

// opB returns b from element (l, j) of op(B).
func (p *product[T]) opB(l, j int) []T {
	if p.tb {
		return p.b[j*p.ldb+l:]
	}
	return p.b[l*p.ldb+j:]
}

// plan is how a product is cut up. Only the chunks depend on the number of threads.
type plan struct {
	packA, packB bool // a only together with b
	keepB        bool // all slices of packed b stay for the next rows of a, which are packed too
	height       int  // rows of a that are packed together
	depth        int  // of a slice of k; the last one of a part may be shorter
	mchunks      int  // chunks of rows
	nchunks      int  // chunks of columns
}

// kit is the kernels of one element type and the scratch of the calls in
// flight. Free scratch is kept for the next call.
type kit[T Float] struct {
	*family[T]
	spare atomic.Pointer[scratch[T]] // the top of free, for the only caller, without a lock
	mu    sync.Mutex
	free  []*scratch[T]
}

// scratch is the state of one call: the job, and a lane a worker.
type scratch[T Float] struct {
	job   job[T]
	batch batchJob[T]
	tri   triangleJob[T]
	rec   recursion[T]
	lanes []*lane[T]
	steps []step
}

// lane is the scratch of one worker. What a call leaves in t and job keeps operands
// alive, until the next call; another thread that cleared them would take the cache
// lines away.
type lane[T Float] struct {
	_      [64]byte
	t      tile[T]
	pa, pb []T   // a block of each operand: of a tile by tile, k-major, of b panel by panel
	edge   []T   // a panel of b that is cut off
	levels [][]T // of a tree; the first stands for c
	one    [1]T
	job    job[T] // of a batch
	_      [64]byte
}

// take returns scratch with a lane for each of threads workers.
func (w *kit[T]) take(threads int) *scratch[T] {
	s := w.spare.Swap(nil)
	if s == nil {
		s = w.pop()
	}
	for len(s.lanes) < threads {
		s.lanes = append(s.lanes, &lane[T]{})
	}
	return s
}

// pop returns free or new scratch.
func (w *kit[T]) pop() *scratch[T] {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.free)
	if n == 0 {
		return &scratch[T]{}
	}
	s := w.free[n-1]
	w.free = w.free[:n-1]
	return s
}

// give takes scratch back. What was given last is taken first: so the calls of one caller,
// also those inside of others, find the buffers that they have grown.
func (w *kit[T]) give(s *scratch[T]) {
	s.job.product = product[T]{}
	below := w.spare.Swap(s)
	if below == nil {
		return
	}
	w.mu.Lock()
	w.free = append(w.free, below)
	w.mu.Unlock()
}

// grow returns buf or a longer one of at least n elements.
func grow[T Float](buf []T, n int) []T {
	if len(buf) >= n {
		return buf
	}
	return aligned[T](n)
}

// job runs a product as a [Task]. Every chunk packs what it needs on its own: what
// another core has packed costs as much to fetch as to pack again.
type job[T Float] struct {
	product[T]
	plan
	*family[T]
	s      *scratch[T]
	steps  []step // of a tree, by slice; nil without
	levels int
	next   following[T]
}

// kitOf returns the engine's kit for T.
func kitOf[T Float](e *Engine) *kit[T] {
	var k any = &e.s
	if w, ok := k.(*kit[T]); ok {
		return w
	}
	k = &e.d
	return k.(*kit[T])
}

// multiply runs p on e.
func multiply[T Float](e *Engine, p *product[T]) {
	w := kitOf[T](e)
	s := w.take(e.threads)
	s.job.begin(w.family, s, p, e.threads)
	if p.groups != nil {
		s.job.planTree(p.groups)
	}
	s.job.run(e)
	w.give(s)
}

// begin makes j the job of p. It sets fields, since to copy a job costs a small product
// a few per cent.
func (j *job[T]) begin(f *family[T], s *scratch[T], p *product[T], threads int) {
	j.product, j.family, j.s = *p, f, s
	j.plan = f.planFor(&j.product, threads)
	j.steps, j.levels, j.next = nil, 0, following[T]{}
}

// run does the job on the threads of e.
func (j *job[T]) run(e *Engine) {
	for _, l := range j.s.lanes {
		j.reserve(l)
	}
	e.Run(j.mchunks*j.nchunks, j)
}

// multiplyOn runs p on the calling goroutine with the scratch of an outer call.
func multiplyOn[T Float](f *family[T], s *scratch[T], p *product[T]) {
	s.job.begin(f, s, p, 1)
	s.job.reserve(s.lanes[0])
	s.job.chunk(s.lanes[0], 0)
}

// reserve makes the buffers of one worker.
func (j *job[T]) reserve(l *lane[T]) {
	if j.packA {
		l.pa = grow(l.pa, min(j.height, j.m)*j.depth)
	}
	if wide := ceil(j.n, j.lanes) * j.lanes; j.keepB {
		l.pb = grow(l.pb, wide*j.k)
	} else if j.packB {
		l.pb = grow(l.pb, min(wide, j.blockColumns())*j.depth)
	} else if j.n%j.lanes != 0 && !j.masked {
		l.edge = grow(l.edge, j.vectors*j.lanes*j.depth)
	}
	if j.levels > 1 {
		j.reserveLevels(l)
	}
}

// Do works on one chunk on a worker's lane.
func (j *job[T]) Do(chunk, worker int) { j.chunk(j.s.lanes[worker], chunk) }

// chunk works on rows [i0, i1) by columns [j0, j1) over all of k.
func (j *job[T]) chunk(l *lane[T], chunk int) {
	b := block{i1: j.m, j1: j.n}
	if j.mchunks*j.nchunks > 1 {
		b.i0, b.i1 = span(j.m, j.mchunks, chunk/j.nchunks)
		b.j0, b.j1 = j.columns(chunk % j.nchunks)
	}
	if j.lower {
		b.i0 = max(b.i0, b.j0) // rows above have no columns here
	}
	switch {
	case b.i0 >= b.i1:
	case !j.packB && j.k == j.depth && j.steps == nil: // one block: a sweep of it costs a small product a few per cent
		b.kn, b.mode = j.k, j.mode(true)
		j.multiplyBlock(l, &b)
	default:
		j.sweep(l, &b)
	}
}

// columns returns the columns of a chunk: equal numbers of them, or, in a lower
// triangle, equal areas.
func (j *job[T]) columns(chunk int) (j0, j1 int) {
	n := ceil(j.n, j.lanes)
	if j.lower {
		j0, j1 = lowerBound(n, j.nchunks, chunk), lowerBound(n, j.nchunks, chunk+1)
	} else {
		j0, j1 = span(n, j.nchunks, chunk)
	}
	return j0 * j.lanes, min(j1*j.lanes, j.n)
}

// lowerBound returns the column where part of a lower triangle of n columns that is
// cut into parts of equal area begins: the columns from x on hold (1-x/n)² of it.
func lowerBound(n, parts, part int) int {
	return n - int(math.Round(float64(n)*math.Sqrt(float64(parts-part)/float64(parts))))
}

// block is a part of a product: rows by columns by a slice of k.
type block struct {
	i0, i1, j0, j1 int
	k0, kn         int
	fresh          bool // a is not packed yet
	kept           bool // b is packed already
	at             int  // of packed b in the lane's buffer
	tiles          int  // that the rows are cut into, when b is packed
	mode           int  // of the store
	step           step // in a tree
	top, first, ld int  // in a tree: first row and column of the levels, and their stride
}

// slices returns the number of slices of k.
func (j *job[T]) slices() int { return j.k / j.longest() * ceil(j.longest(), j.depth) }

// slice returns the first index and the depth of a slice. None reaches over the end of
// a part.
func (j *job[T]) slice(q int) (k0, kn int) {
	part := j.longest()
	per := ceil(part, j.depth)
	in := q % per * j.depth
	return q/per*part + in, min(j.depth, part-in)
}

// blockColumns is how many columns of b are packed together.
func (f *family[T]) blockColumns() int { return ceil(f.nc, f.lanes) * f.lanes }

// sweep works on part, block by block. A packed block of b stays in the second-level
// cache while all rows pass by. The rows of a that were packed for a slice of k serve
// all its blocks of columns.
func (j *job[T]) sweep(l *lane[T], part *block) {
	rows, cols := part.i1-part.i0, part.j1-part.j0
	if j.packA {
		rows = ceil(rows, ceil(rows, j.height))
	}
	if j.packB {
		v := ceil(cols, j.lanes)
		cols = ceil(v, ceil(v*j.lanes, j.blockColumns())) * j.lanes
	}
	rows = j.treeRows(rows, cols)
	slices, stripes := j.slices(), ceil(part.j1-part.j0, cols)
	for i := part.i0; i < part.i1; i += rows {
		for q := range slices * stripes {
			slice, stripe := q%slices, q/slices
			if j.packA {
				slice, stripe = q/stripes, q%stripes
			}
			b := block{i0: i, i1: min(i+rows, part.i1), j0: part.j0 + stripe*cols, fresh: stripe == 0}
			b.j1 = min(b.j0+cols, part.j1)
			b.k0, b.kn = j.slice(slice)
			if j.keepB {
				b.kept, b.at = i > part.i0, stripe*cols*j.k+b.k0*ceil(b.j1-b.j0, j.lanes)*j.lanes
			}
			if j.packA {
				j.target(&b, slice, part.j0, part.j1-part.j0)
			} else {
				j.target(&b, slice, b.j0, b.j1-b.j0)
			}
			j.multiplyBlock(l, &b)
			j.merge(l, &b)
		}
	}
}

// multiplyBlock adds a block of the product to C.
func (j *job[T]) multiplyBlock(l *lane[T], b *block) {
	if j.lower && b.j0 >= b.i1 {
		return
	}
	j.report(b)
	_, ldc := j.at(l, b, b.step.level, b.i0, b.j0)
	l.t.k, l.t.alpha, l.t.beta, l.t.ldc, l.t.pace = b.kn, j.alpha, j.beta, ldc, 0
	if !j.packB {
		j.inPlace(l, b)
		return
	}
	if !b.kept {
		j.packColumns(l.pb[b.at:], b)
	}
	b.tiles = ceil(b.i1-b.i0, j.tileRows(b))
	if j.packA && b.fresh {
		j.packRows(l.pa, b)
	}
	j.along(l, b)
}

// tileRows is the most rows of a tile of a packed block: packed rows suit the widest
// panel of any.
func (j *job[T]) tileRows(b *block) int {
	if j.packA {
		return j.rows[j.vectors]
	}
	return j.rows[j.panel(b.j1-b.j0)]
}

// inPlace is multiplyBlock for operands that are not packed, for as many rows at a
// time as keep their part of a in the second-level cache from one panel of b to the
// next, and a call of the kernel, which covers them, short.
func (j *job[T]) inPlace(l *lane[T], b *block) {
	group := min(max(j.inPlaceA/b.kn, 5*j.rows[1]), 1024)
	first := b.i0
	if j.lower {
		first = max(first, b.j0) // rows above have no columns here
	}
	for r := first; r < b.i1; r += group {
		g := *b
		g.i0, g.i1 = r, min(r+group, b.i1)
		j.down(l, &g)
	}
}

// report tells the race detector what the product of a block reads and writes.
func (j *job[T]) report(b *block) {
	j.reportA(b)
	j.reportB(b)
	if b.step.level > 0 {
		return
	}
	c := j.c[b.i0*j.ldc+b.j0:]
	if j.lower {
		raceWriteLower(c, j.ldc, b.i1-b.i0, b.j1-b.j0, b.i0-b.j0)
		return
	}
	raceWrite(c, j.ldc, b.i1-b.i0, b.j1-b.j0)
}

func (j *job[T]) reportA(b *block) {
	if j.ta {
		raceRead(j.opA(b.i0, b.k0), j.lda, b.kn, b.i1-b.i0)
		return
	}
	raceRead(j.opA(b.i0, b.k0), j.lda, b.i1-b.i0, b.kn)
}

func (j *job[T]) reportB(b *block) {
	if j.tb {
		raceRead(j.opB(b.k0, b.j0), j.ldb, b.j1-b.j0, b.kn)
		return
	}
	raceRead(j.opB(b.k0, b.j0), j.ldb, b.kn, b.j1-b.j0)
}

// along runs the tiles of a packed block, each along all panels before the next, so
// that a and c are read and written in the order of their rows.
func (j *job[T]) along(l *lane[T], b *block) {
	first := b.i0
	if j.lower {
		first = max(first, b.j0)
	}
	for q := range b.tiles {
		r0, r1 := span(b.i1-b.i0, b.tiles, q)
		g := *b
		g.i0, g.i1 = b.i0+r0, b.i0+r1
		if g.i1 > first {
			j.row(l, &g, j.pointA(l, r0, &g))
		}
	}
}

// row runs the panels of one tile of rows: those of full width in one call.
func (j *job[T]) row(l *lane[T], b *block, kernels [][]func(*tile[T])) {
	t, r0, r1 := &l.t, b.i0, b.i1
	t.mode, t.astep = b.mode, 0
	wide := j.vectors * j.lanes
	end := b.j1
	if j.lower {
		end = min(end, r1)
	}
	for c0 := b.j0; c0 < end; {
		v := j.panel(b.j1 - c0)
		t.width = min(v*j.lanes, b.j1-c0)
		t.count = 1
		for t.width == wide && j.panel(b.j1-c0-t.count*wide) == j.vectors && b.j1-c0-t.count*wide >= wide {
			t.count++
		}
		t.b, t.ldb = l.pb[b.at+(c0-b.j0)*b.kn:], v*j.lanes
		t.bstep, t.cstep = wide*b.kn, wide
		t.c, _ = j.at(l, b, b.step.level, r0, c0)
		step := t.width
		if j.lower {
			j.lowerTile(t, &v, r0, r1, c0)
		}
		kernels[v][r1-r0](t)
		c0 += step * t.count
	}
}

// lowerTile restricts a tile of rows [r0, r1) to the lower triangle: panels that
// end left of the diagonal run in full and together, the others one by one, in as
// narrow a kernel as the last row needs.
func (j *job[T]) lowerTile(t *tile[T], v *int, r0, r1, c0 int) {
	t.mode |= modeLower
	if below := (r0 + 1 - c0) / t.width; below > 0 {
		t.mode &^= modeLower
		t.count = min(t.count, below)
		return
	}
	t.count = 1
	*v = min(*v, ceil(r1-c0, j.lanes))
	t.width = min(t.width, *v*j.lanes)
	t.diag = r0 - c0
}

// down runs the panels of a block one after the other, each along all rows.
func (j *job[T]) down(l *lane[T], b *block) {
	t := &l.t
	for c0 := b.j0; c0 < b.j1 && !(j.lower && c0 >= b.i1); {
		v := j.panel(b.j1 - c0)
		width := min(v*j.lanes, b.j1-c0)
		t.b, t.ldb, t.bstep = j.opB(b.k0, c0), j.ldb, 0
		if width%j.lanes != 0 && !j.masked {
			pad := v * j.lanes
			j.copyPanels(l.edge, pad, t.b, j.ldb, b.kn, width, pad, panels{count: 1})
			t.b, t.ldb = l.edge, pad
		}
		j.column(l, b, v, width, c0)
		c0 += width
	}
}

// panel returns how many vectors wide the next panel of n columns is. The last
// two share what one more than the widest panel would leave.
func (f *family[T]) panel(n int) int {
	left := ceil(n, f.lanes)
	if left == f.vectors+1 && f.vectors > 1 {
		return ceil(left, 2)
	}
	return min(left, f.vectors)
}

// strip is how many rows of a stored operand are packed for all panels before the
// next ones: each row of a large matrix is on a page of its own, and visiting it
// once saves address translations.
const strip = 16

// packColumns packs the columns of a block, panel by panel.
func (j *job[T]) packColumns(dst []T, b *block) {
	if j.tb {
		j.turnColumns(dst, b)
		return
	}
	j.packStrips(dst, b)
}

// packStrips packs columns that lie in rows, strip by strip: the panels of full width
// in one call each.
func (j *job[T]) packStrips(dst []T, b *block) {
	wide := j.vectors * j.lanes
	for k := 0; k < b.kn; k += strip {
		for c := b.j0; c < b.j1; {
			p := panels{count: 1, dst: wide * b.kn, src: wide}
			width := min(j.panel(b.j1-c)*j.lanes, b.j1-c)
			for width == wide && b.j1-c-p.count*wide >= wide && j.panel(b.j1-c-p.count*wide) == j.vectors {
				p.count++
			}
			ld := ceil(width, j.lanes) * j.lanes
			j.copyPanels(dst[(c-b.j0)*b.kn+k*ld:], ld, j.opB(b.k0+k, c), j.ldb, min(strip, b.kn-k), width, ld, p)
			c += width * p.count
		}
	}
}

// turnColumns packs columns that lie in columns.
func (j *job[T]) turnColumns(dst []T, b *block) {
	for c := b.j0; c < b.j1; {
		width := min(j.panel(b.j1-c)*j.lanes, b.j1-c)
		j.turnPanel(dst[(c-b.j0)*b.kn:], ceil(width, j.lanes)*j.lanes, j.opB(b.k0, c), j.ldb, b.kn, width, ceil(width, j.lanes)*j.lanes)
		c += width
	}
}

// packRows packs the rows of a block k-major, strip by strip: the tiles of equal
// height in one call, the taller ones first.
func (j *job[T]) packRows(dst []T, b *block) {
	height, tall := (b.i1-b.i0)/b.tiles, (b.i1-b.i0)%b.tiles
	r := tall * (height + 1)
	for k := 0; k < b.kn; k += strip {
		depth := min(strip, b.kn-k)
		if n := height + 1; tall > 0 {
			j.copyPanels(dst[k*n:], n, j.opA(b.i0, b.k0+k), j.lda, depth, n, n, panels{tall, n * b.kn, n})
		}
		j.copyPanels(dst[r*b.kn+k*height:], height, j.opA(b.i0+r, b.k0+k), j.lda, depth, height, height,
			panels{b.tiles - tall, height * b.kn, height})
	}
}

// column runs the tiles of one panel. Rows are cut into equal tiles, the taller
// ones first, so that no tile is a sliver: two runs of tiles.
func (j *job[T]) column(l *lane[T], b *block, vectors, width, c0 int) {
	rows := b.i1 - b.i0
	tiles := ceil(rows, j.rows[vectors])
	if j.lower {
		j.columnLower(l, b, vectors, width, c0, tiles)
		return
	}
	l.t.width, l.t.mode = width, b.mode
	l.t.ahead, l.t.pace = j.next.during(c0 < j.n/2)
	height, tall := rows/tiles, rows%tiles
	j.stack(l, b, vectors, c0, b.i0, height+1, tall)
	j.stack(l, b, vectors, c0, b.i0+tall*(height+1), height, tiles-tall)
}

// columnLower is column for the tiles that reach the diagonal.
func (j *job[T]) columnLower(l *lane[T], b *block, vectors, width, c0, tiles int) {
	for q := range tiles {
		r0, r1 := span(b.i1-b.i0, tiles, q)
		r0, r1 = b.i0+r0, b.i0+r1
		if r1 <= c0 {
			continue
		}
		v := vectors
		l.t.width, l.t.mode = width, b.mode
		l.t.count = 1
		j.lowerTile(&l.t, &v, r0, r1, c0)
		j.stack(l, b, v, c0, r0, r1-r0, 1)
	}
}

// stack runs count tiles of equal height from row r0 of one panel.
func (j *job[T]) stack(l *lane[T], b *block, vectors, c0, r0, rows, count int) {
	if count == 0 {
		return
	}
	g := *b
	g.i0, g.i1 = r0, r0+rows
	t, kernels := &l.t, j.pointA(l, 0, &g)
	t.c, t.ldc = j.at(l, b, b.step.level, r0, c0)
	t.count, t.cstep = count, rows*t.ldc
	kernels[vectors][rows](t)
}

// pointA points the tile at the rows of a block, which lie in a or are packed from row
// at on, and returns the kernels for their order.
func (j *job[T]) pointA(l *lane[T], at int, b *block) [][]func(*tile[T]) {
	t, rows := &l.t, b.i1-b.i0
	t.rows = rows
	switch {
	case j.packA:
		t.a, t.lda, t.astep = l.pa[at*b.kn:], rows, rows*b.kn
		return j.byCol
	case j.ta:
		t.a, t.lda, t.astep = j.opA(b.i0, b.k0), j.lda, rows
		return j.byCol
	}
	t.a, t.lda, t.astep = j.opA(b.i0, b.k0), j.lda, rows*j.lda
	return j.byRow
}

// span cuts n into parts and returns the bounds of the given one; longer parts
// come first.
func span(n, parts, part int) (lo, hi int) {
	size, long := n/parts, n%parts
	lo = part*size + min(part, long)
	hi = lo + size
	if part < long {
		hi++
	}
	return lo, hi
}

// ceil returns n/d rounded up.
func ceil(n, d int) int { return (n + d - 1) / d }
