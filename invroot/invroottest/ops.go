package invroottest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/invroot"
)

// RunOps checks an implementation of [invroot.Ops]: each operation against its
// definition in float64, then a solver on it with the suite of [Run]. newOps is
// called once for each part; the test's cleanup is its place to release it.
func RunOps[T gemm.Float](t *testing.T, newOps func(t *testing.T) invroot.Ops[T]) {
	s := opsSuite[T]{newOps: newOps, unit: 0x1p-53}
	if unsafe.Sizeof(T(0)) == 4 {
		s.unit = 0x1p-24
	}
	t.Run("gemm is the product", s.gemm)
	t.Run("shift scales and adds to the diagonal", s.shift)
	t.Run("the identity error is the largest difference", s.identity)
	t.Run("row dots are products of rows", s.rowDots)
	for _, method := range []invroot.Method{invroot.CoupledNewton, invroot.HigherOrder} {
		t.Run("solver on the operations, "+method.String(), func(t *testing.T) {
			Run(t, func(t *testing.T, maxOrder int) Backend[T] {
				return s.solver(t, maxOrder, invroot.Options{Method: method})
			})
		})
	}
}

type opsSuite[T gemm.Float] struct {
	newOps func(t *testing.T) invroot.Ops[T]
	unit   float64
}

// solver returns a refresher on the operations.
func (s opsSuite[T]) solver(t *testing.T, maxOrder int, opts invroot.Options) *invroot.Refresher[T] {
	eng := gemm.New(1)
	solver, err := invroot.NewSolverOn(eng, s.newOps(t), maxOrder, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		solver.Close()
		eng.Close()
	})
	return invroot.NewRefresher(solver)
}

// random returns a matrix whose rows are further apart than they are long.
func random[T gemm.Float](r *rand.Rand, rows, cols int) gemm.Matrix[T] {
	m := gemm.NewMatrix[T](rows, cols+3).Slice(0, 0, rows, cols)
	for i := range rows {
		for j := range m.Row(i) {
			m.Set(i, j, T(2*r.Float64()-1))
		}
	}
	return m
}

// sync fails the test when the operations did.
func sync[T gemm.Float](t *testing.T, ops invroot.Ops[T]) {
	t.Helper()
	if err := ops.Sync(); err != nil {
		t.Fatal(err)
	}
}

// orders of the operations' tests.
var orders = []int{1, 2, 7, 16, 33, 64}

func (s opsSuite[T]) gemm(t *testing.T) {
	ops, r := s.newOps(t), rand.New(rand.NewPCG(1, 1))
	for _, n := range orders {
		for form := range 4 {
			ta, tb := form&1 > 0, form&2 > 0
			a, b, c := random[T](r, n, n), random[T](r, n, n), random[T](r, n, n)
			got := gemm.NewMatrix[T](n, n)
			for i := range n {
				copy(got.Row(i), c.Row(i))
			}
			ops.Gemm(ta, tb, -0.5, a, b, 2, got)
			sync(t, ops)
			for i := range n {
				for j := range n {
					want := 2 * float64(c.At(i, j))
					for k := range n {
						want -= 0.5 * float64(element(a, ta, i, k)) * float64(element(b, tb, k, j))
					}
					if d := math.Abs(float64(got.At(i, j)) - want); !(d <= float64(n+3)*s.unit*(2+float64(n)/2)) {
						t.Fatalf("n=%d ta=%v tb=%v: (%d,%d) is %g, want %g", n, ta, tb, i, j, got.At(i, j), want)
					}
				}
			}
		}
	}
}

func element[T gemm.Float](m gemm.Matrix[T], transposed bool, i, j int) T {
	if transposed {
		return m.At(j, i)
	}
	return m.At(i, j)
}

func (s opsSuite[T]) shift(t *testing.T) {
	ops, r := s.newOps(t), rand.New(rand.NewPCG(2, 2))
	for _, n := range orders {
		for _, factor := range []T{0, 1, -1, 0.3} {
			for _, inPlace := range []bool{false, true} {
				src := random[T](r, n, n)
				if factor == 0 {
					src.Set(n-1, 0, T(math.NaN())) // must not be read
				}
				keep := gemm.NewMatrix[T](n, n)
				for i := range n {
					copy(keep.Row(i), src.Row(i))
				}
				dst := random[T](r, n, n)
				if inPlace {
					dst = src
				}
				ops.Shift(dst, src, factor, 0.75)
				sync(t, ops)
				for i := range n {
					for j := range n {
						want := 0.0
						if factor != 0 {
							want = float64(factor) * float64(keep.At(i, j))
						}
						if i == j {
							want += 0.75
						}
						if d := math.Abs(float64(dst.At(i, j)) - want); !(d <= 4*s.unit) {
							t.Fatalf("n=%d factor=%g in place %v: (%d,%d) is %g, want %g", n, factor, inPlace, i, j, dst.At(i, j), want)
						}
					}
				}
			}
		}
	}
}

