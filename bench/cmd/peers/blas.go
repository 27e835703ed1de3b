package main

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/asteria-runtime/asteria/gemm"
)

// shape is one product: count times C (m×n) = op(A)*op(B) over k.
type shape struct {
	m, n, k int
	ta, tb  bool
	count   int
}

func (s shape) String() string {
	op := map[bool]string{false: "N", true: "T"}
	t := fmt.Sprintf("%dx%dx%d %s%s", s.m, s.n, s.k, op[s.ta], op[s.tb])
	if s.count > 1 {
		t = fmt.Sprintf("%d x (%s)", s.count, t)
	}
	return t
}

func (s shape) flops() float64 {
	return 2 * float64(s.m) * float64(s.n) * float64(s.k) * float64(s.count)
}

func square(n int, ta, tb bool) shape { return shape{n, n, n, ta, tb, 1} }

// squares of the orders that a block of a preconditioner has.
var orders = []int{64, 128, 256, 512, 1024, 2048}

// transformer lists the products of a training step: width 256, hidden 688,
// vocabulary 4096, 1024 tokens, 8 heads of 32 over 256 positions.
var transformer = []shape{
	{512, 512, 2048, false, false, 1},
	{256, 1024, 4096, false, false, 1},
	{64, 64, 64, false, false, 256},
	{256, 256, 32, false, true, 32},
	{256, 32, 256, false, false, 32},
	{1024, 688, 256, false, true, 1},
	{1024, 256, 688, false, true, 1},
	{1024, 4096, 256, false, true, 1},
	{688, 256, 1024, true, false, 1},
}

func random[T gemm.Float](n int, seed uint64) []T {
	r := rand.New(rand.NewPCG(seed, 99))
	x := make([]T, n)
	for i := range x {
		x[i] = T(r.NormFloat64())
	}
	return x
}

// cols is the stored width of an operand that is op-ed to rows×cols.
func stored(rows, cols int, trans bool) int {
	if trans {
		return rows
	}
	return cols
}

func op(trans bool) byte {
	if trans {
		return 'T'
	}
	return 'N'
}

// bench holds what all contests of one thread count need.
type bench struct {
	engine *gemm.Engine
	libs   []*library
	over   overheads
}

// products builds the contest of one shape.
func products[T gemm.Float](b *bench, s shape, group string) *contest {
	a, x := random[T](s.count*s.m*s.k, 1), random[T](s.count*s.k*s.n, 2)
	lda, ldb := stored(s.m, s.k, s.ta), stored(s.k, s.n, s.tb)
	var outs [][]T
	output := func() []T {
		c := make([]T, s.count*s.m*s.n)
		outs = append(outs, c)
		return c
	}
	part := func(i int, p []T) []T { n := len(p) / s.count; return p[i*n : (i+1)*n] }
	c := &contest{group: group, shape: s.String(), threads: b.engine.Threads(), flops: s.flops()}
	out := output()
	c.entries = []*contender{{name: "asteria", calls: s.count, run: func() { b.multiply(s, any(a), any(x), any(out), lda, ldb) }}}
	for _, l := range b.libs {
		if e := fortranProduct(b, l, s, a, x, output, part, lda, ldb); e != nil {
			c.entries = append(c.entries, e)
		}
		if a32, ok := any(a).([]float32); ok && l.dnnl != nil {
			c.entries = append(c.entries, dnnlProduct(b, l, s, a32, any(x).([]float32), any(output()).([]float32), lda, ldb))
		}
	}
	c.check = func(i int) float64 { return distance(outs[0], outs[i], float64(s.k)) }
	return c
}

// multiply is our side; many products are one batch.
func (b *bench) multiply(s shape, a, x, c any, lda, ldb int) {
	batch := gemm.Batch{Count: s.count, A: s.m * s.k, B: s.k * s.n, C: s.m * s.n}
	switch a := a.(type) {
	case []float32:
		x, c := x.([]float32), c.([]float32)
		if s.count > 1 {
			b.engine.SgemmBatch(batch, s.ta, s.tb, s.m, s.n, s.k, 1, a, lda, x, ldb, 0, c, s.n)
			return
		}
		b.engine.Sgemm(s.ta, s.tb, s.m, s.n, s.k, 1, a, lda, x, ldb, 0, c, s.n)
	case []float64:
		b.engine.Dgemm(s.ta, s.tb, s.m, s.n, s.k, 1, a, lda, x.([]float64), ldb, 0, c.([]float64), s.n)
	}
}

