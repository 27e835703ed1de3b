package invroot

import (
	"context"

	"github.com/asteria-runtime/asteria/gemm"
)

// QR sets q to the orthogonal factor of the Householder QR of the n×n matrix a,
// which need not be symmetric; the signs are the algorithm's own. q, which may be
// a, is written on success only. Errors: ErrNonFinite, ErrRange, ctx's.
func (s *Solver[T]) QR(ctx context.Context, q, a gemm.Matrix[T]) (Report, error) {
	requireSquare(a, a.Rows)
	requireSquare(q, a.Rows)
	rep := Report{Precision: Double, Iterations: 1}
	if s.single() {
		rep.Precision = Single
	}
	if _, err := s.admit(ctx, a); err != nil || a.Rows == 0 {
		return rep, s.count(err)
	}
	c := s.own
	c.n = a.Rows
	at, out := c.view(c.g), c.view(c.z)
	transpose(at, a)
	for i := range c.n {
		copyNormalised(at.Row(i), at.Row(i))
	}
	f := c.factorizer()
	f.factor(at, gemm.Matrix[T]{})
	f.form(out, at)
	if !finite(out) {
		return rep, s.count(ErrRange)
	}
	transpose(q, out)
	return rep, s.count(nil)
}
