package invroot

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/asteria-runtime/asteria/gemm"
)

// Polynomial is one step X = a*X + b*(XXᵀ)X + c*(XXᵀ)²X, a map of the singular
// values alone.
type Polynomial struct{ A, B, C float64 }

// Muon is the quintic of KellerJordan/Muon; five steps bring the singular values
// of well-conditioned matrices into [0.68, 1.2], not to 1.
var Muon = Polynomial{3.4445, -4.7750, 2.0315}

// NewtonSchulz is the quintic that converges to 1 from (0, √(7/3)), of third order.
var NewtonSchulz = Polynomial{15.0 / 8, -10.0 / 8, 3.0 / 8}

// PolarExpress returns the steps of Amsel et al. 2025 (arXiv 2505.16932): step
// by step the quintic that brings the singular values in [l, u] closest to 1,
// found with a Remez exchange on four points, where u starts at 1 and l at
// lower. With cushion > 0 a step is designed for [max(l, cushion*u), u] and
// rescaled about the true interval: slower in theory, safer when lower is a
// guess.
func PolarExpress(lower float64, steps int, cushion float64) ([]Polynomial, error) {
	if !(lower > 0 && lower <= 1) || steps < 0 || !(cushion >= 0 && cushion < 1) {
		return nil, fmt.Errorf("invroot: PolarExpress(%v, %d, %v): want 0 < lower ≤ 1, steps ≥ 0, 0 ≤ cushion < 1", lower, steps, cushion)
	}
	out := make([]Polynomial, 0, steps)
	l, u := lower, 1.0
	for range steps {
		p := remez(max(l, cushion*u), u)
		s := 2 / (p.at(l) + p.at(u))
		p = Polynomial{p.A * s, p.B * s, p.C * s}
		out = append(out, p)
		l = p.at(l)
		u = 2 - l
	}
	return out, nil
}

// at returns the image of the singular value x.
func (p Polynomial) at(x float64) float64 {
	return x * (p.A + x*x*(p.B+x*x*p.C))
}

// remez returns the odd quintic closest to 1 on [l, u]: its error alternates at l, two
// inner extrema and u.
func remez(l, u float64) Polynomial {
	if l/u >= 1-5e-6 { // the limit l → u, beyond which the system is singular in float64
		v := u * u
		return Polynomial{15.0 / 8 / u, -10.0 / 8 / (u * v), 3.0 / 8 / (u * v * v)}
	}
	q, r := (3*l+u)/4, (l+3*u)/4
	var p Polynomial
	for last, i := math.Inf(1), 0; i < 200; i++ {
		var e float64
		p, e = alternating(l, q, r, u)
		if math.Abs(last-e) <= 1e-15 {
			break
		}
		last = e
		root := math.Sqrt(max(0, 9*p.B*p.B-20*p.A*p.C))
		q = math.Sqrt((-3*p.B - root) / (10 * p.C))
		r = math.Sqrt((-3*p.B + root) / (10 * p.C))
	}
	return p
}

// alternating solves p(x_i) + (-1)^i*e = 1 on four points.
func alternating(x ...float64) (Polynomial, float64) {
	var m [4][5]float64
	sign := 1.0
	for i, v := range x {
		m[i] = [5]float64{v, v * v * v, v * v * v * v * v, sign, 1}
		sign = -sign
	}
	for c := range 4 { // elimination with partial pivoting
		best := c
		for r := c + 1; r < 4; r++ {
			if math.Abs(m[r][c]) > math.Abs(m[best][c]) {
				best = r
			}
		}
		m[c], m[best] = m[best], m[c]
		for r := range 4 {
			if r == c {
				continue
			}
			f := m[r][c] / m[c][c]
			for k := c; k < 5; k++ {
				m[r][k] -= f * m[c][k]
			}
		}
	}
	return Polynomial{m[0][4] / m[0][0], m[1][4] / m[1][1], m[2][4] / m[2][2]}, m[3][4] / m[3][3]
}

// Orthogonalize sets dst to the image of the m×n matrix g under the steps, after division
// by max(‖g‖_F, 1e-8): the singular vectors stay, the singular values move towards 1. It
// works on the orientation with fewer rows. g and dst may be the same; neither side may
// exceed the solver's order. Errors: ErrNonFinite, ErrRange, ctx's.
func (s *Solver[T]) Orthogonalize(ctx context.Context, dst, g gemm.Matrix[T], steps []Polynomial) (Report, error) {
	rep, err := s.orthogonalize(ctx, dst, g, steps, 0)
	return rep, s.count(err)
}

