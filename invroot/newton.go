package invroot

import (
	"context"
	"fmt"
	"math"

	"github.com/asteria-runtime/asteria/gemm"
)

// maxRational bounds numerator and denominator of the exponents that the
// iterative methods accept.
const maxRational = 64

// rational returns the fraction q/p equal to x with the smallest p.
func rational(x float64) (q, p int, ok bool) {
	for p = 1; p <= maxRational; p++ {
		q = int(math.Round(x * float64(p)))
		if q >= 1 && q <= maxRational && math.Abs(float64(q)/float64(p)-x) <= 1e-12*x {
			return q, p, true
		}
	}
	return 0, 0, false
}

// checkExponent tells whether a method can raise to -exponent.
func (o Options) checkExponent(exponent float64) error {
	if !(exponent > 0) || math.IsInf(exponent, 0) {
		return fmt.Errorf("invroot: exponent %v: want finite and > 0", exponent)
	}
	q, _, ok := rational(exponent)
	switch {
	case o.Method == CoupledNewton && (!ok || q != 1):
		return fmt.Errorf("invroot: exponent %v: coupled Newton needs 1/p with 1 ≤ p ≤ %d", exponent, maxRational)
	case o.Method == HigherOrder && !ok:
		return fmt.Errorf("invroot: exponent %v: the higher-order method needs q/p with 1 ≤ q, p ≤ %d", exponent, maxRational)
	}
	return nil
}

// coupled is the state of the coupled iterations: X → A^(-1/p), M = A*X^p → I.
type coupled[T gemm.Float] struct {
	c          *core[T]
	p          int
	x, m       gemm.Matrix[T]
	t, w, v    gemm.Matrix[T] // T and two products
	iterations int
	err        float64 // max|M-I|
}

// iterativeRoot runs a coupled iteration on the loaded matrix; rep brings the ends of
// its spectrum.
func (c *core[T]) iterativeRoot(ctx context.Context, q rootRequest, rep Report) (Report, float64, error) {
	// No eigenvalue can be raised alone here: Relative shifts as Absolute does. A
	// smallest eigenvalue that is zero but for rounding is not an indefinite matrix.
	ridge := q.opts.lift(rep.LambdaMin, rep.LambdaMax).amount()
	noise := 4 * float64(c.n) * unit[T]() * math.Abs(rep.LambdaMax)
	switch {
	case q.opts.Ridge.Kind == Relative && -rep.LambdaMin > noise:
		ridge -= rep.LambdaMin
	case q.opts.Ridge.Kind == Absolute && -rep.LambdaMin <= noise:
		ridge = q.opts.Ridge.Value
	}
	rep.Ridge = ridge
	if low := rep.LambdaMin + ridge; !(low > 0) && !(rep.LambdaMin+noise+ridge > 0) {
		return rep, 0, &NotPositiveError{Order: c.n, LambdaMin: low}
	}
	rep.Condition = (rep.LambdaMax + ridge) / max(rep.LambdaMin+ridge, 0x1p-1022)
	num, den, _ := rational(q.exponent)
	s := coupled[T]{c: c, p: den}
	s.x, s.m, s.t, s.w, s.v = c.view(c.z), c.view(c.a), c.view(c.u), c.view(c.g), c.view(c.spare())
	c.ops.Shift(s.m, s.m, 1, T(ridge*q.scale))
	var err error
	if q.opts.Method == CoupledNewton {
		err = s.newton(ctx, q.opts)
	} else {
		err = s.higherOrder(ctx, q.opts)
	}
	rep.Iterations, rep.Residual = s.iterations, s.err
	if failed := c.ops.Sync(); err == nil { // on every way out: the next attempt writes these buffers
		err = failed
	}
	if err == nil {
		err = s.check(ridge * q.scale)
	}
	if err != nil {
		return rep, 0, err
	}
	if err := s.raise(num); err != nil {
		return rep, 0, err
	}
	c.keep(s.x)
	return rep, math.Pow(q.scale, q.exponent), nil
}

// keep moves a result into c.a, symmetrised: the last thing done to it, since
// averaging inside a coupled iteration destroys its stability.
func (c *core[T]) keep(x gemm.Matrix[T]) {
	a := c.view(c.a)
	same := &a.Data[0] == &x.Data[0]
	for i := range c.n {
		row := a.Row(i)
		for j := range i {
			row[j] = (x.At(i, j) + x.At(j, i)) / 2
		}
		if !same {
			row[i] = x.At(i, i)
		}
	}
	clearUpper(a)
}

// newton is the coupled Newton iteration:
//
//	z = (p+1)/(2‖A‖_F), X = z^(1/p)*I, M = z*A
//	T = (1+1/p)*I - M/p, X = X*T, M = T^p*M   until max|M-I| ≤ tolerance
//
// It also stops, with the previous X, when rounding makes a small error grow.
func (s *coupled[T]) newton(ctx context.Context, o Options) error {
	if err := s.c.ops.Sync(); err != nil {
		return err
	}
	s.start(float64(s.p+1) / (2 * frobenius(s.m)))
	for s.err > o.Tolerance && s.iterations < o.MaxIterations {
		if err := s.c.wait.poll(ctx); err != nil {
			return err
		}
		before := s.err
		s.linear()
		s.advance()
		if s.stalled(before) {
			return nil
		}
	}
	return s.verdict("coupled newton", s.err <= o.Tolerance)
}

