package gemm

import "sync"

// product is one C = alpha*op(A)*op(B) + beta*C, checked and not trivial.
type product[T Float] struct {
	ta, tb        bool
	lower         bool // only columns <= row of C
	m, n, k       int
	alpha, beta   T
	a, b, c       []T
	lda, ldb, ldc int
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

// plan is how a product is cut up. It depends on the product and the family
// only, never on the number of threads.
type plan struct {
	packA, packB bool
	ahead        bool // pack the next panel of b between the tiles of this one
	depth        int  // of a slice of k; the last one may be shorter
	height       int  // most rows of a chunk
	mchunks      int  // chunks of rows
	nchunks      int  // chunks of columns
}

// kit is the kernels of one element type and the scratch of the calls in
// flight. Free scratch is kept for the next call.
type kit[T Float] struct {
	*family[T]
	mu   sync.Mutex
	free []*scratch[T]
}

// scratch is the state of one call: the job, and a lane a worker.
type scratch[T Float] struct {
	job   job[T]
	batch batchJob[T]
	tri   triangleJob[T]
	rec   recursion[T]
	lanes []*lane[T]
}

// lane is the scratch of one worker.
type lane[T Float] struct {
	_      [64]byte
	t      tile[T]
	pa, pb []T
	job    job[T] // of a batch
	_      [64]byte
}

// take returns scratch with a lane for each of threads workers.
func (w *kit[T]) take(threads int) *scratch[T] {
	s := w.pop()
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

// give takes scratch back and forgets the operands.
func (w *kit[T]) give(s *scratch[T]) {
	s.job.product = product[T]{}
	for _, l := range s.lanes {
		l.t = tile[T]{}
		l.job.product = product[T]{}
	}
	w.mu.Lock()
	w.free = append(w.free, s)
	w.mu.Unlock()
}

// grow returns buf or a longer one of at least n elements.
func grow[T Float](buf []T, n int) []T {
	if len(buf) >= n {
		return buf
	}
	return aligned[T](n)
}

// job runs a product as a [Task].
type job[T Float] struct {
	product[T]
	plan
	*family[T]
	s *scratch[T]
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
	j := &s.job
	j.product, j.family, j.s = *p, w.family, s
	j.plan = w.planFor(p, e.threads)
	j.reserve()
	e.Run(j.mchunks*j.nchunks, j)
	w.give(s)
}

// multiplyOn runs p on the calling goroutine with the scratch of an outer call.
func multiplyOn[T Float](f *family[T], s *scratch[T], p *product[T]) {
	j := &s.job
	j.product, j.family, j.s = *p, f, s
	j.plan = f.planFor(p, 1)
	j.reserveLane(s.lanes[0])
	for i := range j.mchunks * j.nchunks {
		j.chunk(s.lanes[0], i)
	}
}

// reserve makes the buffers that the plan needs, before the workers start.
func (j *job[T]) reserve() {
	for _, l := range j.s.lanes {
		j.reserveLane(l)
	}
}

func (j *job[T]) reserveLane(l *lane[T]) {
	if j.packA {
		l.pa = grow(l.pa, min(j.mc, j.m)*j.depth)
	}
	if j.packB {
		wide := ceil(ceil(j.n, j.lanes), j.nchunks) * j.lanes
		l.pb = grow(l.pb, min(wide, j.blockColumns())*j.depth)
	} else if j.n%j.lanes != 0 {
		l.pb = grow(l.pb, j.vectors*j.lanes*j.depth)
	}
}

// Do works on one chunk on a worker's lane.
func (j *job[T]) Do(chunk, worker int) { j.chunk(j.s.lanes[worker], chunk) }

// chunk works on rows [i0, i1) by columns [j0, j1) over all of k.
func (j *job[T]) chunk(l *lane[T], chunk int) {
	i0, i1 := span(j.m, j.mchunks, chunk/j.nchunks)
	j0, j1 := span(ceil(j.n, j.lanes), j.nchunks, chunk%j.nchunks)
	j0, j1 = j0*j.lanes, min(j1*j.lanes, j.n)
	if j.lower && j0 >= i1 {
		return
	}
	j.report(i0, i1, j0, j1)
	for c0 := j0; c0 < j1; {
		c1 := j1
		if j.packB {
			_, c1 = span(ceil(j1-c0, j.lanes), ceil(j1-c0, j.blockColumns()), 0)
			c1 = min(j1, c0+c1*j.lanes)
		}
		for k0 := 0; k0 < j.k; k0 += j.depth {
			b := block{i0: i0, i1: i1, j0: c0, j1: c1, k0: k0, kn: min(j.depth, j.k-k0)}
			j.multiplyBlock(l, &b)
		}
		c0 = c1
	}
}

// block is a part of a product: rows by columns by a slice of k.
type block struct {
	i0, i1, j0, j1 int
	k0, kn         int
}

// blockColumns is how many columns of b are packed together.
func (f *family[T]) blockColumns() int { return ceil(f.nc, f.lanes) * f.lanes }

// report tells the race detector what a chunk reads and writes.
func (j *job[T]) report(i0, i1, j0, j1 int) {
	if j.ta {
		raceRead(j.opA(i0, 0), j.lda, j.k, i1-i0)
	} else {
		raceRead(j.opA(i0, 0), j.lda, i1-i0, j.k)
	}
	if j.tb {
		raceRead(j.opB(0, j0), j.ldb, j1-j0, j.k)
	} else {
		raceRead(j.opB(0, j0), j.ldb, j.k, j1-j0)
	}
	if j.lower {
		raceWriteLower(j.c[i0*j.ldc+j0:], j.ldc, i1-i0, j1-j0, i0-j0)
		return
	}
	raceWrite(j.c[i0*j.ldc+j0:], j.ldc, i1-i0, j1-j0)
}

// multiplyBlock adds a block of the product to C. A packed block of b stays in the
// second-level cache while all rows of a pass by, a tile of rows along all panels
// before the next, so that a and c are read and written in the order of their rows.
// Panels of b that are used in place are small and are taken one by one instead.
func (j *job[T]) multiplyBlock(l *lane[T], b *block) {
	t := &l.t
	t.k, t.alpha, t.beta, t.ldc = b.kn, j.alpha, j.beta, j.ldc
	if j.packB {
		j.packBlock(l.pb, b)
	}
	group := j.rowGroup(b)
	first := b.i0
	if j.lower {
		first = max(first, b.j0) // rows above have no columns here
	}
	for r := first; r < b.i1; r += group {
		g := *b
		g.i0, g.i1 = r, min(r+group, b.i1)
		if j.packA {
			j.packRows(l.pa, &g)
		}
		if j.packB {
			j.along(l, &g)
		} else {
			j.down(l, &g)
		}
	}
}

// rowGroup is how many rows pass by the panels together. Where panels of b are
// taken one by one, the rows of a must stay in the second-level cache from one to
// the next, and a call of the kernel, which covers the group, short.
func (j *job[T]) rowGroup(b *block) int {
	switch {
	case j.packA:
		return j.mc
	case j.packB:
		return b.i1 - b.i0
	}
	return min(max(j.inPlaceA/b.kn, 5*j.rows[1]), 1024)
}

// along runs the rows of a block, each tile of rows along all panels.
func (j *job[T]) along(l *lane[T], b *block) {
	tiles := ceil(b.i1-b.i0, j.tileRows(j.panel(b.j1-b.j0)))
	for q := range tiles {
		r0, r1 := span(b.i1-b.i0, tiles, q)
		r0, r1 = b.i0+r0, b.i0+r1
		kernels := j.pointA(l, b, r0, r1-r0)
		j.row(l, b, kernels, r0, r1)
	}
}

// row runs the panels of rows [r0, r1): those of full width in one call.
func (j *job[T]) row(l *lane[T], b *block, kernels [][]func(*tile[T]), r0, r1 int) {
	t := &l.t
	t.mode, t.astep = j.mode(b.k0 == 0), 0
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
		t.b, t.ldb = l.pb[(c0-b.j0)*b.kn:], v*j.lanes
		t.bstep, t.cstep = wide*b.kn, wide
		t.c = j.c[r0*j.ldc+c0:]
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
			t.b, t.ldb = l.pb, v*j.lanes
			j.packColumns(l.pb, t.ldb, c0, width, b.k0, b.kn)
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

// tileRows is the most rows of a tile. All tiles of packed rows suit the widest panel.
func (j *job[T]) tileRows(vectors int) int {
	if j.packA {
		vectors = j.vectors
	}
	return j.rows[vectors]
}

// strip is how many rows of a stored operand are packed for all panels before the
// next ones: each row of a large matrix is on a page of its own, and visiting it
// once saves address translations.
const strip = 16

// packBlock packs the columns of a block, panel by panel.
func (j *job[T]) packBlock(dst []T, b *block) {
	depth := b.kn
	if !j.tb {
		depth = strip
	}
	for k := 0; k < b.kn; k += depth {
		for c0 := b.j0; c0 < b.j1; {
			width := min(j.panel(b.j1-c0)*j.lanes, b.j1-c0)
			ld := ceil(width, j.lanes) * j.lanes
			to := dst[(c0-b.j0)*b.kn+k*ld:]
			j.packColumns(to, ld, c0, width, b.k0+k, min(depth, b.kn-k))
			c0 += width
		}
	}
}

// packRows packs the rows of a block, tile by tile, k-major.
func (j *job[T]) packRows(dst []T, b *block) {
	rows := b.i1 - b.i0
	tiles := ceil(rows, j.tileRows(0))
	if !j.ta {
		for q := range tiles {
			r0, r1 := span(rows, tiles, q)
			j.turnPanel(dst[r0*b.kn:], r1-r0, j.opA(b.i0+r0, b.k0), j.lda, b.kn, r1-r0, r1-r0)
		}
		return
	}
	for k := 0; k < b.kn; k += strip {
		depth := min(strip, b.kn-k)
		for q := range tiles {
			r0, r1 := span(rows, tiles, q)
			n := r1 - r0
			j.copyPanel(dst[r0*b.kn+k*n:], n, j.opA(b.i0+r0, b.k0+k), j.lda, depth, n, n)
		}
	}
}

// packColumns packs width columns of a slice, zero padded to ld.
func (j *job[T]) packColumns(dst []T, ld, c0, width, k0, kn int) {
	if j.tb {
		j.turnPanel(dst, ld, j.opB(k0, c0), j.ldb, kn, width, ld)
	} else {
		j.copyPanel(dst, ld, j.opB(k0, c0), j.ldb, kn, width, ld)
	}
}

// column runs the tiles of one panel. Rows are cut into equal tiles, the taller
// ones first, so that no tile is a sliver: two runs of tiles.
func (j *job[T]) column(l *lane[T], b *block, vectors, width, c0 int) {
	rows := b.i1 - b.i0
	tiles := ceil(rows, j.tileRows(vectors))
	if j.lower {
		j.columnLower(l, b, vectors, width, c0, tiles)
		return
	}
	l.t.width, l.t.mode = width, j.mode(b.k0 == 0)
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
		l.t.width, l.t.mode = width, j.mode(b.k0 == 0)
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
	t, kernels := &l.t, j.pointA(l, b, r0, rows)
	t.count, t.cstep = count, rows*j.ldc
	t.c = j.c[r0*j.ldc+c0:]
	kernels[vectors][rows](t)
}

// pointA points t at rows of a and returns the kernels for their order.
func (j *job[T]) pointA(l *lane[T], b *block, r0, rows int) [][]func(*tile[T]) {
	t := &l.t
	t.rows = rows
	switch {
	case j.packA:
		t.a, t.lda, t.astep = l.pa[(r0-b.i0)*b.kn:], rows, rows*b.kn
		return j.byCol
	case j.ta:
		t.a, t.lda, t.astep = j.opA(r0, b.k0), j.lda, rows
		return j.byCol
	}
	t.a, t.lda, t.astep = j.opA(r0, b.k0), j.lda, rows*j.lda
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
