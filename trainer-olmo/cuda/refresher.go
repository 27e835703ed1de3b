package cuda

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sort"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/gemm/vec"
	"github.com/asteria-runtime/asteria/invroot"
	"github.com/asteria-runtime/asteria/streams"
)

// Stats counts who computed a refresher's results.
type Stats struct {
	Device int64 // on the device
	Host   int64 // by the host's solver: not a task for the device, or not done well by it
}

// Refresher is kron.Refresher on a device, with the solver of the host behind it
// for what the package comment names. Host memory is staged; only the lower
// triangle of a symmetric matrix is read. One goroutine at a time.
type Refresher[T gemm.Float] struct {
	*lane
	host   *invroot.Refresher[T]
	opts   invroot.Options
	max    int
	solver *streams.Solver // nil: eigendecompositions are the host's

	work  []uintptr // n×n matrices, made when first needed
	wide  []uintptr // the same in double precision, beside single
	small uintptr   // n doubles, or indices
	flag  uintptr   // an int
	cells []T       // n×n on the host
	value []float64 // n
	order []int     // n
	rep   invroot.Report
	stats Stats
}

// errHost sends a task to the host's solver.
var errHost = errors.New("cuda: left to the host")

// NewRefresher returns a refresher for orders up to maxOrder on a low-priority
// stream of its own: refreshes run beside training. host, whose options those of
// the device follow, stays the caller's to close.
func NewRefresher[T gemm.Float](c *Context, maxOrder int, host *invroot.Solver[T], opts invroot.Options) (*Refresher[T], error) {
	if maxOrder < 0 || host == nil {
		return nil, fmt.Errorf("cuda: refresher of order %d with host solver %v: want 0 or more, and a solver", maxOrder, host)
	}
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	l, err := c.newLane(streams.Low)
	if err != nil {
		return nil, err
	}
	r := &Refresher[T]{
		lane: l, host: invroot.NewRefresher(host), opts: opts, max: maxOrder,
		cells: make([]T, maxOrder*maxOrder), value: make([]float64, maxOrder), order: make([]int, maxOrder),
	}
	if !c.options.OwnKernels {
		if r.solver, err = l.stream.Solver(); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return nil, errors.Join(err, l.close())
		}
	}
	return r, nil
}

// Close gives the stream and its memory up.
func (r *Refresher[T]) Close() error {
	var err error
	if r.solver != nil {
		r.wait()
		err = r.solver.Close()
	}
	return errors.Join(err, r.lane.close())
}

// Report returns the evidence of the last call.
func (r *Refresher[T]) Report() invroot.Report { return r.rep }

// Stats returns the counters so far.
func (r *Refresher[T]) Stats() Stats { return r.stats }

// settle ends a call: done on the device, failed, or the host's.
func (r *Refresher[T]) settle(err error, host func() error) error {
	if err == errHost && r.err == nil {
		r.stats.Host++
		err := host()
		r.rep = r.host.Report()
		return err
	}
	if r.err != nil {
		return r.err
	}
	if err == nil {
		r.stats.Device++
	}
	return err
}

// matrix returns the i-th n×n buffer on the device.
func (r *Refresher[T]) matrix(i, n int) operand {
	bytes := int64(len(bytesOf(r.cells)))
	for len(r.work) <= i {
		r.work = append(r.work, r.temporary(bytes))
	}
	if r.small == 0 {
		r.small, r.flag = r.temporary(int64(8*r.max)), r.temporary(8)
	}
	return operand{r.work[i], n}
}

// shape is what the host learns of a matrix while it looks for bad numbers.
type shape struct {
	trace, frobenius float64
	scale            float64 // power of two that brings the largest magnitude near 1
}

