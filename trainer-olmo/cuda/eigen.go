package cuda

import (
	"context"
	"errors"
	"math"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/gemm/vec"
	"github.com/asteria-runtime/asteria/invroot"
	"github.com/asteria-runtime/asteria/streams"
)

// Note: eigendecompositions on the device
//
// cuSOLVER decomposes in the element type or in double precision, and the choice is
// the host solver's: Auto goes on in double where the condition number, ridge
// included, is beyond what single precision carries. Only then is the matrix
// decomposed twice, as a single one costs a fraction of a double one. What the ridge
// does to an eigenvalue is the host solver's rule as well, so that a root by
// eigenvalues means the same wherever it was computed.

// Where Auto leaves single precision: see invroot.Auto.
const (
	singleLimit     = 1e4
	singleLimitRoot = 500
)

// errWide asks for double precision. It is not a failure.
var errWide = errors.New("cuda: condition number asks for double precision")

// spectrum is a decomposition on the device.
type spectrum struct {
	values   []float64 // ascending, of the matrix itself
	vectors  operand   // one a row
	residual float64   // as invroot.Report has it
}

func (s *spectrum) ends() (lo, hi float64) { return s.values[0], s.values[len(s.values)-1] }

// buffer returns the i-th n×n buffer for elements of U; those of T are shared with
// the iterations.
func buffer[U, T gemm.Float](r *Refresher[T], i, n int) operand {
	if double[U]() == double[T]() {
		return r.matrix(i, n)
	}
	for len(r.wide) <= i {
		r.wide = append(r.wide, r.temporary(8*int64(r.max)*int64(r.max)))
	}
	r.matrix(0, n) // small
	return operand{r.wide[i], n}
}

// full puts factor*a, completed from its lower triangle, into buffer to.
func full[U, T gemm.Float](r *Refresher[T], a gemm.Matrix[T], to operand, factor float64) {
	n, via := a.Rows, r.matrix(5, a.Rows)
	if double[U]() == double[T]() {
		r.load(a, via, to, factor, 0)
		return
	}
	r.put(a, via)
	r.each(kernel[T](r.c, "widen_symmetric"), n*n, size(n), streams.Address(to.addr), streams.Address(via.addr), streams.Float64(factor))
}

// decompose computes the eigenvalues and eigenvectors of a in the arithmetic of U
// and checks them on a fixed vector.
func decompose[U, T gemm.Float](r *Refresher[T], a gemm.Matrix[T], s shape) (*spectrum, error) {
	n := a.Rows
	v, whole := buffer[U](r, 0, n), buffer[U](r, 1, n)
	full[U](r, a, whole, s.scale)
	r.fail(r.copyMatrix(v, whole, int64(n)*int64(n)*elementSize[U]()))
	if r.err != nil {
		return nil, r.err
	}
	if err := r.solver.Eigen(n, v.addr, n, r.small, double[U]()); err != nil {
		var bad *streams.FactorizationError
		if errors.As(err, &bad) {
			return nil, errHost
		}
		r.fail(err)
		return nil, r.err
	}
	values := make([]U, n)
	r.download(bytesOf(values), r.small)
	out := &spectrum{values: make([]float64, n), vectors: v, residual: residual(r, n, whole, v, values)}
	for i, x := range values {
		out.values[i] = float64(x) / s.scale
	}
	// The host solver's limit; not a number fails it too.
	if !(out.residual <= 64*math.Sqrt(float64(n))*unit[U]()) || r.err != nil {
		return nil, errHost
	}
	return out, nil
}

// copyMatrix copies bytes on the device.
func (l *lane) copyMatrix(to, from operand, bytes int64) error {
	if l.err != nil {
		return nil
	}
	return l.stream.CopyBytes(to.addr, from.addr, bytes)
}

// elementSize is the size of a U in bytes.
func elementSize[U gemm.Float]() int64 {
	if double[U]() {
		return 8
	}
	return 4
}

