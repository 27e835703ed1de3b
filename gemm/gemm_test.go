package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// testCase is one product to compare with the reference.
type testCase[T Float] struct {
	ta, tb, lower bool
	m, n, k       int
	alpha, beta   T
	a, b, c       *matrix[T]
}

// randomCase draws operands with odd strides for the given sizes.
func randomCase[T Float](r *rand.Rand, m, n, k int) *testCase[T] {
	c := &testCase[T]{m: m, n: n, k: k, ta: r.IntN(2) == 0, tb: r.IntN(2) == 0}
	factors := []T{1, 0, -1, 0.75}
	c.alpha, c.beta = factors[r.IntN(4)], factors[r.IntN(4)]
	c.operands(r)
	return c
}

// inner is the part of a and b that k from at on, n of it, reads.
func (c *testCase[T]) inner(at, n int) (a, b Matrix[T]) {
	a, b = view(c.a), view(c.b)
	if c.ta {
		a = a.Slice(at, 0, n, c.m)
	} else {
		a = a.Slice(0, at, c.m, n)
	}
	if c.tb {
		b = b.Slice(0, at, c.n, n)
	} else {
		b = b.Slice(at, 0, n, c.n)
	}
	return a, b
}

// operands draws matrices for the sizes and orders of c.
func (c *testCase[T]) operands(r *rand.Rand) {
	rows, cols := c.m, c.k
	if c.ta {
		rows, cols = cols, rows
	}
	c.a = guarded[T](r, rows, cols, max(1, cols+r.IntN(6)))
	rows, cols = c.k, c.n
	if c.tb {
		rows, cols = cols, rows
	}
	c.b = guarded[T](r, rows, cols, max(1, cols+r.IntN(6)))
	c.c = guarded[T](r, c.m, c.n, max(1, c.n+r.IntN(6)))
}

func (c *testCase[T]) String() string {
	return fmt.Sprintf("%T ta=%v tb=%v lower=%v m=%d n=%d k=%d alpha=%g beta=%g lda=%d ldb=%d ldc=%d",
		c.alpha, c.ta, c.tb, c.lower, c.m, c.n, c.k, c.alpha, c.beta, c.a.ld, c.b.ld, c.c.ld)
}

// run computes the product into a copy of c.
func (c *testCase[T]) run(e *Engine) *matrix[T] {
	x := c.c.clone()
	if c.lower {
		gemmLower(e, c.ta, c.tb, c.m, c.k, c.alpha, c.a.x, c.a.ld, c.b.x, c.b.ld, c.beta, x.x, x.ld)
	} else {
		gemm(e, c.ta, c.tb, c.m, c.n, c.k, c.alpha, c.a.x, c.a.ld, c.b.x, c.b.ld, c.beta, x.x, x.ld)
	}
	return x
}

// reference returns element (i, j) in float64, and the sum of absolute values
// that bounds its rounding error.
func (c *testCase[T]) reference(i, j int) (v, size float64) {
	for l := 0; l < c.k && c.alpha != 0; l++ {
		x, y := i*c.a.ld+l, l*c.b.ld+j
		if c.ta {
			x = l*c.a.ld + i
		}
		if c.tb {
			y = j*c.b.ld + l
		}
		p := float64(c.a.x[x]) * float64(c.b.x[y])
		v += p
		size += math.Abs(p)
	}
	old := 0.0
	if c.beta != 0 {
		old = float64(c.beta) * float64(c.c.x[i*c.c.ld+j])
	}
	alpha := float64(c.alpha)
	return alpha*v + old, math.Abs(alpha)*size + math.Abs(old)
}

// check compares x with the reference: |error| <= (k+3)*eps*size, the bound of a
// sum of k products of any order with one scaling and one addition.
func (c *testCase[T]) check(t *testing.T, x *matrix[T]) {
	t.Helper()
	x.check(t, c.String())
	for i := range c.m {
		for j := range c.n {
			got := float64(x.x[i*x.ld+j])
			if c.lower && j > i {
				if got != float64(c.c.x[i*x.ld+j]) {
					t.Fatalf("%v: (%d,%d) above the diagonal written", c, i, j)
				}
				continue
			}
			want, size := c.reference(i, j)
			if d := math.Abs(got - want); !(d <= float64(c.k+3)*epsilon[T]()*size) {
				t.Fatalf("%v: (%d,%d) is %g, want %g", c, i, j, got, want)
			}
		}
	}
}

