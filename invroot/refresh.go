package invroot

import (
	"context"
	"fmt"
	"math"

	"github.com/asteria-runtime/asteria/gemm"
)

// RefreshBasis replaces the n×n basis q, orthonormal columns, by a newer one
// for the symmetric a, as Options.BasisRefresh says. With perm of length n it
// ranks the old columns by descending diag(qᵀaq), stable, and stores perm[new]
// = old: second moments kept per column follow it. With perm nil the QR refresh
// keeps the column order (KL-Shampoo's eigenvalues stay attached to their
// columns); the Eigh refresh is descending in any case.
//
// q is written on success only. Errors: ErrNonFinite, ErrNotConverged, ctx's.
func (s *Solver[T]) RefreshBasis(ctx context.Context, q, a gemm.Matrix[T], perm []int) (Report, error) {
	if s.opts.BasisRefresh == QR {
		return s.Iterate(ctx, q, a, perm)
	}
	s.checkBasis(q, a, perm)
	rep, err := s.eighRefresh(ctx, q, a, perm)
	return rep, s.count(err)
}

func (s *Solver[T]) checkBasis(q, a gemm.Matrix[T], perm []int) {
	requireSquare(a, a.Rows)
	requireSquare(q, a.Rows)
	if perm != nil && len(perm) != a.Rows {
		panic("invroot: perm is not of length n")
	}
}

// eighRefresh ranks the old columns, then replaces them by the eigenvectors in
// descending order.
func (s *Solver[T]) eighRefresh(ctx context.Context, q, a gemm.Matrix[T], perm []int) (Report, error) {
	top, err := s.admitBasis(ctx, q, a)
	if err != nil || a.Rows == 0 {
		return Report{Precision: s.first()}, err
	}
	c := s.own
	if err := projectInto(c, q, a, powerOfTwo(top)); err != nil {
		return Report{Precision: s.first()}, err
	}
	ranks := c.ranks[:c.n]
	c.rank(ranks)
	w := c.estimateBuffer()
	rep, err := s.eigenSym(ctx, q, w, a, true)
	if err == nil && perm != nil {
		copy(perm, ranks)
	}
	return rep, err
}

// estimateBuffer is room for n eigenvalues nobody asked for.
func (c *core[T]) estimateBuffer() []T { return c.tri.x[:c.n] }

// admitBasis is admit for a matrix and a basis.
func (s *Solver[T]) admitBasis(ctx context.Context, q, a gemm.Matrix[T]) (float64, error) {
	top, err := s.admit(ctx, a)
	if err == nil && !finite(q) {
		err = ErrNonFinite
	}
	return top, err
}

// Iterate replaces q by one step of orthogonal iteration, the Q of Householder
// QR of a*q[:,perm] (nikhilvyas/SOAP), with perm as in RefreshBasis. The
// factors' signs are the algorithm's own.
func (s *Solver[T]) Iterate(ctx context.Context, q, a gemm.Matrix[T], perm []int) (Report, error) {
	s.checkBasis(q, a, perm)
	rep, err := s.iterate(ctx, q, a, perm)
	return rep, s.count(err)
}

func (s *Solver[T]) iterate(ctx context.Context, q, a gemm.Matrix[T], perm []int) (Report, error) {
	rep := Report{Precision: s.first(), Iterations: 1}
	top, err := s.admitBasis(ctx, q, a)
	if err != nil || a.Rows == 0 {
		return rep, err
	}
	if rep.Precision == Double {
		return rep, iterateInto(ctx, s.double(), q, a, perm, powerOfTwo(top), &rep)
	}
	return rep, iterateInto(ctx, s.own, q, a, perm, powerOfTwo(top), &rep)
}

// iterateInto runs the step with the core c.
func iterateInto[U, T gemm.Float](ctx context.Context, c *core[U], q, a gemm.Matrix[T], perm []int, scale float64, rep *Report) error {
	if err := projectInto(c, q, a, scale); err != nil {
		return err
	}
	n := c.n
	rep.LambdaMin, rep.LambdaMax = c.extremeEstimates(scale)
	ranks := c.ranks[:n]
	if perm != nil {
		c.rank(ranks)
	} else {
		for i := range ranks {
			ranks[i] = i
		}
	}
	if err := c.wait.poll(ctx); err != nil {
		return err
	}
	y, out := c.view(c.g), c.view(c.z)
	for i, old := range ranks {
		copyNormalised(y.Row(i), c.u.Row(old)[:n])
	}
	f := c.factorizer()
	f.factor(y, gemm.Matrix[U]{})
	if err := c.wait.poll(ctx); err != nil {
		return err
	}
	f.form(out, y)
	c.wait.point()
	if !finite(out) {
		return ErrRange
	}
	transpose(q, out)
	copy(perm, ranks)
	return nil
}

// projectInto sets c.z = qᵀ, c.u = qᵀ*(scale*a) and c.estimate =
// diag(qᵀ*a*q)*scale: one product, from which both the ranking and the
// factorization read.
func projectInto[U, T gemm.Float](c *core[U], q, a gemm.Matrix[T], scale float64) error {
	loadLower(c, a, scale)
	mirror(c.view(c.a))
	qt, y := c.view(c.z), c.view(c.u)
	transpose(qt, q)
	c.wait.point()
	c.ops.Gemm(false, false, 1, qt, c.view(c.a), 0, y)
	c.wait.point()
	d := c.tri.y[:c.n]
	c.ops.RowDots(d, y, qt)
	for i, v := range d {
		c.estimate[i] = float64(v)
	}
	return c.ops.Sync()
}

// extremeEstimates returns the ends of diag(qᵀaq), in the caller's units.
func (c *core[T]) extremeEstimates(scale float64) (lo, hi float64) {
	lo, hi = math.Inf(1), math.Inf(-1)
	for _, v := range c.estimate[:c.n] {
		lo, hi = min(lo, v/scale), max(hi, v/scale)
	}
	return lo, hi
}