// unit is the rounding unit of U.
func unit[U gemm.Float]() float64 {
	if double[U]() {
		return 0x1p-53
	}
	return 0x1p-24
}

// residual is the larger of ‖(A-VᵀΛV)x‖/(‖A‖‖x‖) and |‖Vx‖²/‖x‖²-1| for one vector x.
func residual[U, T gemm.Float](r *Refresher[T], n int, a, v operand, values []U) float64 {
	x := make([]U, 3*n)
	for i := range n {
		x[i] = U(1 + 0.5*math.Sin(float64(3*i+1)))
	}
	probe := buffer[U](r, 2, n)
	column := func(i int) operand { return operand{probe.addr + uintptr(int64(i*n)*elementSize[U]()), 1} }
	r.upload(probe.addr, bytesOf(x[:n]))
	product[U](r.lane, n, 1, n, false, false, 1, a, column(0), 0, column(1))
	product[U](r.lane, n, 1, n, false, false, 1, v, column(0), 0, column(2))
	r.download(bytesOf(x[n:]), column(1).addr)
	ax, vx := x[n:2*n], x[2*n:]
	length, kept := vec.SumSquares(x[:n]), vec.SumSquares(vx)
	for i := range vx {
		vx[i] *= values[i]
	}
	r.upload(column(2).addr, bytesOf(vx))
	product[U](r.lane, n, 1, n, true, false, 1, v, column(2), 0, column(0))
	r.download(bytesOf(x[:n]), column(0).addr)
	off := 0.0
	for i, y := range x[:n] {
		off += float64(y-ax[i]) * float64(y-ax[i])
	}
	norm := max(math.Abs(float64(values[0])), math.Abs(float64(values[n-1])))
	drift := math.Abs(kept/length - 1)
	if norm == 0 {
		return drift
	}
	return max(drift, math.Sqrt(off/length)/norm)
}

// lift is what the ridge does to an eigenvalue: raised to floor, then shifted.
type lift struct{ floor, shift float64 }

func (l lift) of(v float64) float64 { return max(v, l.floor) + l.shift }

// liftOf is the effect of the ridge on a spectrum in [lo, hi]: see invroot.RidgeKind.
func liftOf(o invroot.Options, lo, hi float64) lift {
	value := o.Ridge.Value
	switch o.Ridge.Kind {
	case invroot.Relative:
		if value == 0 {
			value = invroot.DefaultRidge
		}
		return lift{floor: value * max(math.Abs(lo), math.Abs(hi))}
	case invroot.Absolute:
		return lift{floor: math.Inf(-1), shift: value + max(0, -lo)}
	}
	return lift{floor: math.Inf(-1)}
}

// tooWide reports whether Auto refuses single precision for this spectrum; exponent
// is 0 for a decomposition.
func tooWide[U gemm.Float](o invroot.Options, s *spectrum, exponent float64) bool {
	if double[U]() || o.Precision != invroot.Auto {
		return false
	}
	lo, hi := s.ends()
	l := liftOf(o, lo, hi)
	return !(l.of(hi) <= min(singleLimit, singleLimitRoot/exponent)*l.of(lo))
}

// inBest runs f in the precision that the options ask for first, then in double
// where f says so.
func (r *Refresher[T]) inBest(single, wide func() error) error {
	if r.opts.Precision == invroot.Double {
		return wide()
	}
	err := single()
	if err == errWide {
		return wide()
	}
	return err
}

// spectralRoot is dst = (A + ridge)^(-exponent) by the eigenvalues.
func (r *Refresher[T]) spectralRoot(ctx context.Context, dst, a gemm.Matrix[T], exponent float64, s shape) error {
	return r.inBest(
		func() error { return spectralRoot[T](ctx, r, dst, a, exponent, s) },
		func() error { return spectralRoot[float64](ctx, r, dst, a, exponent, s) })
}

