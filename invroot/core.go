package invroot

import (
	"context"
	"errors"
	"math"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/gemm/vec"
)

// errIllConditioned sends a root from float32 to float64. It is not a failure.
var errIllConditioned = errors.New("invroot: condition number asks for float64")

// singleLimit is the condition number up to which Auto stays in float32. A root has a
// second limit, on its condition number times its exponent: float32 moves the smallest
// eigenvalue by about 3u*κ relatively (at most 2.8u*κ for 39 random matrices of each order
// 3, 16, 65), which the exponent scales, so that the root keeps 1e-4. The coupled
// iterations accumulate more in M and have a lower limit.
const (
	singleLimit          = 1e4
	singleLimitRoot      = 500
	singleLimitIterative = 1e3
)

// core holds the algorithms and the scratch in one precision. The solver loads a
// matrix, scaled by a power of two to elements below 1, and reads the result
// from the field that the method names.
type core[T gemm.Float] struct {
	eng  *gemm.Engine
	ops  Ops[T]
	k    kernels[T]
	n    int // order of the problem at hand
	tri  *tridiagonal[T]
	back *backTransform[T]
	div  *divide[T]
	lq   *lq[T]
	// a is the loaded matrix and, later, the result of a root; z holds
	// eigenvectors as rows. x exists once an iterative method or a QR has run.
	a, z, u, g, x gemm.Matrix[T]
	probe, image  []T
	power         []float64
	ranks         []int
	estimate      []float64
	max           int
	wait          pause
}

// newCore allocates the scratch for orders up to n, except what only iterative
// methods and QR need.
func newCore[T gemm.Float](eng *gemm.Engine, n int) *core[T] {
	k := newKernels[T](eng)
	c := &core[T]{
		eng: eng, ops: &CPU[T]{engine: eng, k: k}, k: k, max: n,
		tri: newTridiagonal(eng, k, n),
		a:   scratch[T](n, n), z: scratch[T](n, n), u: scratch[T](n, n), g: scratch[T](n, n),
		probe: make([]T, n), image: make([]T, n), power: make([]float64, n),
		ranks: make([]int, n), estimate: make([]float64, n),
	}
	c.div = newDivide(eng, k, n, c.z, c.u, c.g)
	c.back = newBackTransform(eng, k, c.div.engines())
	for i := range c.probe {
		c.probe[i] = probeSign[T](i)
	}
	return c
}

func (c *core[T]) close() { c.div.close() }

// giveWay sets what the core calls at its points; see Note: pauses.
func (c *core[T]) giveWay(p pause) {
	c.wait, c.tri.wait = p, p
	if len(c.div.workers) == 1 {
		c.div.wait, c.back.wait = p, p
	}
	if c.lq != nil {
		c.lq.wait = p
	}
}

// spare returns the fifth matrix, which eigendecompositions do without.
func (c *core[T]) spare() gemm.Matrix[T] {
	if c.x.Rows == 0 {
		c.x = scratch[T](c.max, c.max)
	}
	return c.x
}

// factorizer returns the QR scratch.
func (c *core[T]) factorizer() *lq[T] {
	if c.lq == nil {
		c.lq = newLQ(c.eng, c.k, c.max)
		c.lq.wait = c.wait
	}
	return c.lq
}

// probeSign is the fixed vector of signs on which residuals are measured: bits of a
// multiplicative hash, so that no structured matrix is blind to it.
func probeSign[T gemm.Float](i int) T {
	if (uint32(i)*2654435761)>>16&1 == 0 {
		return 1
	}
	return -1
}

// view returns the n×n part of a scratch matrix.
func (c *core[T]) view(m gemm.Matrix[T]) gemm.Matrix[T] { return m.Slice(0, 0, c.n, c.n) }

// loadLower fills what the reduction reads of c.a, the lower triangle and the
// diagonal blocks, with scale*src from src's lower triangle.
func loadLower[U, T gemm.Float](c *core[U], src gemm.Matrix[T], scale float64) {
	c.n = src.Rows
	convertLower(c.view(c.a), src, U(scale))
}

// tridiagonalise reduces the loaded matrix; it keeps the image of the probe for
// the residual.
func (c *core[T]) tridiagonalise(ctx context.Context) error {
	a := c.view(c.a)
	c.wait.point()
	c.tri.symv.run(c.eng, a, c.probe[:c.n], c.image[:c.n])
	return c.tri.reduce(ctx, a)
}

// diagonalise completes the decomposition: c.tri.d holds the ascending eigenvalues, the
// rows of c.z the eigenvectors of the loaded matrix.
func (c *core[T]) diagonalise(ctx context.Context) (residual float64, err error) {
	n := c.n
	if n == 0 {
		return 0, nil
	}
	t := c.tri
	if err := c.wait.poll(ctx); err != nil {
		return 0, err
	}
	if err := c.div.solve(ctx, t.d[:n], t.e[:n-1]); err != nil {
		return 0, err
	}
	if err := c.back.apply(ctx, c.view(c.z), c.view(c.a), c.view(c.u), t.tau); err != nil {
		return 0, err
	}
	residual = c.residual()
	if limit := 64 * math.Sqrt(float64(n)) * unit[T](); !(residual <= limit) {
		return residual, &ConvergenceError{Stage: "residual", Order: n, Residual: residual}
	}
	return residual, nil
}