// tails runs every m up to 2 tiles, every n up to 2 panels and some k.
func tails[T Float](t *testing.T, e *Engine, seed uint64) {
	f := kitOf[T](e).family
	r := rand.New(rand.NewPCG(seed, 1))
	step := 1
	if testing.Short() {
		step = 3
	}
	for m := 0; m <= 2*f.rows[1]+1; m++ {
		for n := r.IntN(step); n <= 2*f.vectors*f.lanes+1; n += step {
			c := randomCase[T](r, m, n, (m+n)%13)
			c.check(t, c.run(e))
		}
	}
}

func TestTailsOfEverySize(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, k := range kernelSets() {
		t.Run(k.String(), func(t *testing.T) {
			e := engine(t, 1, k)
			tails[float32](t, e, seed)
			tails[float64](t, e, seed)
		})
	}
}

func TestDepthsOfEverySize(t *testing.T) {
	seed := rand.Uint64()
	eachEngine(t, func(t *testing.T, e *Engine) {
		r := rand.New(rand.NewPCG(seed, 2))
		for k := range 70 {
			c := randomCase[float32](r, 1+r.IntN(40), 1+r.IntN(60), k)
			c.check(t, c.run(e))
			d := randomCase[float64](r, 1+r.IntN(40), 1+r.IntN(60), k)
			d.check(t, d.run(e))
		}
	})
}

func TestLargerSizes(t *testing.T) {
	seed := rand.Uint64()
	eachEngine(t, func(t *testing.T, e *Engine) {
		r := rand.New(rand.NewPCG(seed, 3))
		rounds, most := 6, 300
		if testing.Short() {
			rounds, most = 2, 120
		}
		for range rounds {
			m, n, k := 1+r.IntN(most), 1+r.IntN(most), 1+r.IntN(2*most)
			c := randomCase[float32](r, m, n, k)
			c.check(t, c.run(e))
			d := randomCase[float64](r, n, m, k/2+1)
			d.check(t, d.run(e))
		}
	})
}

func TestLowerTriangle(t *testing.T) {
	seed := rand.Uint64()
	eachEngine(t, func(t *testing.T, e *Engine) {
		r := rand.New(rand.NewPCG(seed, 4))
		for n := range 130 {
			if testing.Short() && n%4 != 0 {
				continue
			}
			lower[float32](t, e, r, n, r.IntN(30))
			lower[float64](t, e, r, n, r.IntN(30))
		}
		lower[float32](t, e, r, 333, 300)
	})
}

func lower[T Float](t *testing.T, e *Engine, r *rand.Rand, n, k int) {
	t.Helper()
	c := randomCase[T](r, n, n, k)
	c.lower = true
	c.check(t, c.run(e))
	c.tb, c.b = !c.ta, c.a // a rank-k update
	c.check(t, c.run(e))
}

// plans returns ways to cut a product up that must all give the same bits.
func plans[T Float](f *family[T], p *product[T]) (list []plan) {
	base := f.planFor(p, 1)
	for i := range 16 {
		q := base
		q.packB = i&1 > 0 || p.tb
		q.packA = q.packB && p.ta && i&2 > 0
		q.mchunks = min(p.m, 1+2*(i>>2&1))
		q.nchunks = min(ceil(p.n, f.lanes), 1+i>>3)
		list = append(list, q)
	}
	return list
}

func samePlans[T Float](t *testing.T, e *Engine, c *testCase[T]) {
	t.Helper()
	w := kitOf[T](e)
	var first *matrix[T]
	p := product[T]{ta: c.ta, tb: c.tb, lower: c.lower, m: c.m, n: c.n, k: c.k, alpha: c.alpha, beta: c.beta,
		a: c.a.x, b: c.b.x, lda: c.a.ld, ldb: c.b.ld, ldc: c.c.ld}
	for _, q := range plans(w.family, &p) {
		x := c.c.clone()
		p.c = x.x
		s := w.take(e.threads)
		s.job = job[T]{product: p, plan: q, family: w.family, s: s}
		s.job.run(e)
		w.give(s)
		if first == nil {
			c.check(t, x)
			first = x
		}
		if !sameBits(first.all, x.all) {
			t.Fatalf("%v: plan %+v changes bits", c, q)
		}
	}
}