func spectralRoot[U, T gemm.Float](ctx context.Context, r *Refresher[T], dst, a gemm.Matrix[T], exponent float64, s shape) error {
	d, err := decompose[U](r, a, s)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if tooWide[U](r.opts, d, exponent) {
		return errWide
	}
	n := a.Rows
	lo, hi := d.ends()
	l := liftOf(r.opts, lo, hi)
	powers := make([]U, n)
	for i, v := range d.values {
		if powers[i] = U(math.Sqrt(math.Pow(l.of(v), -exponent))); !(l.of(v) > 0) || math.IsInf(float64(powers[i]), 0) {
			return errHost // with its retries, and its error
		}
	}
	// A^(-e) = Vᵀ*f(Λ)*V = ZᵀZ for the rows Z of V times √f.
	r.upload(r.small, bytesOf(powers))
	r.each(kernel[U](r.c, "scale_mode"), n*n, size(1), size(n), size(n), streams.Address(d.vectors.addr), streams.Address(r.small))
	half, out := buffer[U](r, 1, n), buffer[U](r, 2, n)
	update[U](r.lane, n, n, true, 1, d.vectors, 0, half)
	r.each(kernel[U](r.c, "load_symmetric"), n*n, size(n), streams.Address(out.addr), streams.Address(half.addr), number(U(1)), number(U(0)))
	x, ok := narrowed[U](r, out, n)
	if !ok {
		return errHost
	}
	for i := range n {
		copy(dst.Row(i), x[i*n:(i+1)*n])
	}
	r.rep = invroot.Report{
		Method: invroot.Eigen, Precision: precision[U](), Residual: d.residual, LambdaMin: lo, LambdaMax: hi,
		Ridge: max(l.floor, 0) + l.shift, Condition: l.of(hi) / l.of(lo),
	}
	return nil
}

// narrowed reads an n×n buffer of U, rounded to T, and reports whether it is finite.
func narrowed[U, T gemm.Float](r *Refresher[T], from operand, n int) ([]T, bool) {
	if double[U]() != double[T]() {
		to := r.matrix(5, n)
		r.each(kernel[T](r.c, "narrow"), n*n, size(n*n), streams.Address(to.addr), streams.Address(from.addr))
		from = to
	}
	return r.get(from, n)
}

// Eigen implements kron.Refresher, by cuSOLVER where it is found.
func (r *Refresher[T]) Eigen(ctx context.Context, q gemm.Matrix[T], w []T, a gemm.Matrix[T], descending bool) error {
	err := r.eigen(ctx, q, w, a, descending)
	return r.settle(err, func() error { return r.host.Eigen(ctx, q, w, a, descending) })
}

func (r *Refresher[T]) eigen(ctx context.Context, q gemm.Matrix[T], w []T, a gemm.Matrix[T], descending bool) error {
	s, err := r.admit(ctx, a)
	if err != nil {
		return err
	}
	if r.solver == nil {
		return errHost
	}
	return r.inBest(
		func() error { return eigenpairs[T](r, q, w, a, s, descending) },
		func() error { return eigenpairs[float64](r, q, w, a, s, descending) })
}

func eigenpairs[U, T gemm.Float](r *Refresher[T], q gemm.Matrix[T], w []T, a gemm.Matrix[T], s shape, descending bool) error {
	d, err := decompose[U](r, a, s)
	if err != nil {
		return err
	}
	if tooWide[U](r.opts, d, 0) {
		return errWide
	}
	n := a.Rows
	vectors, ok := narrowed[U](r, d.vectors, n)
	if !ok {
		return errHost
	}
	for j, value := range d.values {
		at := j
		if descending {
			at = n - 1 - j
		}
		w[at] = T(value)
		for i := range n {
			q.Set(i, at, vectors[j*n+i])
		}
	}
	lo, hi := d.ends()
	r.rep = invroot.Report{Method: invroot.Eigen, Precision: precision[U](), Residual: d.residual, LambdaMin: lo, LambdaMax: hi}
	return nil
}