// rank fills order with the columns by descending estimate; equal ones keep
// their order. Merge sort: stable, no allocation.
func (c *core[T]) rank(order []int) {
	for i := range order {
		order[i] = i
	}
	est, n := c.estimate, len(order)
	from, to := order, c.div.index[:n]
	for width := 1; width < n; width *= 2 {
		for lo := 0; lo < n; lo += 2 * width {
			mid, hi := min(lo+width, n), min(lo+2*width, n)
			a, b := lo, mid
			for i := lo; i < hi; i++ {
				if b >= hi || (a < mid && est[from[a]] >= est[from[b]]) {
					to[i] = from[a]
					a++
				} else {
					to[i] = from[b]
					b++
				}
			}
		}
		from, to = to, from
	}
	copy(order, from)
}

// copyNormalised copies src to dst, scaled by a power of two to about 1: the Q of an
// LQ does not depend on the lengths of the rows, and squares of tiny ones would underflow.
func copyNormalised[T gemm.Float](dst, src []T) {
	s := T(powerOfTwo(float64(maxAbsRow(src))))
	for i, v := range src {
		dst[i] = v * s
	}
}

// Diagonalize runs the QR algorithm of facebookresearch/optimizers on the basis
// q in place: B = qᵀ*a*q; while the off-diagonal part of B exceeds tol*‖B‖_F
// and fewer than maxIter steps are done, (Q, R) = qr(B), B = R*Q, q = q*Q. It
// ends with the columns in ascending order of w = diag(B), stable. q and w are
// written on success only.
func (s *Solver[T]) Diagonalize(ctx context.Context, q gemm.Matrix[T], w []T, a gemm.Matrix[T], maxIter int, tol float64) (Report, error) {
	s.checkBasis(q, a, nil)
	if len(w) != a.Rows {
		panic("invroot: w is not of length n")
	}
	rep, err := s.diagonalize(ctx, q, w, a, maxIter, tol)
	return rep, s.count(err)
}

func (s *Solver[T]) diagonalize(ctx context.Context, q gemm.Matrix[T], w []T, a gemm.Matrix[T], maxIter int, tol float64) (Report, error) {
	rep := Report{Precision: s.first()}
	if maxIter < 0 || !(tol >= 0) {
		return rep, fmt.Errorf("invroot: Diagonalize: maxIter %d and tol %v: want ≥ 0", maxIter, tol)
	}
	top, err := s.admitBasis(ctx, q, a)
	if err != nil || a.Rows == 0 {
		return rep, err
	}
	r := qrAlgorithm{maxIter: maxIter, tol: tol, scale: powerOfTwo(top)}
	if rep.Precision == Double {
		err = diagonalizeInto(ctx, s.double(), q, w, a, r, &rep)
	} else {
		err = diagonalizeInto(ctx, s.own, q, w, a, r, &rep)
	}
	return rep, err
}

// qrAlgorithm holds the limits of a run and the factor that loads the matrix.
type qrAlgorithm struct {
	maxIter    int
	tol, scale float64
}

// diagonalizeInto runs the QR algorithm with the core c, the basis held as rows.
func diagonalizeInto[U, T gemm.Float](ctx context.Context, c *core[U], q gemm.Matrix[T], w []T, a gemm.Matrix[T], r qrAlgorithm, rep *Report) error {
	if err := projectInto(c, q, a, r.scale); err != nil {
		return err
	}
	n := c.n
	// qt holds the basis as rows, b the projected matrix.
	qt, b, l, next := c.view(c.z), c.view(c.a), c.view(c.u), c.view(c.g)
	gemm.Mul(c.eng, false, true, 1, l, qt, 0, b)
	rotation := c.view(c.spare())
	f := c.factorizer()
	for rep.Residual = offDiagonal(b); rep.Residual > r.tol && rep.Iterations < r.maxIter; rep.Residual = offDiagonal(b) {
		if err := c.wait.poll(ctx); err != nil {
			return err
		}
		// B is symmetric: its LQ is B = L*P, so qr(B) is (Pᵀ, Lᵀ) and RQ = (P*L)ᵀ.
		transpose(next, b)
		clearMatrix(l)
		f.factor(next, l)
		f.form(rotation, next)
		c.wait.point()
		gemm.Mul(c.eng, true, true, 1, l, rotation, 0, b)
		c.wait.point()
		gemm.Mul(c.eng, false, false, 1, rotation, qt, 0, next)
		qt, next = next, qt
		rep.Iterations++
	}
	if !finite(qt) || !finite(b) {
		return ErrRange
	}
	for i := range n {
		c.estimate[i] = -float64(b.At(i, i))
	}
	order := c.ranks[:n]
	c.rank(order)
	for i, from := range order {
		copy(next.Row(i), qt.Row(from))
		w[i] = T(-c.estimate[from] / r.scale)
	}
	transpose(q, next)
	rep.LambdaMin, rep.LambdaMax = float64(w[0]), float64(w[n-1])
	return nil
}

func clearMatrix[T gemm.Float](m gemm.Matrix[T]) {
	for i := range m.Rows {
		clear(m.Row(i))
	}
}

// offDiagonal returns the Frobenius norm of b without its diagonal, relative to the whole.
func offDiagonal[T gemm.Float](b gemm.Matrix[T]) float64 {
	all, off := 0.0, 0.0
	for i := range b.Rows {
		for j, v := range b.Row(i) {
			x := float64(v) * float64(v)
			all += x
			if i != j {
				off += x
			}
		}
	}
	if all == 0 {
		return 0
	}
	return math.Sqrt(off / all)
}