// higherOrder is the coupled iteration with z = 1/trace(A), whose first step is
// Newton's and whose others use T = Σ b_i*B^i, B = I - M, the binomial series
// of (1-B)^(-1/p) cut after Order terms. It runs to stagnation and checks
// max|A*X^p - I| at the end.
func (s *coupled[T]) higherOrder(ctx context.Context, o Options) error {
	if err := s.c.ops.Sync(); err != nil {
		return err
	}
	trace := 0.0
	for i := range s.m.Rows {
		trace += float64(s.m.At(i, i))
	}
	s.start(1 / trace)
	for s.err > o.Tolerance && s.iterations < o.MaxIterations {
		if err := s.c.wait.poll(ctx); err != nil {
			return err
		}
		before := s.err
		if s.iterations == 0 {
			s.linear()
		} else {
			s.series(o.Order)
		}
		s.advance()
		if s.err > 1.2*before || (s.err == before && s.err < 1e-3) {
			break
		}
	}
	return s.verdict("higher order", s.err <= 0.1)
}

// start sets X = z^(1/p)*I and M = z*M.
func (s *coupled[T]) start(z float64) {
	s.c.ops.Shift(s.x, s.x, 0, T(math.Pow(z, 1/float64(s.p))))
	s.c.ops.Shift(s.m, s.m, T(z), 0)
	s.measure()
}

// linear sets T = (1+1/p)*I - M/p.
func (s *coupled[T]) linear() {
	p := T(s.p)
	s.c.ops.Shift(s.t, s.m, -1/p, 1+1/p)
}

// series sets T = Σ_{i<order} b_i*B^i by Horner's rule,
// b_i = Π_{j≤i} (1+(j-1)p)/(jp).
func (s *coupled[T]) series(order int) {
	b := coefficients(s.p, order)
	ops := s.c.ops
	ops.Shift(s.m, s.m, -1, 1) // B = I - M, in place for the products below
	ops.Shift(s.t, s.m, T(b[order-1]), T(b[order-2]))
	for i := order - 3; i >= 0; i-- {
		s.mul(s.m, s.t, s.w)
		s.t, s.w = s.w, s.t
		ops.Shift(s.t, s.t, 1, T(b[i]))
	}
	ops.Shift(s.m, s.m, -1, 1) // back to M
}

// maxOrder bounds Options.Order.
const maxOrder = 16

// coefficients returns the first terms b_i of the binomial series of
// (1-B)^(-1/p).
func coefficients(p, order int) [maxOrder]float64 {
	var b [maxOrder]float64
	b[0] = 1
	for j := 1; j < order; j++ {
		b[j] = b[j-1] * float64(1+(j-1)*p) / float64(j*p)
	}
	return b
}

func (s *coupled[T]) mul(a, b, c gemm.Matrix[T]) {
	s.c.wait.point()
	s.c.ops.Gemm(false, false, 1, a, b, 0, c)
}

// advance sets X = X*T and M = T^p*M. The old X stays in v until the next step.
func (s *coupled[T]) advance() {
	s.iterations++
	s.mul(s.x, s.t, s.w)
	s.x, s.w = s.w, s.x
	previous := s.w
	s.w = s.powerTimes(previous)
	s.measure()
}

// powerTimes sets M = T^p*M by binary powers, T first to last bit, and returns
// the buffer that it leaves free. It uses T itself, v and spare as scratch.
func (s *coupled[T]) powerTimes(spare gemm.Matrix[T]) gemm.Matrix[T] {
	for p := s.p; ; {
		if p&1 == 1 {
			s.mul(s.t, s.m, s.v)
			s.m, s.v = s.v, s.m
		}
		if p >>= 1; p == 0 {
			return spare
		}
		s.mul(s.t, s.t, s.v)
		s.t, s.v = s.v, s.t
	}
}

// measure sets err = max|M-I|.
func (s *coupled[T]) measure() { s.err = s.c.ops.IdentityError(s.m) }

// stalled reports that rounding has made a small error grow, and takes back the last X.
func (s *coupled[T]) stalled(before float64) bool {
	if !(before < 1e-3 && s.err >= before) {
		return false
	}
	s.x, s.w = s.w, s.x
	s.err = before
	return true
}

// check verifies A*X^p = I on the probe vector: X^p*(A*v) against v, to 0.1 of
// its length (the limit of facebookresearch/optimizers for max|A*X^p-I|).
func (s *coupled[T]) check(ridge float64) error {
	c := s.c
	v, y, z := c.probe[:c.n], c.tri.y[:c.n], c.tri.x[:c.n]
	for i, x := range v {
		y[i] = c.image[i] + T(ridge)*x
	}
	for range s.p {
		c.k.dots(z, s.x, y)
		y, z = z, y
	}
	sum := 0.0
	for i, x := range v {
		sum += float64(y[i]-x) * float64(y[i]-x)
	}
	if r := math.Sqrt(sum / float64(c.n)); !(r <= 0.1) {
		return &ConvergenceError{Stage: "residual", Order: c.n, Iterations: s.iterations, Residual: r}
	}
	return nil
}

// verdict turns the end of an iteration into an error unless it is good.
func (s *coupled[T]) verdict(stage string, good bool) error {
	if good {
		return nil
	}
	residual := s.err
	if math.IsNaN(residual) {
		residual = math.Inf(1)
	}
	return &ConvergenceError{Stage: stage, Order: s.c.n, Iterations: s.iterations, Residual: residual}
}

// raise sets X = X^q, on the host when it returns.
func (s *coupled[T]) raise(q int) error {
	if q == 1 {
		return nil
	}
	s.c.ops.Shift(s.m, s.m, 0, 1)
	for {
		if q&1 == 1 {
			s.mul(s.m, s.x, s.v)
			s.m, s.v = s.v, s.m
		}
		if q >>= 1; q == 0 {
			s.x = s.m
			return s.c.ops.Sync()
		}
		s.mul(s.x, s.x, s.v)
		s.x, s.v = s.v, s.x
	}
}
