package invroot

import (
	"context"
	"math"

	"github.com/asteria-runtime/asteria/gemm"
)

// divide is the divide and conquer solver of the symmetric tridiagonal problem
// (Cuppen 1981, Gu and Eisenstat 1995, LAPACK stedc). T is torn into two halves
// and a rank-one matrix; the halves' eigensystems are merged through the
// secular equation. Scalars are float64 whatever T; eigenvectors are rows of T,
// so that a merge is a product of contiguous rows.
//
// Every array is indexed by the position in the whole problem: a node that covers
// [lo, lo+n) uses that part of each, so that disjoint nodes can run at once.
type divide[T gemm.Float] struct {
	eng *gemm.Engine
	k   kernels[T]
	d   []float64
	e   []float64
	// z holds eigenvectors as rows; u the vectors of the secular problem; g gathered
	// rows of z.
	z, u, g gemm.Matrix[T]

	zv, sd, sz, sz2, origin, offset, prod, pd, pz []float64
	index, kept, gone, perm, place                []int
	kind                                          []uint8

	nodes   []node
	workers []worker[T]
	err     []error
	wait    pause // nil with more than one worker
}

// node is a range of the problem.
type node struct{ lo, n int }

// worker is what one goroutine needs to solve nodes: an engine of its own, a
// leaf and the task that spreads one merge.
type worker[T gemm.Float] struct {
	c    *divide[T]
	eng  *gemm.Engine
	own  bool
	leaf leaf
	task mergeTask[T]
}

// kinds of rows of z: non-zero in the upper half only, in both, in the lower half only.
const (
	upper uint8 = iota
	dense
	lower
)

// newDivide returns a solver for orders up to n that works in the given scratch.
// With more than one thread each worker gets an engine of one thread: an engine
// does not split calls that come from inside its own tasks, and equal work on a
// one-thread engine gives equal bits.
func newDivide[T gemm.Float](eng *gemm.Engine, k kernels[T], n int, z, u, g gemm.Matrix[T]) *divide[T] {
	f := func() []float64 { return make([]float64, n) }
	i := func() []int { return make([]int, n) }
	c := &divide[T]{
		eng: eng, k: k, z: z, u: u, g: g,
		zv: f(), sd: f(), sz: f(), sz2: f(), origin: f(), offset: f(), prod: f(), pd: f(), pz: f(),
		index: i(), kept: i(), gone: i(), perm: i(), place: i(),
		kind: make([]uint8, n), workers: make([]worker[T], eng.Threads()),
	}
	for w := range c.workers {
		wk := &c.workers[w]
		wk.c, wk.eng = c, eng
		wk.leaf.k = newKernels[float64](eng)
		if eng.Threads() > 1 {
			wk.eng, wk.own = gemm.New(1), true
		}
	}
	return c
}

// engines returns the workers' engines.
func (c *divide[T]) engines() []*gemm.Engine {
	var list []*gemm.Engine
	for w := range c.workers {
		list = append(list, c.workers[w].eng)
	}
	return list
}

// close closes the workers' engines, except the caller's own.
func (c *divide[T]) close() {
	for w := range c.workers {
		if c.workers[w].own {
			c.workers[w].eng.Close()
		}
	}
}

// nodeOrder is the largest order that one worker solves alone. It depends on
// the whole problem only.
func nodeOrder(n int) int { return min(max(n/4, 2*leafOrder), 256) }

// solve replaces d by the ascending eigenvalues of the tridiagonal matrix (d, e)
// and the leading n×n part of c.z by its eigenvectors as rows. e is used up.
func (c *divide[T]) solve(ctx context.Context, d, e []float64) error {
	c.d, c.e = d, e
	c.nodes = c.nodes[:0]
	c.tear(0, len(d), nodeOrder(len(d)))
	c.err = c.err[:0]
	for range c.nodes {
		c.err = append(c.err, nil)
	}
	if len(c.workers) == 1 {
		for i := range c.nodes {
			c.Do(i, 0)
		}
	} else {
		c.eng.Run(len(c.nodes), c)
	}
	for _, err := range c.err {
		if err != nil {
			return err
		}
	}
	return c.join(ctx, 0, len(d), nodeOrder(len(d)))
}