// TestPlansDoNotChangeBits is why the number of threads cannot either: packing,
// chunks and tiles only decide who computes an element, not how.
func TestPlansDoNotChangeBits(t *testing.T) {
	seed := rand.Uint64()
	eachEngine(t, func(t *testing.T, e *Engine) {
		r := rand.New(rand.NewPCG(seed, 5))
		rounds := 10
		if testing.Short() {
			rounds = 3
		}
		for range rounds {
			c := randomCase[float32](r, 1+r.IntN(90), 1+r.IntN(130), 1+r.IntN(800))
			c.alpha = 0.5
			samePlans(t, e, c)
			d := randomCase[float64](r, 1+r.IntN(90), 1+r.IntN(70), 1+r.IntN(600))
			d.alpha = -1
			d.m, d.lower = d.n, true
			d.operands(r)
			samePlans(t, e, d)
		}
	})
}

func TestThreadsAndAddressesDoNotChangeBits(t *testing.T) {
	seed := rand.Uint64()
	for _, k := range kernelSets() {
		r := rand.New(rand.NewPCG(seed, 6))
		one := engine(t, 1, k)
		for range 6 {
			c := randomCase[float32](r, 1+r.IntN(300), 1+r.IntN(300), 1+r.IntN(600))
			want := c.run(one)
			for threads := 2; threads <= 5; threads++ {
				if got := c.run(engine(t, threads, k)); !sameBits(want.all, got.all) {
					t.Fatalf("%v: %d threads change bits (kernels %v, seed %d)", c, threads, k, seed)
				}
			}
			if got := c.moved(1 + r.IntN(15)).run(one); !sameBits(want.x, got.x) {
				t.Fatalf("%v: the address changes bits (kernels %v, seed %d)", c, k, seed)
			}
		}
	}
}

// moved returns the same case with its operands n elements further.
func (c *testCase[T]) moved(n int) *testCase[T] {
	d := *c
	shift := func(m *matrix[T]) *matrix[T] {
		s := *m
		s.all = append(make([]T, n), m.all...)[n:]
		s.x = s.all[guardLen : guardLen+len(m.x)]
		return &s
	}
	d.a, d.b, d.c = shift(c.a), shift(c.b), shift(c.c)
	return &d
}

// parts compares MulParts with a call of Mul for each part.
func parts[T Float](t *testing.T, e *Engine, r *rand.Rand, m, n, part, count int) {
	t.Helper()
	c := randomCase[T](r, m, n, part*count)
	got, want := c.c.clone(), c.c.clone()
	MulParts(e, c.ta, c.tb, part, c.alpha, view(c.a), view(c.b), c.beta, view(got))
	beta := c.beta
	for i := range count {
		x, y := c.inner(i*part, part)
		Mul(e, c.ta, c.tb, c.alpha, x, y, beta, view(want))
		beta = 1
	}
	if c.alpha != 0 && !sameBits(got.all, want.all) {
		t.Fatalf("%v: parts of %d differ from calls of their own", c, part)
	}
}

func TestPartsEqualCallsOfTheirOwn(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	eachEngine(t, func(t *testing.T, e *Engine) {
		r := rand.New(rand.NewPCG(seed, 11))
		for i := range 12 {
			m, n, count := 1+r.IntN(60), 1+r.IntN(90), 1+r.IntN(5)
			if i%3 == 0 { // rows in several blocks, columns worth packing
				m, n = 200+r.IntN(300), 192+r.IntN(100)
			}
			if i == 3 { // several slices a part
				m, count = 1+m/4, 2
				parts[float32](t, e, r, m, n, 530, count)
			}
			parts[float32](t, e, r, m, n, 1+r.IntN(70), count)
			parts[float64](t, e, r, m, n/2+1, 1+r.IntN(70), count)
		}
	})
}

func TestNaNAndInfinityTravelAsInBLAS(t *testing.T) {
	eachEngine(t, func(t *testing.T, e *Engine) {
		nonFinite[float32](t, e)
		nonFinite[float64](t, e)
	})
}