// admit refuses what no solver can use; zero matrices and empty ones are the host's.
func (r *Refresher[T]) admit(ctx context.Context, a gemm.Matrix[T]) (shape, error) {
	if a.Rows != a.Cols {
		panic("cuda: matrix is not square")
	}
	if a.Rows > r.max {
		panic("cuda: order exceeds the refresher's limit")
	}
	if err := ctx.Err(); err != nil {
		return shape{}, err
	}
	var s shape
	if a.Rows < r.c.options.MinOrder {
		return s, errHost
	}
	top, sum := 0.0, 0.0
	for i := range a.Rows {
		row := a.Row(i)
		if !vec.Finite(row) {
			return shape{}, invroot.ErrNonFinite
		}
		for j := range i + 1 {
			v := math.Abs(float64(row[j]))
			top = max(top, v)
			sum += v * v
			if j < i {
				sum += v * v
			}
		}
		s.trace += float64(row[i])
	}
	if top == 0 || a.Rows == 0 {
		return s, errHost
	}
	_, e := math.Frexp(top)
	s.scale, s.frobenius = math.Ldexp(1, -e), math.Sqrt(sum)
	return s, nil
}

// load puts factor*a + diagonal*I into buffer to, by way of buffer via.
func (r *Refresher[T]) load(a gemm.Matrix[T], via, to operand, factor, diagonal float64) {
	n := a.Rows
	r.put(a, via)
	r.each(kernel[T](r.c, "load_symmetric"), n*n, size(n), streams.Address(to.addr), streams.Address(via.addr), number(T(factor)), number(T(diagonal)))
}

// put copies a matrix of the host to the device, packed.
func (r *Refresher[T]) put(a gemm.Matrix[T], to operand) {
	n := a.Rows
	packed := r.cells[:n*n]
	for i := range n {
		copy(packed[i*n:], a.Row(i))
	}
	r.upload(to.addr, bytesOf(packed))
}

// get copies an n×n buffer to the host and reports whether it is finite.
func (r *Refresher[T]) get(from operand, n int) ([]T, bool) {
	packed := r.cells[:n*n]
	r.download(bytesOf(packed), from.addr)
	return packed, r.err == nil && vec.Finite(packed)
}

func (r *Refresher[T]) square(n int, a, b, c operand) {
	product[T](r.lane, n, n, n, false, false, 1, a, b, 0, c)
}

// identityError returns max|M-I|, not a number where M has one.
func (r *Refresher[T]) identityError(n int, m operand) float64 {
	r.blocks(kernel[T](r.c, "identity_error"), min(n, maxBlocks), size(n), streams.Address(r.small), streams.Address(m.addr))
	return largest(r.doubles(n))
}

// largest returns the largest of values that are not negative, and not a number where
// one of them is none: then no convergence may be believed.
func largest(values []float64) float64 {
	worst := 0.0
	for _, v := range values {
		worst = max(worst, v) // unlike a comparison, max keeps what is not a number
	}
	return worst
}

// doubles reads the first n numbers of small.
func (r *Refresher[T]) doubles(n int) []float64 {
	r.download(bytesOf(r.value[:n]), r.small)
	return r.value[:n]
}

// Root implements kron.Refresher: by eigenvalues where the options' method is Eigen
// and cuSOLVER is found; by the coupled Newton iteration of [invroot.CoupledNewton]
// otherwise, for exponents 1/p; by the host's solver for the rest.
func (r *Refresher[T]) Root(ctx context.Context, dst, a gemm.Matrix[T], exponent float64) error {
	err := r.root(ctx, dst, a, exponent)
	return r.settle(err, func() error { return r.host.Root(ctx, dst, a, exponent) })
}

// maxRoot bounds p.
const maxRoot = 64

func (r *Refresher[T]) root(ctx context.Context, dst, a gemm.Matrix[T], exponent float64) error {
	s, err := r.admit(ctx, a)
	if err != nil {
		return err
	}
	if !(exponent > 0) || r.opts.PseudoInverse || r.opts.TraceScaling {
		return errHost
	}
	if r.opts.Method == invroot.Eigen && r.solver != nil {
		return r.spectralRoot(ctx, dst, a, exponent, s)
	}
	p := int(math.Round(1 / exponent))
	if p < 1 || p > maxRoot || math.Abs(exponent*float64(p)-1) > 1e-12 {
		return errHost
	}
	ridge, ok := r.ridge(s)
	if !ok {
		return errHost
	}
	return r.newton(ctx, dst, a, newton[T]{p: p, ridge: ridge, shape: s})
}

