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
	if p.lower {
		mode |= modeLower
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
	_    [64]byte
	t    tile[T]
	pa   []T
	pb   [2][]T // the panel in use and the next one
	pack packer[T]
	job  job[T] // of a batch
	_    [64]byte
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
		l.pack = packer[T]{}
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
		l.pa = grow(l.pa, j.height*j.depth)
	}
	for i := range l.pb {
		if j.packB || j.n%j.lanes != 0 {
			l.pb[i] = grow(l.pb[i], j.vectors*j.lanes*j.depth)
		}
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
	w := walk{i0: i0, i1: i1, j0: j0, j1: j1, c0: j0, kn: min(j.depth, j.k)}
	w.vectors = j.panel(j1 - j0)
	l.pack.active = false
	for w.kn > 0 {
		j.panelStep(l, &w)
	}
}

// walk is the position of a chunk in its panels, slice by slice.
type walk struct {
	i0, i1, j0, j1 int // of the chunk
	c0             int // first column of the panel
	vectors        int // width of the panel
	k0, kn         int // the slice
	odd            int // which packing buffer is the panel's
}

// next returns the panel after w; its kn is 0 when there is none.
func (j *job[T]) next(w walk) walk {
	w.odd = 1 - w.odd
	w.c0 += w.vectors * j.lanes
	if w.c0 >= w.j1 || j.lower && w.c0 >= w.i1 {
		w.c0 = w.j0
		w.k0 += w.kn
		w.kn = min(j.depth, j.k-w.k0)
	}
	w.vectors = j.panel(w.j1 - w.c0)
	return w
}

// width is the number of columns of a panel.
func (j *job[T]) width(w *walk) int { return min(w.vectors*j.lanes, w.j1-w.c0) }

// packs reports whether a panel of b is packed.
func (j *job[T]) packs(w *walk) bool {
	return j.packB || !j.masked && j.width(w)%j.lanes != 0
}

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

// panelStep multiplies by one panel and moves w to the next, which it packs
// meanwhile where that pays.
func (j *job[T]) panelStep(l *lane[T], w *walk) {
	if j.packA && w.c0 == w.j0 {
		j.packRows(l.pa, w.i0, w.i1, w.k0, w.kn)
	}
	t := &l.t
	t.k, t.alpha, t.beta, t.mode = w.kn, j.alpha, j.beta, j.mode(w.k0 == 0)
	t.width, t.ldc = j.width(w), j.ldc
	t.b, t.ldb = l.pb[w.odd], w.vectors*j.lanes
	switch {
	case !j.packs(w):
		t.b, t.ldb = j.opB(w.k0, w.c0), j.ldb
	case l.pack.active:
		j.finish(&l.pack)
	default:
		j.packColumns(t.b, t.ldb, w.c0, t.width, w.k0, w.kn)
	}
	next := j.next(*w)
	j.prepare(&l.pack, l.pb[next.odd], w, &next)
	j.column(l, w)
	*w = next
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

// packRows packs rows [i0, i1) of a slice, tile by tile, k-major.
func (j *job[T]) packRows(dst []T, i0, i1, k0, kn int) {
	tiles := ceil(i1-i0, j.tileRows(0))
	for q, at := 0, 0; q < tiles; q++ {
		r0, r1 := span(i1-i0, tiles, q)
		rows := r1 - r0
		src := j.opA(i0+r0, k0)
		if j.ta {
			j.copyPanel(dst[at:], rows, src, j.lda, kn, rows, rows)
		} else {
			j.turnPanel(dst[at:], rows, src, j.lda, kn, rows, rows)
		}
		at += rows * kn
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
func (j *job[T]) column(l *lane[T], w *walk) {
	rows := w.i1 - w.i0
	tiles := ceil(rows, j.tileRows(w.vectors))
	if j.lower {
		j.columnLower(l, w, tiles)
		return
	}
	height, tall := rows/tiles, rows%tiles
	j.stack(l, w, w.vectors, w.i0, height+1, tall)
	j.stack(l, w, w.vectors, w.i0+tall*(height+1), height, tiles-tall)
}

// columnLower is column for the tiles that reach the diagonal, each in as narrow
// a kernel as its last row needs.
func (j *job[T]) columnLower(l *lane[T], w *walk, tiles int) {
	t, width := &l.t, l.t.width
	for q := range tiles {
		r0, r1 := span(w.i1-w.i0, tiles, q)
		r0, r1 = w.i0+r0, w.i0+r1
		if r1 <= w.c0 {
			continue
		}
		v := min(w.vectors, ceil(r1-w.c0, j.lanes))
		t.width = min(width, v*j.lanes)
		t.diag = r0 - w.c0
		j.stack(l, w, v, r0, r1-r0, 1)
	}
}

// stack runs count tiles of equal height from row r0, one by one while there is
// something to pack in between.
func (j *job[T]) stack(l *lane[T], w *walk, vectors, r0, rows, count int) {
	t, kernels, a := &l.t, j.byRow, l.pa
	t.rows = rows
	switch {
	case j.packA:
		kernels = j.byCol
		a, t.lda, t.astep = l.pa[(r0-w.i0)*t.k:], rows, rows*t.k
	case j.ta:
		kernels = j.byCol
		a, t.lda, t.astep = j.opA(r0, w.k0), j.lda, rows
	default:
		a, t.lda, t.astep = j.opA(r0, w.k0), j.lda, rows*j.lda
	}
	for q := 0; q < count; q += t.count {
		t.count = count - q
		t.a = a[q*t.astep:]
		t.c = j.c[(r0+q*rows)*j.ldc+w.c0:]
		if busy := j.fetchFor(&l.pack, t); !busy {
			kernels[vectors][rows](t)
			continue
		}
		t.count = 1
		kernels[vectors][rows](t)
		j.packSome(&l.pack)
	}
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