func nonFinite[T Float](t *testing.T, e *Engine) {
	nan, inf := T(math.NaN()), T(math.Inf(1))
	const m, n, k = 17, 35, 9
	r := rand.New(rand.NewPCG(8, 8))
	fresh := func() *testCase[T] {
		c := &testCase[T]{m: m, n: n, k: k, alpha: 1}
		c.operands(r)
		return c
	}

	c := fresh() // beta 0 overwrites NaN
	for i := range c.c.x {
		c.c.x[i] = nan
	}
	c.check(t, c.run(e))

	c = fresh() // alpha 0 does not read a and b
	c.alpha, c.beta = 0, 2
	for i := range c.a.x {
		c.a.x[i] = nan
	}
	c.check(t, c.run(e))
	x := c.c.clone()
	gemm(e, false, false, m, n, k, 0, nil, k, nil, n, c.beta, x.x, x.ld)
	c.check(t, x)

	c = fresh() // a NaN in a spoils its row, one in b its column, and nothing else
	c.a.x[5*c.a.ld+3] = nan
	c.b.x[4*c.b.ld+33] = nan
	x = c.run(e)
	for i := range m {
		for j := range n {
			if got, want := math.IsNaN(float64(x.x[i*x.ld+j])), i == 5 || j == 33; got != want {
				t.Fatalf("NaN at (%d,%d) is %v, want %v", i, j, got, want)
			}
		}
	}

	c = fresh() // infinity times zero is NaN, infinity times one is infinity
	c.a.x[2*c.a.ld] = inf
	c.b.x[0], c.b.x[1] = 0, 1
	x = c.run(e)
	if v := x.x[2*x.ld]; v == v {
		t.Fatalf("Inf*0 is %g, want NaN", v)
	}
	if v := x.x[2*x.ld+1]; v != inf {
		t.Fatalf("Inf*1 is %g, want Inf", v)
	}

	c = fresh() // beta times NaN stays NaN
	c.beta = 1
	c.c.x[3] = nan
	if v := c.run(e).x[3]; v == v {
		t.Fatalf("NaN + product is %g, want NaN", v)
	}
}

func TestBadArgumentsPanic(t *testing.T) {
	e := engine(t, 1, Auto)
	x := make([]float32, 100)
	m10 := MatrixOf(10, 10, x)
	cases := []struct {
		want string
		call func()
	}{
		{"gemm: m < 0", func() { e.Sgemm(false, false, -1, 2, 2, 1, x, 2, x, 2, 0, x, 2) }},
		{"gemm: n < 0", func() { e.Sgemm(false, false, 1, -2, 2, 1, x, 2, x, 2, 0, x, 2) }},
		{"gemm: k < 0", func() { e.Sgemm(false, false, 1, 2, -2, 1, x, 2, x, 2, 0, x, 2) }},
		{"gemm: ldc < n", func() { e.Sgemm(false, false, 2, 3, 2, 1, x, 2, x, 3, 0, x, 2) }},
		{"gemm: lda is too small", func() { e.Sgemm(false, false, 2, 2, 3, 1, x, 2, x, 2, 0, x, 2) }},
		{"gemm: lda is too small", func() { e.Sgemm(true, false, 4, 2, 3, 1, x, 3, x, 2, 0, x, 2) }},
		{"gemm: ldb is too small", func() { e.Sgemm(false, true, 2, 2, 3, 1, x, 3, x, 2, 0, x, 2) }},
		{"gemm: a is too short", func() { e.Sgemm(false, false, 11, 2, 10, 1, x, 10, x, 2, 0, x, 2) }},
		{"gemm: b is too short", func() { e.Sgemm(false, false, 2, 10, 11, 1, x, 11, x, 10, 0, x, 10) }},
		{"gemm: c is too short", func() { e.Sgemm(false, false, 11, 10, 1, 1, x, 1, x, 10, 0, x, 10) }},
		{"gemm: c is too short", func() { e.Ssyrk(false, 11, 2, 1, x, 2, 0, x, 11) }},
		{"gemm: a is too short", func() { e.Ssyrk(true, 2, 60, 1, x, 2, 0, x, 2) }},
		{"gemm: sizes of a, b and c do not fit", func() { Mul(e, false, false, 1, m10, m10.Slice(0, 0, 9, 10), 0, m10) }},
		{"gemm: sizes of a and c do not fit", func() { Syrk(e, false, 1, m10, 0, m10.Slice(0, 0, 9, 10)) }},
		{"gemm: parts do not match the inner dimension", func() { MulTree(e, false, false, 5, []int{0}, 1, m10, m10, 0, NewMatrix[float32](10, 10)) }},
		{"gemm: groups are negative or fall", func() { MulTree(e, false, false, 5, []int{1, 0}, 1, m10, m10, 0, NewMatrix[float32](10, 10)) }},
		{"gemm: part does not divide the inner dimension", func() { MulParts(e, false, false, 3, 1, m10, m10, 0, NewMatrix[float32](10, 10)) }},
		{"gemm: c is not square", func() {
			MulLower(e, false, false, 1, m10.Slice(0, 0, 9, 10), m10, 0, NewMatrix[float32](9, 10))
		}},
		{"gemm: order of a does not fit b", func() { Trsm(e, Triangle{}, 1, m10.Slice(0, 0, 9, 9), m10) }},
		{"gemm: a is not square", func() { Potrf(e, m10.Slice(0, 0, 9, 10)) }},
		{"gemm: lda is too small", func() { e.Strsm(Triangle{Right: true}, 2, 9, 1, x, 8, x, 9) }},
		{"gemm: b is too short", func() { e.Strmm(Triangle{}, 11, 10, 1, x, 11, x, 10) }},
		{"gemm: batch count < 0", func() { e.SgemmBatch(Batch{Count: -1}, false, false, 1, 1, 1, 1, x, 1, x, 1, 0, x, 1) }},
		{"gemm: batch stride < 0", func() { e.SgemmBatch(Batch{Count: 1, A: -1}, false, false, 1, 1, 1, 1, x, 1, x, 1, 0, x, 1) }},
		{"gemm: c is too short", func() { e.SgemmBatch(Batch{Count: 102, C: 1}, false, false, 1, 1, 1, 1, x, 1, x, 1, 0, x, 1) }},
		{"gemm: a is too short", func() { e.SgemmBatch(Batch{Count: 100, A: 2, C: 1}, false, false, 1, 1, 1, 1, x, 1, x, 1, 0, x, 1) }},
		{"gemm: slice outside matrix", func() { m10.Slice(5, 5, 6, 1) }},
		{"gemm: data shorter than rows*cols", func() { MatrixOf(11, 10, x) }},
	}
	for _, c := range cases {
		func() {
			defer func() {
				if got := recover(); got != c.want {
					t.Errorf("panic %v, want %q", got, c.want)
				}
			}()
			c.call()
		}()
	}
}