// ridge is what is added to the diagonal. The largest eigenvalue, to which a
// relative one refers, is bounded from below by ‖A‖²/trace for a semidefinite A; a
// matrix whose trace says that it is not one is the host's.
func (r *Refresher[T]) ridge(s shape) (ridge float64, ok bool) {
	if !(s.trace > 0) {
		return 0, false
	}
	switch r.opts.Ridge.Kind {
	case invroot.Absolute:
		return r.opts.Ridge.Value, true
	case invroot.None:
		return 0, true
	}
	value := r.opts.Ridge.Value
	if value == 0 {
		value = invroot.DefaultRidge
	}
	return value * s.frobenius * s.frobenius / s.trace, true
}

// newton is one coupled Newton iteration and its buffers: X → A^(-1/p), M → I.
type newton[T gemm.Float] struct {
	shape
	p           int
	ridge       float64
	x, m, t, u  operand
	v           operand // free
	before, err float64
}

// tolerance on max|M-I|, and where rounding may end the iteration earlier.
func tolerance[T gemm.Float]() float64 {
	if double[T]() {
		return 1e-13
	}
	return 1e-6
}

func (r *Refresher[T]) newton(ctx context.Context, dst, a gemm.Matrix[T], w newton[T]) error {
	n := a.Rows
	w.x, w.m, w.t, w.u, w.v = r.matrix(0, n), r.matrix(1, n), r.matrix(2, n), r.matrix(3, n), r.matrix(4, n)
	norm := w.scale * math.Sqrt(w.frobenius*w.frobenius+2*w.ridge*w.trace+float64(n)*w.ridge*w.ridge)
	z := float64(w.p+1) / (2 * norm)
	r.load(a, w.t, w.m, w.scale*z, w.ridge*w.scale*z)
	r.fail(r.stream.SetBytes(w.x.addr, 0, int64(len(bytesOf(r.cells[:n*n])))))
	r.shift(n, w.x, w.x, 1, math.Pow(z, 1/float64(w.p)))
	w.err = r.identityError(n, w.m)
	steps := 0
	limit := r.opts.MaxIterations
	if limit == 0 {
		limit = 100
	}
	for ; w.err > tolerance[T](); steps++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if r.err != nil || steps == limit {
			return errHost
		}
		if done := r.advance(n, &w); done {
			break
		}
	}
	if !(w.err < 1e-3) || !r.verified(n, a, &w) {
		return errHost
	}
	return r.deliver(dst, n, &w, steps)
}

// advance is one step; done says that rounding ended the iteration, X is then the
// one before.
func (r *Refresher[T]) advance(n int, w *newton[T]) (done bool) {
	p := float64(w.p)
	r.shift(n, w.t, w.m, -1/p, 1+1/p)
	r.square(n, w.x, w.t, w.u)
	w.x, w.u = w.u, w.x // the old X stays in u
	spare := r.matrix(5, n)
	for q := w.p; ; {
		if q&1 == 1 {
			r.square(n, w.t, w.m, w.v)
			w.m, w.v = w.v, w.m
		}
		if q >>= 1; q == 0 {
			break
		}
		r.square(n, w.t, w.t, spare)
		w.t, spare = spare, w.t
	}
	r.work[5], r.work[2] = spare.addr, w.t.addr
	w.before, w.err = w.err, r.identityError(n, w.m)
	if w.before < 1e-3 && !(w.err < w.before) {
		w.x, w.u, w.err = w.u, w.x, w.before
		return true
	}
	return math.IsNaN(w.err)
}

