package gemm

// Triangle says where a triangular matrix a stands and what it looks like. The
// zero value is a lower triangle on the left, not transposed, with its diagonal.
type Triangle struct {
	Right bool // b*op(a) in place of op(a)*b
	Upper bool // a is upper triangular; the other triangle is not read
	Trans bool // op(a) = aᵀ
	Unit  bool // the diagonal is ones and not read
}

// Strsm solves op(a)*x = alpha*b, or x*op(a) = alpha*b with Right, for the m×n
// matrix x, which replaces b. The order of a is m, or n with Right. All sixteen
// forms exist. a must not overlap b. A zero on the diagonal gives infinities, as
// in BLAS. With alpha 0, a is not read and b becomes 0.
func (e *Engine) Strsm(t Triangle, m, n int, alpha float32, a []float32, lda int, b []float32, ldb int) {
	triangle(e, t, true, m, n, alpha, a, lda, b, ldb)
}

// Dtrsm is Strsm in float64.
func (e *Engine) Dtrsm(t Triangle, m, n int, alpha float64, a []float64, lda int, b []float64, ldb int) {
	triangle(e, t, true, m, n, alpha, a, lda, b, ldb)
}

// Strmm sets b = alpha*op(a)*b, or b = alpha*b*op(a) with Right; b is m×n. The
// forms and rules are those of [Engine.Strsm].
func (e *Engine) Strmm(t Triangle, m, n int, alpha float32, a []float32, lda int, b []float32, ldb int) {
	triangle(e, t, false, m, n, alpha, a, lda, b, ldb)
}

// Dtrmm is Strmm in float64.
func (e *Engine) Dtrmm(t Triangle, m, n int, alpha float64, a []float64, lda int, b []float64, ldb int) {
	triangle(e, t, false, m, n, alpha, a, lda, b, ldb)
}

// Trsm is Strsm or Dtrsm on views; the sizes are those of b.
func Trsm[T Float](e *Engine, t Triangle, alpha T, a, b Matrix[T]) {
	checkOrder(t, a, b)
	triangle(e, t, true, b.Rows, b.Cols, alpha, a.Data, a.Stride, b.Data, b.Stride)
}

// Trmm is Strmm or Dtrmm on views; the sizes are those of b.
func Trmm[T Float](e *Engine, t Triangle, alpha T, a, b Matrix[T]) {
	checkOrder(t, a, b)
	triangle(e, t, false, b.Rows, b.Cols, alpha, a.Data, a.Stride, b.Data, b.Stride)
}

// checkOrder panics when a does not fit b.
func checkOrder[T Float](t Triangle, a, b Matrix[T]) {
	if n := t.order(b.Rows, b.Cols); a.Rows != n || a.Cols != n {
		panic("gemm: order of a does not fit b")
	}
}

// order is the order of a for an m×n b.
func (t Triangle) order(m, n int) int {
	if t.Right {
		return n
	}
	return m
}

// forward reports whether a solve starts at the first row or column of b: op(a)
// is lower on the left or upper on the right.
func (t Triangle) forward() bool { return (t.Upper == t.Trans) != t.Right }

// triangle scales b and runs the recursion on chunks of b that do not depend on
// each other: columns, or rows with Right.
func triangle[T Float](e *Engine, t Triangle, solve bool, m, n int, alpha T, a []T, lda int, b []T, ldb int) {
	checkSizes(m, n, 0)
	checkMatrix(m, n, b, ldb, "gemm: ldb < n", "gemm: b is too short")
	if m == 0 || n == 0 {
		return
	}
	if alpha == 0 {
		scale(m, n, 0, b, ldb)
		return
	}
	order := t.order(m, n)
	checkMatrix(order, order, a, lda, "gemm: lda is too small", "gemm: a is too short")
	scale(m, n, alpha, b, ldb)
	w := kitOf[T](e)
	s := w.take(e.threads)
	j := &s.tri
	*j = triangleJob[T]{Triangle: t, kit: w, solve: solve, order: order, a: a, lda: lda, b: b, ldb: ldb, across: m + n - order}
	j.chunks = 1
	if e.threads > 1 {
		j.chunks = max(1, min(4*e.threads, j.across/(4*w.lanes)))
	}
	e.Run(j.chunks, j)
	*j = triangleJob[T]{}
	w.give(s)
}

// triangleJob is a triangular solve or product as a [Task].
type triangleJob[T Float] struct {
	Triangle
	*kit[T]
	solve  bool
	order  int // of a
	across int // columns of b, or rows with Right
	chunks int
	a, b   []T
	lda    int
	ldb    int
}

// Do works on one chunk of b.
func (j *triangleJob[T]) Do(chunk, _ int) {
	lo, hi := span(j.across, j.chunks, chunk)
	s := j.take(1)
	r := &s.rec
	*r = recursion[T]{triangleJob: j, s: s, lo: lo, hi: hi}
	raceRead(j.a, j.lda, j.order, j.order)
	r.reportB()
	if j.solve {
		r.solveRange(0, j.order)
	} else {
		r.timesRange(0, j.order)
	}
	*r = recursion[T]{}
	j.give(s)
}