func TestCallsDoNotAllocate(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for _, threads := range []int{1, 2} {
		e := engine(t, threads, Auto)
		a, b, c := guarded[float32](r, 150, 150, 150), guarded[float32](r, 150, 150, 150), guarded[float32](r, 150, 150, 150)
		for i := range 150 {
			a.x[i*151] = 40
		}
		groups := []int{0, 1, 2}
		calls := map[string]func(){
			"gemm":  func() { e.Sgemm(false, true, 150, 150, 150, 2, a.x, 150, b.x, 150, 0, c.x, 150) },
			"mul":   func() { Mul(e, true, false, 1, view(a), view(b), 1, view(c)) },
			"tree":  func() { MulTree(e, true, false, 50, groups, 1, view(a), view(b), 0, view(c)) },
			"parts": func() { MulParts(e, true, false, 50, 1, view(a), view(b), 0, view(c)) },
			"syrk":  func() { e.Ssyrk(false, 150, 150, 1, a.x, 150, 0, c.x, 150) },
			"batch": func() {
				e.SgemmBatch(Batch{9, 2000, 2000, 2000}, false, true, 32, 32, 32, 1, a.x, 32, b.x, 32, 0, c.x, 32)
			},
			"trsm":  func() { e.Strsm(Triangle{}, 150, 150, 1, a.x, 150, c.x, 150) },
			"trmm":  func() { e.Strmm(Triangle{Right: true}, 150, 150, 1e-3, a.x, 150, c.x, 150) },
			"potrf": func() { e.Ssyrk(false, 150, 150, 1, a.x, 150, 0, c.x, 150); e.Spotrf(150, c.x, 150) },
		}
		for name, call := range calls {
			for range 20 { // every worker's buffers
				call()
			}
			if n := testing.AllocsPerRun(20, call); n != 0 {
				t.Errorf("%s allocates %g times a call with %d threads", name, n, threads)
			}
		}
	}
}

// view is a matrix of the public type.
func view[T Float](m *matrix[T]) Matrix[T] {
	return Matrix[T]{Rows: m.rows, Cols: m.cols, Stride: m.ld, Data: m.x}
}