// Do implements gemm.Task: it solves one node.
func (c *divide[T]) Do(chunk, w int) {
	nd := c.nodes[chunk]
	c.err[chunk] = c.workers[w].solve(nd.lo, nd.n)
}

// half returns the size of a node's upper half.
func half(n int) int { return n / 2 }

// tear subtracts the rank-one parts between nodes and lists the nodes.
func (c *divide[T]) tear(lo, n, limit int) {
	if n == 0 {
		return
	}
	if n <= limit {
		c.nodes = append(c.nodes, node{lo, n})
		return
	}
	m := half(n)
	c.cut(lo + m)
	c.tear(lo, m, limit)
	c.tear(lo+m, n-m, limit)
}

// cut removes |e|*v*vᵀ, v = (…, 1, ±1, …), between positions at-1 and at.
func (c *divide[T]) cut(at int) {
	rho := math.Abs(c.e[at-1])
	c.d[at-1] -= rho
	c.d[at] -= rho
}

// join merges the nodes that tear listed, with the whole engine.
func (c *divide[T]) join(ctx context.Context, lo, n, limit int) error {
	if n <= limit {
		return nil
	}
	if err := c.wait.poll(ctx); err != nil {
		return err
	}
	m := half(n)
	if err := c.join(ctx, lo, m, limit); err != nil {
		return err
	}
	if err := c.join(ctx, lo+m, n-m, limit); err != nil {
		return err
	}
	c.workers[0].merge(c.eng, lo, n, m)
	return nil
}

// solve solves the node [lo, lo+n) with this worker alone.
func (w *worker[T]) solve(lo, n int) error {
	if n <= leafOrder {
		w.c.wait.point()
		return w.base(lo, n)
	}
	m := half(n)
	w.c.cut(lo + m)
	if err := w.solve(lo, m); err != nil {
		return err
	}
	if err := w.solve(lo+m, n-m); err != nil {
		return err
	}
	w.merge(nil, lo, n, m)
	return nil
}

// base solves a leaf and stores its vectors sorted.
func (w *worker[T]) base(lo, n int) error {
	d := w.c.d[lo : lo+n]
	if err := w.leaf.solve(d, w.c.e[lo:lo+n-1]); err != nil {
		return err
	}
	z := w.c.z.Slice(lo, lo, n, n)
	for i, from := range w.leaf.sort(d) {
		row := z.Row(i)
		for j, v := range w.leaf.v[from*n : from*n+n] {
			row[j] = T(v)
		}
	}
	return nil
}

// merge joins the eigensystems of [lo, lo+m) and [lo+m, lo+n). eng nil means the
// worker's own engine and no spreading.
func (w *worker[T]) merge(eng *gemm.Engine, lo, n, m int) {
	t := &w.task
	t.bind(w.c, lo, n, m)
	rho := t.couple()
	t.mergeOrder()
	k, gone := t.deflate(rho)
	t.k, t.lost = k, gone
	if k > 0 {
		t.secular.setup(rho)
		t.arrange()
	}
	t.stash()
	run := func(phase mergePhase, items int) {
		t.phase = phase
		chunks := (items + mergeChunk - 1) / mergeChunk
		if eng != nil && chunks > 1 {
			eng.Run(chunks, t)
			return
		}
		for i := range chunks {
			w.c.wait.point()
			t.Do(i, 0)
		}
	}
	if k > 0 {
		run(phaseRoots, k)
		run(phaseWeights, k)
		t.permuteWeights()
		run(phaseVectors, k)
		if eng == nil {
			eng = w.eng
		}
		t.products(eng)
	}
	w.c.wait.point()
	t.place()
}

// mergeChunk is the number of roots, weights or vectors of one chunk of work.
const mergeChunk = 32