// fortranProduct calls ?gemm_ on the transposed problem: row-major C = A*B is
// column-major Cᵀ = Bᵀ*Aᵀ.
func fortranProduct[T gemm.Float](b *bench, l *library, s shape, a, x []T, output func() []T, part func(int, []T) []T, lda, ldb int) *contender {
	fn := l.sym[prefix[T]()+"gemm_"]
	if fn == 0 {
		return nil
	}
	out := output()
	var calls []*call
	for i := range s.count {
		c := newCall(fn).char(op(s.tb)).char(op(s.ta)).integer(s.n).integer(s.m).integer(s.k)
		c = vector(scalar(c, T(1)), part(i, x)).integer(ldb)
		c = scalar(vector(c, part(i, a)).integer(lda), T(0))
		calls = append(calls, vector(c, part(i, out)).integer(s.n))
	}
	return &contender{name: l.name, threads: l.threads, foreign: true, calls: s.count, overhead: b.over.pointers, run: func() {
		for _, c := range calls {
			c.do()
		}
	}}
}

func dnnlProduct(b *bench, l *library, s shape, a, x, out []float32, lda, ldb int) *contender {
	m, n, k := int64(s.m), int64(s.n), int64(s.k)
	return &contender{name: l.name, threads: l.threads, foreign: true, calls: s.count, overhead: b.over.dnnl, run: func() {
		for i := range s.count {
			l.dnnl(op(s.ta), op(s.tb), m, n, k, 1, &a[i*s.m*s.k], int64(lda), &x[i*s.k*s.n], int64(ldb), 0, &out[i*s.m*s.n], n)
		}
	}}
}

// prefix is the letter of BLAS routines on T.
func prefix[T gemm.Float]() string {
	if unit[T]() > 1e-10 {
		return "s"
	}
	return "d"
}

// unit is half the spacing of T at 1.
func unit[T gemm.Float]() float64 {
	if T(1)+T(0x1p-30) == 1 {
		return 0x1p-24
	}
	return 0x1p-53
}

// distance is the largest difference in units of what rounding may do to sums of
// k products of standard normal numbers: 8*k*u.
func distance[T gemm.Float](x, y []T, k float64) float64 {
	var d float64
	for i := range x {
		if e := math.Abs(float64(x[i]) - float64(y[i])); e > d || e != e {
			d = e
		}
		if d != d {
			return math.Inf(1)
		}
	}
	return d / (8 * k * unit[T]())
}

// rankUpdate builds the contest of C = A*Aᵀ (or AᵀA), lower triangle, order n.
func rankUpdate[T gemm.Float](b *bench, n int, trans bool, group string) *contest {
	a := random[T](n*n, 3)
	name := "AAt"
	if trans {
		name = "AtA"
	}
	c := &contest{group: group, shape: fmt.Sprintf("%d %s", n, name), threads: b.engine.Threads(), flops: float64(n) * float64(n+1) * float64(n)}
	outs := [][]T{make([]T, n*n)}
	c.entries = []*contender{{name: "asteria", run: func() {
		gemm.Syrk(b.engine, trans, 1, gemm.MatrixOf(n, n, a), 0, gemm.MatrixOf(n, n, outs[0]))
	}}}
	for _, l := range b.libs {
		fn := l.sym[prefix[T]()+"syrk_"]
		if fn == 0 {
			continue
		}
		out := make([]T, n*n)
		outs = append(outs, out)
		// Row-major lower is column-major upper, and A is stored as Aᵀ there.
		k := newCall(fn).char('U').char(op(!trans)).integer(n).integer(n)
		k = scalar(vector(scalar(k, T(1)), a).integer(n), T(0))
		k = vector(k, out).integer(n)
		c.entries = append(c.entries, &contender{name: l.name, threads: l.threads, foreign: true, calls: 1, overhead: b.over.pointers, run: k.do})
	}
	// The diagonal sums squares: terms of size 1 that do not cancel.
	c.check = func(i int) float64 { return distance(outs[0], outs[i], float64(n)*math.Sqrt(float64(n))) }
	return c
}