func TestBatchEqualsItsItems(t *testing.T) {
	seed := rand.Uint64()
	eachEngine(t, func(t *testing.T, e *Engine) {
		r := rand.New(rand.NewPCG(seed, 10))
		for _, shape := range [][4]int{{1, 1, 1, 1}, {7, 5, 3, 2}, {40, 17, 33, 9}, {3, 64, 64, 64}, {5, 200, 170, 130}, {0, 3, 3, 3}} {
			count, m, n, k := shape[0], shape[1], shape[2], shape[3]
			ta, tb := r.IntN(2) == 0, r.IntN(2) == 0
			lda, ldb := k, n
			if ta {
				lda = m
			}
			if tb {
				ldb = k
			}
			bt := Batch{Count: count, A: m*k + 3, B: n*k + 1, C: m*n + 5}
			if count == 40 {
				bt.B = 0
			}
			a := guarded[float32](r, 1, count*bt.A+m*k, count*bt.A+m*k)
			b := guarded[float32](r, 1, count*bt.B+n*k, count*bt.B+n*k)
			c := guarded[float32](r, 1, count*bt.C+m*n, count*bt.C+m*n)
			got, want := c.clone(), c.clone()
			e.SgemmBatch(bt, ta, tb, m, n, k, 0.5, a.x, lda, b.x, ldb, 1, got.x, n)
			for i := range count {
				e.Sgemm(ta, tb, m, n, k, 0.5, a.x[i*bt.A:], lda, b.x[i*bt.B:], ldb, 1, want.x[i*bt.C:], n)
			}
			if !sameBits(got.all, want.all) {
				t.Fatalf("batch %v differs from its items (seed %d)", shape, seed)
			}
		}
	})
}

// TestFetchingBatchEqualsItsItems has batches beyond the second-level cache, whose
// kernels fetch the next item: up to the last one, with odd depths and with one operand
// that all items share.
func TestFetchingBatchEqualsItsItems(t *testing.T) {
	seed := rand.Uint64()
	eachEngine(t, func(t *testing.T, e *Engine) {
		r := rand.New(rand.NewPCG(seed, 11))
		m, n, k := 1+r.IntN(40), 1+r.IntN(60), 1+r.IntN(70)
		f := kitOf[float32](e).family
		count := 1 + f.kc*f.nc/(m*k)
		for _, bt := range []Batch{{count, m * k, k * n, m * n}, {count, 0, k * n, m * n}, {count, m * k, 0, m * n}} {
			p := &product[float32]{m: m, n: n, k: k, lda: k, ldb: n}
			if !f.fetches(bt, p, plan{}) {
				t.Fatalf("%v of %dx%dx%d does not fetch (seed %d)", bt, m, n, k, seed)
			}
			a := guarded[float32](r, 1, (count-1)*bt.A+m*k, (count-1)*bt.A+m*k)
			b := guarded[float32](r, 1, (count-1)*bt.B+k*n, (count-1)*bt.B+k*n)
			c := guarded[float32](r, 1, count*bt.C, count*bt.C)
			got, want := c.clone(), c.clone()
			e.SgemmBatch(bt, false, false, m, n, k, 1, a.x, k, b.x, n, 0, got.x, n)
			for i := range count {
				e.Sgemm(false, false, m, n, k, 1, a.x[i*bt.A:], k, b.x[i*bt.B:], n, 0, want.x[i*bt.C:], n)
			}
			if !sameBits(got.all, want.all) {
				t.Fatalf("batch %v of %dx%dx%d differs from its items (seed %d)", bt, m, n, k, seed)
			}
		}
	})
}

// FuzzGemm compares the kernel sets with the reference on sizes that the fuzzer
// picks.
func FuzzGemm(f *testing.F) {
	f.Add(uint8(3), uint8(40), uint16(17), uint64(1))
	f.Add(uint8(64), uint8(97), uint16(700), uint64(2))
	var engines []*Engine
	for _, k := range kernelSets() {
		engines = append(engines, engine(f, 2, k))
	}
	f.Fuzz(func(t *testing.T, m, n uint8, k uint16, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		c := randomCase[float32](r, int(m), int(n), int(k)%1200)
		d := randomCase[float64](r, int(m), int(n), int(k)%1200)
		d.lower = m == n
		for _, e := range engines {
			c.check(t, c.run(e))
			d.check(t, d.run(e))
		}
	})
}