func (s opsSuite[T]) identity(t *testing.T) {
	ops, r := s.newOps(t), rand.New(rand.NewPCG(3, 3))
	for _, n := range orders {
		m := gemm.NewMatrix[T](n, n+1).Slice(0, 0, n, n)
		for i := range n {
			m.Set(i, i, 1)
		}
		if got := ops.IdentityError(m); got != 0 {
			t.Fatalf("n=%d: the identity is off by %g", n, got)
		}
		i, j := r.IntN(n), r.IntN(n)
		m.Set(i, j, m.At(i, j)-0.5)
		if got := ops.IdentityError(m); got != 0.5 {
			t.Fatalf("n=%d: error %g, want 0.5 at (%d,%d)", n, got, i, j)
		}
		m.Set(n-1-i, j, T(math.NaN()))
		if got := ops.IdentityError(m); !math.IsNaN(got) {
			t.Fatalf("n=%d: error %g hides a NaN", n, got)
		}
	}
}

func (s opsSuite[T]) rowDots(t *testing.T) {
	ops, r := s.newOps(t), rand.New(rand.NewPCG(4, 4))
	for _, n := range orders {
		x, y, got := random[T](r, n, n), random[T](r, n, n), make([]T, n)
		ops.RowDots(got, x, y)
		for i := range n {
			want := 0.0
			for j, v := range x.Row(i) {
				want += float64(v) * float64(y.At(i, j))
			}
			if d := math.Abs(float64(got[i]) - want); !(d <= float64(n+2)*s.unit*float64(n)) {
				t.Fatalf("n=%d: row %d is %g, want %g", n, i, got[i], want)
			}
		}
	}
}

// Delay returns operations that do nothing before Sync, or before a number is asked
// for: the slowest device that [invroot.Ops] allows. Whoever reads a result or
// writes an operand too early shows by different numbers.
func Delay[T gemm.Float](ops invroot.Ops[T]) invroot.Ops[T] { return &delayed[T]{ops: ops} }

type delayed[T gemm.Float] struct {
	ops   invroot.Ops[T]
	queue []func()
}

func (d *delayed[T]) later(f func()) { d.queue = append(d.queue, f) }

func (d *delayed[T]) run() {
	for _, f := range d.queue {
		f()
	}
	d.queue = d.queue[:0]
}

func (d *delayed[T]) Gemm(ta, tb bool, alpha T, a, b gemm.Matrix[T], beta T, c gemm.Matrix[T]) {
	d.later(func() { d.ops.Gemm(ta, tb, alpha, a, b, beta, c) })
}

func (d *delayed[T]) Shift(dst, src gemm.Matrix[T], factor, diagonal T) {
	d.later(func() { d.ops.Shift(dst, src, factor, diagonal) })
}

func (d *delayed[T]) IdentityError(m gemm.Matrix[T]) float64 {
	d.run()
	return d.ops.IdentityError(m)
}

func (d *delayed[T]) RowDots(dst []T, x, y gemm.Matrix[T]) {
	d.run()
	d.ops.RowDots(dst, x, y)
}

func (d *delayed[T]) Sync() error {
	d.run()
	return d.ops.Sync()
}

// SameResults checks that a solver on Delay(ops) gives the bits of one on ops.
func SameResults[T gemm.Float](t *testing.T, newOps func(t *testing.T) invroot.Ops[T]) {
	at := opsSuite[T]{newOps: newOps}
	late := opsSuite[T]{newOps: func(t *testing.T) invroot.Ops[T] { return Delay(newOps(t)) }}
	for _, n := range []int{3, 16, 65} {
		a, _ := suite[T]{}.matrix(n, 100, uint64(n))
		for _, opts := range []invroot.Options{{Method: invroot.CoupledNewton}, {Method: invroot.HigherOrder}} {
			for _, p := range []float64{2, 4, 1.5, 3} {
				if opts.Method == invroot.CoupledNewton && p == 1.5 {
					continue // it raises to 1/p only
				}
				name := fmt.Sprintf("n=%d method=%v exponent=1/%g", n, opts.Method, p)
				want, got := gemm.NewMatrix[T](n, n), gemm.NewMatrix[T](n, n)
				rootInto(t, name, at.solver(t, n, opts), want, a, 1/p)
				rootInto(t, name, late.solver(t, n, opts), got, a, 1/p)
				equal(t, name, got, want)
			}
		}
		want, got := gemm.NewMatrix[T](n, n), gemm.NewMatrix[T](n, n)
		basisInto(t, at.solver(t, n, invroot.Options{}), want, a)
		basisInto(t, late.solver(t, n, invroot.Options{}), got, a)
		equal(t, fmt.Sprintf("basis of order %d", n), got, want)
	}
}

func rootInto[T gemm.Float](t *testing.T, name string, r *invroot.Refresher[T], dst, a gemm.Matrix[T], exponent float64) {
	t.Helper()
	if err := r.Root(context.Background(), dst, a, exponent); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// basisInto refreshes the identity twice.
func basisInto[T gemm.Float](t *testing.T, r *invroot.Refresher[T], q, a gemm.Matrix[T]) {
	t.Helper()
	for i := range q.Rows {
		q.Set(i, i, 1)
	}
	for range 2 {
		if err := r.Iterate(context.Background(), q, a, make([]int, q.Rows)); err != nil {
			t.Fatal(err)
		}
	}
}

func equal[T gemm.Float](t *testing.T, name string, got, want gemm.Matrix[T]) {
	t.Helper()
	for i, v := range want.Data {
		if got.Data[i] != v {
			t.Fatalf("%s: element %d is %g, at once it is %g", name, i, got.Data[i], v)
		}
	}
}