// Polar sets dst to the orthogonal polar factor U*Vᵀ of the m×n matrix g =
// U*Σ*Vᵀ of full rank: Polar Express steps for singular values down to 1e-6 of
// ‖g‖_F, then NewtonSchulz until max|XXᵀ-I| is at rounding level. Auto
// precision means float64 here. It fails with ErrNotConverged when g is rank
// deficient.
func (s *Solver[T]) Polar(ctx context.Context, dst, g gemm.Matrix[T]) (Report, error) {
	steps, err := PolarExpress(1e-6, 12, 0)
	if err != nil {
		return Report{}, err
	}
	rep, err := s.orthogonalize(ctx, dst, g, steps, s.opts.MaxIterations)
	return rep, s.count(err)
}

// orthogonalize checks the arguments and runs the steps in the precision of
// first(), then up to polish steps of NewtonSchulz.
func (s *Solver[T]) orthogonalize(ctx context.Context, dst, g gemm.Matrix[T], steps []Polynomial, polish int) (Report, error) {
	if dst.Rows != g.Rows || dst.Cols != g.Cols {
		panic("invroot: dst and g differ in shape")
	}
	if max(g.Rows, g.Cols) > s.max {
		panic("invroot: order exceeds the solver's limit")
	}
	rep := Report{Precision: s.first()}
	if polish > 0 && s.opts.Precision == Auto {
		rep.Precision = Double // the polar factor magnifies rounding by the condition number
	}
	switch {
	case !finite(g):
		return rep, ErrNonFinite
	case g.Rows == 0 || g.Cols == 0:
		return rep, nil
	case rep.Precision == Double:
		return orthogonalizeInto(ctx, s.double(), dst, g, steps, polish)
	}
	rep, err := orthogonalizeInto(ctx, s.own, dst, g, steps, polish)
	if polish > 0 && errors.Is(err, ErrNotConverged) {
		s.stats.Retried++
		rep, err = orthogonalizeInto(ctx, s.double(), dst, g, steps, polish)
		rep.Retries = 1
	}
	return rep, err
}

// orthogonalizeInto iterates with the core c. polish bounds the NewtonSchulz steps
// after the given ones, 0 for none.
func orthogonalizeInto[U, T gemm.Float](ctx context.Context, c *core[U], dst, g gemm.Matrix[T], steps []Polynomial, polish int) (Report, error) {
	rep := Report{Precision: Single}
	if unit[U]() < 0x1p-30 {
		rep.Precision = Double
	}
	m, n := min(g.Rows, g.Cols), max(g.Rows, g.Cols)
	x, next := c.z.Slice(0, 0, m, n), c.u.Slice(0, 0, m, n)
	turned := g.Rows > g.Cols
	if turned {
		transpose(x, g)
	} else {
		convert(x, g, 1)
	}
	// ‖g‖_F over- and underflows by way of its squares: take the largest element out first.
	top := powerOfTwo(maxAbs(x))
	scaleAll(x, top)
	norm := frobenius(x)
	scaleAll(x, 1/max(norm, 1e-8*top))
	limit := 8 * float64(m) * unit[U]()
	for i := 0; i < len(steps)+polish; i++ {
		if err := c.wait.poll(ctx); err != nil {
			return rep, err
		}
		p := NewtonSchulz
		if i < len(steps) {
			p = steps[i]
		}
		rep.Residual = quintic(c, next, x, p)
		if i >= len(steps) && rep.Residual <= limit {
			break
		}
		x, next = next, x
		rep.Iterations++
	}
	if !finite(x) {
		return rep, ErrRange
	}
	if polish > 0 && !(rep.Residual <= limit) {
		return rep, &ConvergenceError{Stage: "polar", Order: m, Iterations: rep.Iterations, Residual: rep.Residual}
	}
	if turned {
		transpose(dst, x)
	} else {
		convert(dst, x, 1)
	}
	return rep, nil
}

// quintic sets next = a*x + (b*G + c*G²)*x with G = x*xᵀ, and returns max|G-I|.
func quintic[T gemm.Float](c *core[T], next, x gemm.Matrix[T], p Polynomial) float64 {
	m := x.Rows
	g, h := c.a.Slice(0, 0, m, m), c.g.Slice(0, 0, m, m)
	gemm.Syrk(c.eng, false, 1, x, 0, g)
	mirror(g)
	residual := 0.0
	for i := range m {
		row, out := g.Row(i), h.Row(i)
		for j, v := range row {
			d := math.Abs(float64(v))
			if i == j {
				d = math.Abs(float64(v) - 1)
			}
			residual = max(residual, d)
			out[j] = T(p.B) * v
		}
	}
	gemm.Mul(c.eng, false, false, T(p.C), g, g, 1, h)
	gemm.Mul(c.eng, false, false, 1, h, x, 0, next)
	for i := range m {
		out := next.Row(i)
		for j, v := range x.Row(i) {
			out[j] += T(p.A) * v
		}
	}
	return residual
}

func scaleAll[T gemm.Float](m gemm.Matrix[T], s float64) {
	for i := range m.Rows {
		scaleRow(m.Row(i), T(s))
	}
}