// residual measures the decomposition on the probe v: ‖Av - QΛQᵀv‖/(‖A‖‖v‖),
// and how far Qᵀ is from keeping v's length. It costs two passes over Q.
func (c *core[T]) residual() float64 {
	n := c.n
	z, v, d := c.view(c.z), c.probe[:n], c.tri.d[:n]
	s := c.tri.x[:n]
	c.k.dots(s, z, v)
	length := vec.SumSquares(s) / float64(n)
	norm := max(math.Abs(d[0]), math.Abs(d[n-1]))
	for i := range s {
		s[i] *= T(-d[i])
	}
	r := c.tri.y[:n]
	copy(r, c.image[:n])
	c.k.axpys(r, s, z)
	drift := math.Abs(length - 1)
	if norm == 0 {
		return drift
	}
	return max(drift, math.Sqrt(vec.SumSquares(r)/float64(n))/norm)
}

// rootRequest is one inverse power: (loaded/scale)^(-exponent).
type rootRequest struct {
	opts     Options
	exponent float64
	// scale is the factor between the matrix of the request and the loaded one.
	scale float64
	// auto asks for errIllConditioned when float32 is not enough.
	auto bool
}

// root computes the inverse power and leaves it in c.a, in units of result: the
// inverse power is result times c.a.
func (c *core[T]) root(ctx context.Context, q rootRequest) (rep Report, result float64, err error) {
	iterative := q.opts.Method != Eigen
	if iterative { // the reduction uses the matrix up
		mirror(c.view(c.a))
		convert(c.view(c.spare()), c.view(c.a), 1)
	}
	if err := c.tridiagonalise(ctx); err != nil {
		return rep, 0, err
	}
	if q.auto && (q.opts.PseudoInverse || c.illConditioned(q.opts, q.scale, q.exponent)) {
		return rep, 0, errIllConditioned
	}
	rep.Method = q.opts.Method
	if !iterative {
		rep, err = c.eigenRoot(ctx, q)
		rep.Method = Eigen
		return rep, 1, err
	}
	convert(c.view(c.a), c.view(c.x), 1)
	lo, hi := c.tri.extremes(c.n, 52)
	rep.LambdaMin, rep.LambdaMax = lo/q.scale, hi/q.scale
	return c.iterativeRoot(ctx, q, rep)
}

// illConditioned decides from the ends of the reduced matrix's spectrum whether
// float32 is too coarse. scale is the factor that was loaded with; exponent is 0 for an
// eigendecomposition.
func (c *core[T]) illConditioned(o Options, scale, exponent float64) bool {
	lo, hi := c.tri.extremes(c.n, 24)
	lo, hi = lo/scale, hi/scale
	limit := min(singleLimit, singleLimitRoot/exponent)
	if o.Method != Eigen {
		limit = singleLimitIterative
	}
	l := o.lift(lo, hi)
	return !(l.of(hi) <= limit*l.of(lo))
}

// lift is what a ridge does to an eigenvalue.
type lift struct {
	floor float64 // eigenvalues below are raised to it
	shift float64 // then added
}

// of returns the lifted eigenvalue.
func (l lift) of(v float64) float64 { return max(v, l.floor) + l.shift }

// lift returns the effect of the ridge on a spectrum in [lo, hi].
func (o Options) lift(lo, hi float64) lift {
	switch o.Ridge.Kind {
	case Relative:
		return lift{floor: o.Ridge.Value * max(math.Abs(lo), math.Abs(hi))}
	case Absolute:
		return lift{floor: math.Inf(-1), shift: o.Ridge.Value + max(0, -lo)}
	}
	return lift{floor: math.Inf(-1)}
}

// amount is the ridge as reports show it.
func (l lift) amount() float64 { return max(l.floor, 0) + l.shift }

// eigenRoot forms c.a = Zᵀ*diag(f)*Z from the eigenpairs.
func (c *core[T]) eigenRoot(ctx context.Context, q rootRequest) (rep Report, err error) {
	n := c.n
	rep.Residual, err = c.diagonalise(ctx)
	if err != nil || n == 0 {
		return rep, err
	}
	d := c.tri.d[:n]
	rep.LambdaMin, rep.LambdaMax = d[0]/q.scale, d[n-1]/q.scale
	if err := c.invert(q, &rep); err != nil {
		return rep, err
	}
	z := c.view(c.z)
	for i, f := range c.power[:n] {
		vec.Scale(T(math.Sqrt(f)), z.Row(i))
	}
	c.wait.point()
	x := c.view(c.a)
	gemm.Syrk(c.eng, true, 1, z, 0, x)
	c.wait.point()
	clearUpper(x) // what the reduction left there would enter the checks of the result
	return rep, nil
}

// invert fills c.power with the lifted eigenvalues^(-exponent).
func (c *core[T]) invert(q rootRequest, rep *Report) error {
	d := c.tri.d[:c.n]
	l := q.opts.lift(rep.LambdaMin, rep.LambdaMax)
	rep.Ridge = l.amount()
	zero, least := math.Inf(-1), math.Inf(1)
	if q.opts.PseudoInverse {
		zero = float64(c.n) * 2 * unit[T]() * max(rep.LambdaMax, 0)
	}
	for i, v := range d {
		v /= q.scale
		if v <= zero {
			c.power[i] = 0
			continue
		}
		v = l.of(v)
		if !(v > 0) {
			return &NotPositiveError{Order: c.n, LambdaMin: v}
		}
		least = min(least, v)
		rep.Condition = v / least
		f := math.Pow(v, -q.exponent)
		if f > largest[T]() {
			return ErrRange
		}
		c.power[i] = f
	}
	return nil
}

// largest returns the largest finite value of T.
func largest[T gemm.Float]() float64 {
	if unit[T]() > 0x1p-30 {
		return math.MaxFloat32
	}
	return math.MaxFloat64
}
