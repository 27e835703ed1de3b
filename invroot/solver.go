package invroot

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/asteria-runtime/asteria/gemm"
)

// Solver computes refreshes of matrices up to a fixed order. It owns its scratch: one
// goroutine at a time. After the first call at an order it allocates nothing.
type Solver[T gemm.Float] struct {
	eng   *gemm.Engine
	opts  Options
	max   int
	own   *core[T]
	wide  *core[float64] // own itself when T is float64; made when first needed otherwise
	stats Stats
	// intercept, when set by a test, stands before every attempt and may fail it.
	intercept func(attempt int, p Precision) error
}

// NewSolver returns a solver for orders up to maxOrder that works on eng.
// Close it when done; closing does not close eng.
func NewSolver[T gemm.Float](eng *gemm.Engine, maxOrder int, opts Options) (*Solver[T], error) {
	return NewSolverOn[T](eng, nil, maxOrder, opts)
}

// NewSolverOn is NewSolver with the products of the coupled iterations and of basis
// refreshes on ops; nil is the engine. Where ops fails, a root is tried again in
// float64 on the engine and a basis refresh returns the failure.
func NewSolverOn[T gemm.Float](eng *gemm.Engine, ops Ops[T], maxOrder int, opts Options) (*Solver[T], error) {
	err := opts.Validate()
	if maxOrder < 0 {
		err = errors.Join(err, fmt.Errorf("invroot: maxOrder %d: want ≥ 0", maxOrder))
	}
	if eng == nil {
		err = errors.Join(err, errors.New("invroot: engine is nil"))
	}
	if err != nil {
		return nil, err
	}
	s := &Solver[T]{eng: eng, opts: opts.withDefaults(), max: maxOrder, own: newCore[T](eng, maxOrder)}
	if ops != nil {
		s.own.ops = ops
	}
	s.own.giveWay(opts.Pause)
	s.wide, _ = any(s.own).(*core[float64])
	return s, nil
}

// Close releases what the solver holds beside memory.
func (s *Solver[T]) Close() {
	s.own.close()
	if s.wide != nil && any(s.wide) != any(s.own) {
		s.wide.close()
	}
}

// Stats returns the counters so far.
func (s *Solver[T]) Stats() Stats { return s.stats }

// double returns the float64 core.
func (s *Solver[T]) double() *core[float64] {
	if s.wide == nil {
		s.wide = newCore[float64](s.eng, s.max)
		s.wide.giveWay(s.opts.Pause)
	}
	return s.wide
}

// Reserve makes the system hand out the memory of the float64 part now. Otherwise
// that happens when the first matrix needs it, which may be late in a run or never.
func (s *Solver[T]) Reserve() {
	c := s.double()
	const page = 4096 / 8 // elements
	for _, m := range []gemm.Matrix[float64]{c.a, c.z, c.u, c.g} {
		for i := 0; i < len(m.Data); i += page {
			m.Data[i] = 0
		}
	}
}

// single reports whether T is narrower than the reference precision.
func (s *Solver[T]) single() bool { return unit[T]() > 0x1p-30 }

// InverseRoot sets dst = (A + ridge)^(-1/p), symmetric, for the n×n symmetric a; p ≥ 1.
func (s *Solver[T]) InverseRoot(ctx context.Context, dst, a gemm.Matrix[T], p int) (Report, error) {
	if p < 1 {
		return Report{}, fmt.Errorf("invroot: root %d: want ≥ 1", p)
	}
	return s.InversePower(ctx, dst, a, 1/float64(p))
}

// InversePower sets dst = (A + ridge)^(-exponent) for the n×n symmetric a,
// exponent > 0. Only the lower triangle of a is read. dst, which may be a, is
// written on success only.
//
// A zero matrix has no scale for a relative ridge: its result is the identity,
// which is what a block without statistics needs, with Ridge 0 in the report.
//
// It fails with ErrNonFinite, ErrNotPositive, ErrNotConverged, ErrRange or
// ctx's error, the last four after the retries that Options describes: float32,
// float64, larger ridge.
func (s *Solver[T]) InversePower(ctx context.Context, dst, a gemm.Matrix[T], exponent float64) (Report, error) {
	requireSquare(a, a.Rows)
	requireSquare(dst, a.Rows)
	rep, err := s.inversePower(ctx, dst, a, exponent)
	return rep, s.count(err)
}