// recursion halves the triangle until a leaf fits the registers; the rest of the
// work is products.
type recursion[T Float] struct {
	*triangleJob[T]
	s      *scratch[T]
	lo, hi int // columns of b, or rows with Right
	w      wedge[T]
	coef   [wedgeStride * wedgeStride]T
}

// reportB tells the race detector what the chunk writes.
func (r *recursion[T]) reportB() {
	if r.Right {
		raceWrite(r.b[r.lo*r.ldb:], r.ldb, r.hi-r.lo, r.order)
		return
	}
	raceWrite(r.b[r.lo:], r.ldb, r.order, r.hi-r.lo)
}

// solveRange solves the diagonal block [i0, i1).
func (r *recursion[T]) solveRange(i0, i1 int) {
	if i1-i0 <= r.leaf {
		r.runLeaf(i0, i1)
		return
	}
	mid := r.split(i0, i1)
	if r.forward() {
		r.solveRange(i0, mid)
		r.update(mid, i1, i0, mid, -1)
		r.solveRange(mid, i1)
		return
	}
	r.solveRange(mid, i1)
	r.update(i0, mid, mid, i1, -1)
	r.solveRange(i0, mid)
}

// timesRange multiplies by the diagonal block [i0, i1), last rows first, since
// they need the old first rows.
func (r *recursion[T]) timesRange(i0, i1 int) {
	if i1-i0 <= r.leaf {
		r.runLeaf(i0, i1)
		return
	}
	mid := r.split(i0, i1)
	if r.forward() {
		r.timesRange(mid, i1)
		r.update(mid, i1, i0, mid, 1)
		r.timesRange(i0, mid)
		return
	}
	r.timesRange(i0, mid)
	r.update(i0, mid, mid, i1, 1)
	r.timesRange(mid, i1)
}

// split halves a range at a multiple of the leaf.
func (f *family[T]) split(i0, i1 int) int {
	return i0 + max(1, (i1-i0+f.leaf)/(2*f.leaf))*f.leaf
}

// update adds alpha times the block of op(a) between [s0, s1) and [d0, d1),
// times that part of b, to rows or columns [d0, d1) of b.
func (r *recursion[T]) update(d0, d1, s0, s1 int, alpha T) {
	p := product[T]{alpha: alpha, beta: 1, k: s1 - s0, ldc: r.ldb}
	x := d0*r.lda + s0
	if r.Trans != r.Right {
		x = s0*r.lda + d0
	}
	if r.Right {
		p.m, p.n, p.tb = r.hi-r.lo, d1-d0, r.Trans
		p.a, p.lda, p.b, p.ldb = r.b[r.lo*r.ldb+s0:], r.ldb, r.a[x:], r.lda
		p.c = r.b[r.lo*r.ldb+d0:]
	} else {
		p.m, p.n, p.ta = d1-d0, r.hi-r.lo, r.Trans
		p.a, p.lda, p.b, p.ldb = r.a[x:], r.lda, r.b[s0*r.ldb+r.lo:], r.ldb
		p.c = r.b[d0*r.ldb+r.lo:]
	}
	multiplyOn(r.family, r.s, &p)
}

// runLeaf works in the diagonal block [i0, i1).
func (r *recursion[T]) runLeaf(i0, i1 int) {
	n := i1 - i0
	r.gather(i0, n)
	r.w.l, r.w.order = r.coef[:], n
	wide := 2 * r.lanes
	kernel := r.times[n]
	if r.triangleJob.solve {
		kernel = r.family.solve[n]
	}
	l := r.s.lanes[0]
	if r.Right {
		l.edge = grow(l.edge, r.leaf*wide)
	}
	for c := r.lo; c < r.hi; c += wide {
		r.w.width = min(wide, r.hi-c)
		if r.Right {
			r.rightPanel(kernel, l.edge, c, i0, n, wide)
			continue
		}
		r.w.b, r.w.at, r.w.step = r.b, i0*r.ldb+c, r.ldb
		if !r.forward() {
			r.w.at, r.w.step = (i1-1)*r.ldb+c, -r.ldb
		}
		kernel(&r.w)
	}
}

// rightPanel runs a leaf on the transpose of width rows of b.
func (r *recursion[T]) rightPanel(kernel func(*wedge[T]), buf []T, c, i0, n, wide int) {
	b := r.b[c*r.ldb+i0:]
	r.turnPanel(buf, wide, b, r.ldb, n, r.w.width, wide)
	r.w.b, r.w.at, r.w.step = buf, 0, wide
	if !r.forward() {
		r.w.at, r.w.step = (n-1)*wide, -wide
	}
	kernel(&r.w)
	r.turnPanel(b, r.ldb, buf, wide, r.w.width, n, n)
}

// gather stores the diagonal block at i0 as a lower triangle in the order in
// which the leaf visits it.
func (r *recursion[T]) gather(i0, n int) {
	byRow := r.Trans == r.Right
	for p := range n {
		for q := range p + 1 {
			i, j := i0+p, i0+q
			if !r.forward() {
				i, j = i0+n-1-p, i0+n-1-q
			}
			if !byRow {
				i, j = j, i
			}
			v := T(1)
			if p != q || !r.Unit {
				v = r.a[i*r.lda+j]
			}
			r.coef[p*wedgeStride+q] = v
		}
	}
}
