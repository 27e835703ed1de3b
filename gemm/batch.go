package gemm

// Batch is the layout of many products of one size: item i uses the matrices that
// start at elements i*A, i*B and i*C of the slices. A or B may be 0 to share an
// operand; the items of c must not overlap.
type Batch struct {
	Count   int
	A, B, C int
}

// SgemmBatch is Sgemm for every item of a batch. Items, not parts of items, are
// handed to the threads when they are small or many, as in attention.
func (e *Engine) SgemmBatch(batch Batch, ta, tb bool, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	gemmBatch(e, batch, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// DgemmBatch is SgemmBatch in float64.
func (e *Engine) DgemmBatch(batch Batch, ta, tb bool, m, n, k int, alpha float64, a []float64, lda int, b []float64, ldb int, beta float64, c []float64, ldc int) {
	gemmBatch(e, batch, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// MulBatch is SgemmBatch or DgemmBatch with the first item of each operand as a
// view whose Data reaches to the last item.
func MulBatch[T Float](e *Engine, batch Batch, ta, tb bool, alpha T, a, b Matrix[T], beta T, c Matrix[T]) {
	k := fit(ta, tb, a, b, c)
	gemmBatch(e, batch, ta, tb, c.Rows, c.Cols, k, alpha, a.Data, a.Stride, b.Data, b.Stride, beta, c.Data, c.Stride)
}

func gemmBatch[T Float](e *Engine, batch Batch, ta, tb bool, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int) {
	batch.check()
	if batch.Count == 0 {
		return
	}
	last := batch.Count - 1
	checkSizes(m, n, k)
	checkMatrix(m, n, from(c, last*batch.C, "gemm: c is too short"), ldc, "gemm: ldc < n", "gemm: c is too short")
	if m == 0 || n == 0 {
		return
	}
	if alpha == 0 || k == 0 {
		for i := range batch.Count {
			scale(m, n, beta, c[i*batch.C:], ldc)
		}
		return
	}
	checkOp(ta, m, k, from(a, last*batch.A, "gemm: a is too short"), lda, "gemm: lda is too small", "gemm: a is too short")
	checkOp(tb, k, n, from(b, last*batch.B, "gemm: b is too short"), ldb, "gemm: ldb is too small", "gemm: b is too short")
	multiplyBatch(e, batch, &product[T]{ta: ta, tb: tb, m: m, n: n, k: k, alpha: alpha, beta: beta,
		a: a, b: b, c: c, lda: lda, ldb: ldb, ldc: ldc})
}

// check panics on a negative count or stride.
func (b Batch) check() {
	if b.Count < 0 {
		panic("gemm: batch count < 0")
	}
	if b.A < 0 || b.B < 0 || b.C < 0 {
		panic("gemm: batch stride < 0")
	}
}

// from returns x[i:] or panics with the given constant.
func from[T Float](x []T, i int, short string) []T {
	if i > len(x) {
		panic(short)
	}
	return x[i:]
}

// multiplyBatch runs p for each item: a few large items one by one on all
// threads, the others in groups, each on one thread.
func multiplyBatch[T Float](e *Engine, batch Batch, p *product[T]) {
	const large = 4 << 20 // multiply-adds
	work := p.m * p.n * p.k
	if e.threads > 1 && work > large && batch.Count < 4*e.threads {
		for i := range batch.Count {
			q := p.item(batch, i)
			multiply(e, &q)
		}
		return
	}
	w := kitOf[T](e)
	s := w.take(e.threads)
	t := &s.batch
	t.product, t.batch, t.family, t.s = *p, batch, w.family, s
	t.plan = w.planFor(p, 1)
	t.fetch = w.fetches(batch, p, t.plan)
	group := max(1, 200_000/work)
	t.chunks = ceil(batch.Count, group)
	for _, l := range s.lanes {
		l.job = job[T]{product: t.product, plan: t.plan, family: t.family, s: s}
		l.job.reserve(l)
	}
	e.Run(t.chunks, t)
	t.product = product[T]{}
	w.give(s)
}

// item returns the product of one item.
func (p *product[T]) item(batch Batch, i int) product[T] {
	q := *p
	q.a, q.b, q.c = p.a[i*batch.A:], p.b[i*batch.B:], p.c[i*batch.C:]
	return q
}

// batchJob runs a batch as a [Task]; a chunk is a run of items.
type batchJob[T Float] struct {
	product[T]
	plan
	*family[T]
	s      *scratch[T]
	batch  Batch
	chunks int
	fetch  bool // an item's operands while the one before is computed
}

// following is the operands of the next item of a batch, as far as it fetches them.
type following[T Float] struct{ a, b []T }

// during returns what to fetch during the first or the second half of an item's panels,
// and the pace. A fetch of every other line brings the one beside it.
func (f *following[T]) during(first bool) (ahead []T, pace int) {
	ahead = f.b
	if first {
		ahead = f.a
	}
	if len(ahead) == 0 {
		return nil, 0
	}
	return ahead, 128
}

// fetches reports whether a batch comes from beyond the second-level cache in matrices
// without gaps: the processor follows tiles of them from item to item less well than a
// product does.
func (f *family[T]) fetches(batch Batch, p *product[T], q plan) bool {
	size := p.m*p.k + p.k*p.n + p.m*p.n
	return !q.packB && !p.ta && p.lda == p.k && p.ldb == p.n && batch.Count*size > f.kc*f.nc
}

// following returns what to fetch while item i is computed.
func (t *batchJob[T]) following(i int) (f following[T]) {
	if !t.fetch || i+1 == t.batch.Count {
		return f
	}
	if t.batch.A > 0 {
		f.a = t.a[(i+1)*t.batch.A:]
	}
	if t.batch.B > 0 {
		f.b = t.b[(i+1)*t.batch.B:]
	}
	return f
}

// Do works on one run of items.
func (t *batchJob[T]) Do(chunk, worker int) {
	l := t.s.lanes[worker]
	lo, hi := span(t.batch.Count, t.chunks, chunk)
	for i := lo; i < hi; i++ {
		j := &l.job
		j.a, j.b, j.c = t.a[i*t.batch.A:], t.b[i*t.batch.B:], t.c[i*t.batch.C:]
		j.next = t.following(i)
		j.chunk(l, 0)
	}
}