// inversePower settles what needs no arithmetic and chooses the scale: a power of
// two, so that a multiple of A by one gives the same digits.
func (s *Solver[T]) inversePower(ctx context.Context, dst, a gemm.Matrix[T], exponent float64) (Report, error) {
	if err := s.opts.checkExponent(exponent); err != nil {
		return Report{}, err
	}
	top, err := s.admit(ctx, a)
	if err != nil {
		return Report{}, err
	}
	if a.Rows == 0 {
		return Report{Method: s.opts.Method, Precision: Double}, nil
	}
	if top == 0 && s.opts.Ridge.Kind == Relative {
		setIdentity(dst)
		return Report{Method: s.opts.Method, Precision: s.first()}, nil
	}
	q := rootRequest{opts: s.opts, exponent: exponent, scale: powerOfTwo(top)}
	if s.opts.TraceScaling {
		q.scale /= traceFactor(s.opts, a)
	}
	return s.chain(ctx, dst, a, q, powerOfTwo(top))
}

// admit refuses non-finite input before any solver sees it, and returns the
// largest magnitude.
func (s *Solver[T]) admit(ctx context.Context, a gemm.Matrix[T]) (float64, error) {
	if a.Rows > s.max {
		panic("invroot: order exceeds the solver's limit")
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	top := maxAbs(a)
	if math.IsInf(top, 1) {
		return 0, ErrNonFinite
	}
	return top, nil
}

// first returns the precision of the first attempt.
func (s *Solver[T]) first() Precision {
	if s.opts.Precision == Double || !s.single() {
		return Double
	}
	return Single
}

// chain runs attempts until one succeeds: float32, float64, then float64 with ten
// times the ridge each time.
func (s *Solver[T]) chain(ctx context.Context, dst, a gemm.Matrix[T], q rootRequest, load float64) (Report, error) {
	precision, grown, retries := s.first(), 0, 0
	for {
		q.auto = precision == Single && s.opts.Precision == Auto
		rep, err := s.attempt(ctx, dst, a, q, load, precision, retries)
		rep.Precision, rep.Retries = precision, retries
		if err == nil {
			return rep, nil
		}
		if ctx.Err() != nil {
			return rep, ctx.Err()
		}
		switch {
		case errors.Is(err, errIllConditioned):
			s.stats.ToDouble++
			precision = Double
			continue
		case precision == Single:
			s.stats.Retried++
			precision = Double
		case grown < q.opts.RidgeRetries && q.opts.Ridge.Kind != None && q.opts.Ridge.Value > 0:
			grown++
			s.stats.MoreRidge++
			q.opts.Ridge.Value *= 10
		default:
			return rep, err
		}
		retries++
	}
}

// attempt computes the root once, in the given precision.
func (s *Solver[T]) attempt(ctx context.Context, dst, a gemm.Matrix[T], q rootRequest, load float64, p Precision, n int) (Report, error) {
	if s.intercept != nil {
		if err := s.intercept(n, p); err != nil {
			return Report{Method: q.opts.Method}, err
		}
	}
	if p == Double {
		return rootInto(ctx, s.double(), dst, a, q, load)
	}
	return rootInto(ctx, s.own, dst, a, q, load)
}

// rootInto computes with the core c and rounds the result into dst when it fits.
func rootInto[U, T gemm.Float](ctx context.Context, c *core[U], dst, a gemm.Matrix[T], q rootRequest, load float64) (Report, error) {
	loadLower(c, a, load)
	rep, unitOfResult, err := c.root(ctx, q)
	if err != nil {
		return rep, err
	}
	x := c.view(c.a)
	if !(maxAbs(x)*unitOfResult <= largest[T]()) {
		return rep, ErrRange
	}
	spread(dst, x, unitOfResult)
	return rep, nil
}

// EigenSym sets the columns of q to orthonormal eigenvectors of the n×n symmetric a and w
// to the eigenvalues, descending or ascending. Only the lower triangle of a is
// read; q, which may be a, and w are written on success only.
func (s *Solver[T]) EigenSym(ctx context.Context, q gemm.Matrix[T], w []T, a gemm.Matrix[T], descending bool) (Report, error) {
	requireSquare(a, a.Rows)
	requireSquare(q, a.Rows)
	if len(w) != a.Rows {
		panic("invroot: w is not of length n")
	}
	rep, err := s.eigenSym(ctx, q, w, a, descending)
	return rep, s.count(err)
}

// eigenSym runs attempts: float32 unless the options or the condition number say
// otherwise, then float64.
func (s *Solver[T]) eigenSym(ctx context.Context, q gemm.Matrix[T], w []T, a gemm.Matrix[T], descending bool) (Report, error) {
	top, err := s.admit(ctx, a)
	if err != nil || a.Rows == 0 {
		return Report{Precision: s.first()}, err
	}
	scale := powerOfTwo(top)
	precision := s.first()
	for retries := 0; ; retries++ {
		var rep Report
		rep, err = s.decompose(ctx, q, w, a, descending, scale, precision, retries)
		rep.Precision, rep.Retries = precision, retries
		if err != nil && ctx.Err() != nil {
			return rep, ctx.Err()
		}
		if errors.Is(err, errIllConditioned) {
			s.stats.ToDouble++
			precision = Double
			retries--
			continue
		}
		if err == nil || precision == Double {
			return rep, err
		}
		s.stats.Retried++
		precision = Double
	}
}

// decompose is one attempt of eigenSym.
func (s *Solver[T]) decompose(ctx context.Context, q gemm.Matrix[T], w []T, a gemm.Matrix[T], descending bool, scale float64, p Precision, n int) (Report, error) {
	if s.intercept != nil {
		if err := s.intercept(n, p); err != nil {
			return Report{}, err
		}
	}
	if p == Double {
		return eigenInto(ctx, s.double(), q, w, a, descending, scale, nil)
	}
	var auto *Options
	if s.opts.Precision == Auto {
		auto = &s.opts
	}
	return eigenInto(ctx, s.own, q, w, a, descending, scale, auto)
}

// eigenInto decomposes with the core c and rounds vectors and values into q and
// w. With auto it stops at errIllConditioned when the ridge of auto leaves too
// much for float32.
func eigenInto[U, T gemm.Float](ctx context.Context, c *core[U], q gemm.Matrix[T], w []T, a gemm.Matrix[T], descending bool, scale float64, auto *Options) (rep Report, err error) {
	loadLower(c, a, scale)
	if err := c.tridiagonalise(ctx); err != nil {
		return rep, err
	}
	if auto != nil && c.illConditioned(*auto, scale, 0) {
		return rep, errIllConditioned
	}
	if rep.Residual, err = c.diagonalise(ctx); err != nil {
		return rep, err
	}
	n := c.n
	z, d := c.view(c.z), c.tri.d[:n]
	rep.LambdaMin, rep.LambdaMax = d[0]/scale, d[n-1]/scale
	if max(rep.LambdaMax, -rep.LambdaMin) > largest[T]() {
		return rep, ErrRange
	}
	transposeOrdered(q, z, descending)
	for i, v := range d {
		at := i
		if descending {
			at = n - 1 - i
		}
		w[at] = T(v / scale)
	}
	return rep, nil
}

// count keeps the statistics of a call.
func (s *Solver[T]) count(err error) error {
	s.stats.Calls++
	switch {
	case errors.Is(err, ErrNonFinite):
		s.stats.Refused++
	case err != nil:
		s.stats.Failed++
	}
	return err
}

func setIdentity[T gemm.Float](m gemm.Matrix[T]) {
	for i := range m.Rows {
		clear(m.Row(i))
		m.Row(i)[i] = 1
	}
}
