package gemm

// Engine runs the kernels on its own workers.
type Engine struct {
	threads int
}

// New returns an engine that uses the calling goroutine and threads-1 workers.
// Close it when done.
func New(threads int) *Engine { return &Engine{threads: max(1, threads)} }

// Close stops the workers.
func (e *Engine) Close() {}

// Threads reports how many threads work on one call.
func (e *Engine) Threads() int { return e.threads }

// Task is work that Run splits into chunks. Implementations are reused from call
// to call, so that a step allocates nothing.
type Task interface {
	// Do works on one chunk; worker is in [0, Threads()) and no two chunks run
	// on the same worker at once.
	Do(chunk, worker int)
}

// Run calls t.Do for every chunk in [0, chunks) and returns when all are done.
// Chunks are handed out dynamically; a result must not depend on who did what.
func (e *Engine) Run(chunks int, t Task) {
	for i := range chunks {
		t.Do(i, 0)
	}
}

// Sgemm sets c = alpha*op(a)*op(b) + beta*c; op(a) is m×k, op(b) is k×n, c is m×n.
func (e *Engine) Sgemm(ta, tb bool, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	gemmRef(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// Dgemm is Sgemm in float64.
func (e *Engine) Dgemm(ta, tb bool, m, n, k int, alpha float64, a []float64, lda int, b []float64, ldb int, beta float64, c []float64, ldc int) {
	gemmRef(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// Ssyrk sets the lower triangle of c (n×n): c = alpha*a*aᵀ + beta*c with a n×k, or
// alpha*aᵀ*a + beta*c with a k×n when trans. Elements above the diagonal are not touched.
func (e *Engine) Ssyrk(trans bool, n, k int, alpha float32, a []float32, lda int, beta float32, c []float32, ldc int) {
	syrkRef(trans, n, k, alpha, a, lda, beta, c, ldc)
}

// Dsyrk is Ssyrk in float64.
func (e *Engine) Dsyrk(trans bool, n, k int, alpha float64, a []float64, lda int, beta float64, c []float64, ldc int) {
	syrkRef(trans, n, k, alpha, a, lda, beta, c, ldc)
}

// Mul sets c = alpha*op(a)*op(b) + beta*c, dispatching on the element type.
func Mul[T Float](e *Engine, ta, tb bool, alpha T, a, b Matrix[T], beta T, c Matrix[T]) {
	k := a.Cols
	if ta {
		k = a.Rows
	}
	gemmRef(ta, tb, c.Rows, c.Cols, k, alpha, a.Data, a.Stride, b.Data, b.Stride, beta, c.Data, c.Stride)
}

// Syrk is Ssyrk or Dsyrk on views: the lower triangle of c only.
func Syrk[T Float](e *Engine, trans bool, alpha T, a Matrix[T], beta T, c Matrix[T]) {
	k := a.Cols
	if trans {
		k = a.Rows
	}
	syrkRef(trans, c.Rows, k, alpha, a.Data, a.Stride, beta, c.Data, c.Stride)
}