// shift sets t = factor*m + diagonal*I.
func (r *Refresher[T]) shift(n int, t, m operand, factor, diagonal float64) {
	r.each(kernel[T](r.c, "shifted"), n*n, size(n), streams.Address(t.addr), streams.Address(m.addr), number(T(factor)), number(T(diagonal)))
}

// verified checks A*X^p = I on a fixed vector v: X^p*(A*v) against v, to 0.1 of its
// length, the limit of facebookresearch/optimizers for max|A*X^p-I|.
func (r *Refresher[T]) verified(n int, a gemm.Matrix[T], w *newton[T]) bool {
	r.load(a, w.v, w.m, w.scale, w.ridge*w.scale)
	probe := r.cells[:n]
	for i := range probe {
		probe[i] = T(1 + 0.5*math.Sin(float64(3*i+1)))
	}
	from, to := operand{w.t.addr, 1}, operand{w.v.addr, 1}
	r.upload(from.addr, bytesOf(probe))
	product[T](r.lane, n, 1, n, false, false, 1, w.m, from, 0, to)
	for range w.p {
		from, to = to, from
		product[T](r.lane, n, 1, n, false, false, 1, w.x, from, 0, to)
	}
	r.download(bytesOf(probe), to.addr)
	diff, norm := 0.0, 0.0
	for i, v := range probe {
		want := 1 + 0.5*math.Sin(float64(3*i+1))
		diff += (float64(v) - want) * (float64(v) - want)
		norm += want * want
	}
	return r.err == nil && diff <= 0.01*norm
}

// deliver undoes the scaling, symmetrizes, and writes dst when it is finite.
func (r *Refresher[T]) deliver(dst gemm.Matrix[T], n int, w *newton[T], steps int) error {
	r.each(kernel[T](r.c, "symmetrize"), n*n, size(n), streams.Address(w.u.addr), streams.Address(w.x.addr))
	r.each(kernel[T](r.c, "scale"), n*n, size(n*n), number(T(math.Pow(w.scale, 1/float64(w.p)))), streams.Address(w.u.addr))
	x, ok := r.get(w.u, n)
	if !ok {
		return errHost
	}
	for i := range n {
		copy(dst.Row(i), x[i*n:(i+1)*n])
	}
	r.rep = invroot.Report{
		Method: invroot.CoupledNewton, Precision: precision[T](), Iterations: steps, Residual: w.err, Ridge: w.ridge,
		LambdaMax: w.frobenius * w.frobenius / w.trace,
	}
	return nil
}

func precision[T gemm.Float]() invroot.Precision {
	if double[T]() {
		return invroot.Double
	}
	return invroot.Single
}

// Iterate implements kron.Refresher: one step of orthogonal iteration by
// Cholesky-QR, twice, after the columns were brought to length one. It fails for
// factors that are nearly singular, which it notices by a pivot that is not
// positive or by columns that are not orthonormal; those are the host's, by
// Householder reflectors.
func (r *Refresher[T]) Iterate(ctx context.Context, q, a gemm.Matrix[T], perm []int) error {
	err := r.iterate(ctx, q, a, perm)
	return r.settle(err, func() error { return r.host.Iterate(ctx, q, a, perm) })
}

func (r *Refresher[T]) iterate(ctx context.Context, q, a gemm.Matrix[T], perm []int) error {
	s, err := r.admit(ctx, a)
	if err != nil {
		return err
	}
	if _, err := r.admit(ctx, q); err != nil {
		return err
	}
	if r.opts.BasisRefresh != invroot.QR {
		return errHost
	}
	n := a.Rows
	basis, m, y, z, g := r.matrix(0, n), r.matrix(1, n), r.matrix(2, n), r.matrix(3, n), r.matrix(4, n)
	r.load(a, y, m, s.scale, 0)
	r.put(q, basis)
	r.square(n, m, basis, y)
	r.rank(n, basis, y, perm != nil)
	r.upload(r.small, bytesOf(r.order[:n]))
	r.each(kernel[T](r.c, "permute_mode"), n*n, size(n), size(n), size(1), streams.Address(z.addr), streams.Address(y.addr), streams.Address(r.small))
	if !r.unitColumns(n, z) || ctx.Err() != nil {
		return r.either(ctx)
	}
	for range 2 {
		if !r.choleskyQR(n, z, g) {
			return r.either(ctx)
		}
	}
	return r.deliverBasis(q, n, z, g, m, perm)
}

// either is ctx's error, or the way to the host.
func (r *Refresher[T]) either(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return errHost
}

// rank fills order with the columns by descending diag(qᵀaq), equal ones in their
// order, or with the identity.
func (r *Refresher[T]) rank(n int, q, aq operand, sorted bool) {
	order := r.order[:n]
	for i := range order {
		order[i] = i
	}
	if !sorted {
		return
	}
	d := r.dots(n, q, aq)
	sort.SliceStable(order, func(i, j int) bool { return d[order[i]] > d[order[j]] })
}

// dots returns the products of the columns of x and y.
func (r *Refresher[T]) dots(n int, x, y operand) []float64 {
	r.blocks(kernel[T](r.c, "column_dots"), min(n, maxBlocks), size(n), streams.Address(r.small), streams.Address(x.addr), streams.Address(y.addr))
	return r.doubles(n)
}

// unitColumns scales the columns to length one, or reports that one has none.
func (r *Refresher[T]) unitColumns(n int, z operand) bool {
	lengths := r.dots(n, z, z)
	factors := r.cells[:n]
	for j, v := range lengths {
		if factors[j] = T(1 / math.Sqrt(v)); !(v > 0) || math.IsInf(float64(factors[j]), 0) {
			return false
		}
	}
	r.upload(r.small, bytesOf(factors))
	r.each(kernel[T](r.c, "scale_columns"), n*n, size(n), streams.Address(z.addr), streams.Address(r.small))
	return r.err == nil
}

// choleskyQR sets Z = Z*R⁻¹ for ZᵀZ = RᵀR; false when ZᵀZ is not positive definite.
func (r *Refresher[T]) choleskyQR(n int, z, g operand) bool {
	update[T](r.lane, n, n, true, 1, z, 0, g)
	r.fail(r.stream.SetBytes(r.flag, 0, 8))
	cholesky[T](r.lane, n, g, r.flag)
	var bad [1]int32
	r.download(bytesOf(bad[:]), r.flag)
	if bad[0] != 0 || r.err != nil {
		return false
	}
	solve[T](r.lane, n, n, g, z)
	return true
}

// deliverBasis writes q and perm when the columns are orthonormal to rounding.
func (r *Refresher[T]) deliverBasis(q gemm.Matrix[T], n int, z, g, m operand, perm []int) error {
	update[T](r.lane, n, n, true, 1, z, 0, g)
	r.each(kernel[T](r.c, "load_symmetric"), n*n, size(n), streams.Address(m.addr), streams.Address(g.addr), number(T(1)), number(T(0)))
	// Dot products of n terms round to about √n units.
	off := r.identityError(n, m)
	if !(off <= 16*math.Sqrt(float64(n))*unit[T]()) {
		return errHost
	}
	x, ok := r.get(z, n)
	if !ok {
		return errHost
	}
	for i := range n {
		copy(q.Row(i), x[i*n:(i+1)*n])
	}
	copy(perm, r.order[:n])
	r.rep = invroot.Report{Precision: precision[T](), Iterations: 1, Residual: off}
	return nil
}

// Diagonalize implements kron.Refresher, on the host.
func (r *Refresher[T]) Diagonalize(ctx context.Context, q gemm.Matrix[T], w []T, a gemm.Matrix[T], maxIter int, tol float64) error {
	return r.settle(errHost, func() error { return r.host.Diagonalize(ctx, q, w, a, maxIter, tol) })
}
