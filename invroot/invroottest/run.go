package invroottest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/invroot"
	"github.com/asteria-runtime/asteria/invroot/internal/jacobi"
)

// Backend is what a refresh job needs of a solver; invroot.Refresher is one.
type Backend[T gemm.Float] interface {
	// Root sets dst = a^(-exponent), a ridge of at most 1e-6*λmax included.
	Root(ctx context.Context, dst, a gemm.Matrix[T], exponent float64) error
	// Eigen sets the columns of q to eigenvectors and w to eigenvalues.
	Eigen(ctx context.Context, q gemm.Matrix[T], w []T, a gemm.Matrix[T], descending bool) error
	// Iterate replaces q by the Q of QR of a*q[:,perm].
	Iterate(ctx context.Context, q, a gemm.Matrix[T], perm []int) error
	// Diagonalize runs the QR algorithm on q.
	Diagonalize(ctx context.Context, q gemm.Matrix[T], w []T, a gemm.Matrix[T], maxIter int, tol float64) error
}

// maxOrder is the largest order that Run asks for.
const maxOrder = 70

// Run checks a backend. newBackend returns one for orders up to maxOrder; the
// test's cleanup is its place to release it.
func Run[T gemm.Float](t *testing.T, newBackend func(t *testing.T, maxOrder int) Backend[T]) {
	s := suite[T]{newBackend: newBackend, unit: 0x1p-53}
	if unsafe.Sizeof(T(0)) == 4 {
		s.unit = 0x1p-24
	}
	t.Run("roots equal the reference", s.roots)
	t.Run("roots scale with the matrix", s.scaling)
	t.Run("eigenpairs equal the reference", s.eigen)
	t.Run("one iteration is QR of the product", s.iterate)
	t.Run("the QR algorithm diagonalizes", s.diagonalize)
	t.Run("non-finite input is refused", s.refusal)
	t.Run("a cancelled context stops the work", s.cancel)
	t.Run("neighbours of a view stay", s.views)
	t.Run("same input gives the same bits", s.repeat)
}

type suite[T gemm.Float] struct {
	newBackend func(t *testing.T, maxOrder int) Backend[T]
	unit       float64
}

// matrix returns a random positive definite matrix of the given condition, and
// itself as rounded to T, in float64.
func (s suite[T]) matrix(n int, condition float64, seed uint64) (gemm.Matrix[T], gemm.Matrix[float64]) {
	q := orthogonal(n, seed)
	a, ref := gemm.NewMatrix[T](n, n), gemm.NewMatrix[float64](n, n)
	for i := range n {
		for j := range i + 1 {
			v := 0.0
			for k := range n {
				v += q.At(i, k) * math.Pow(condition, -float64(k)/float64(max(n-1, 1))) * q.At(j, k)
			}
			a.Set(i, j, T(v))
			a.Set(j, i, T(v))
			ref.Set(i, j, float64(T(v)))
			ref.Set(j, i, float64(T(v)))
		}
	}
	return a, ref
}

// orthogonal returns the product of three random reflections.
func orthogonal(n int, seed uint64) gemm.Matrix[float64] {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	q := gemm.NewMatrix[float64](n, n)
	for i := range n {
		q.Set(i, i, 1)
	}
	for range 3 {
		v := make([]float64, n)
		s := 0.0
		for i := range v {
			v[i] = rng.NormFloat64()
			s += v[i] * v[i]
		}
		for i := range n {
			d := 0.0
			for j, x := range q.Row(i) {
				d += x * v[j]
			}
			for j, x := range v {
				q.Row(i)[j] -= 2 * d / s * x
			}
		}
	}
	return q
}

func (s suite[T]) roots(t *testing.T) {
	b := s.newBackend(t, maxOrder)
	for _, n := range []int{1, 2, 3, 16, 37} {
		for _, condition := range []float64{1, 1e2, 1e4} {
			a, ref := s.matrix(n, condition, 1)
			w, q := jacobi.Eigen(ref)
			for _, exponent := range []float64{1, 0.5, 0.25, 0.125} {
				x := gemm.NewMatrix[T](n, n)
				if err := b.Root(context.Background(), x, a, exponent); err != nil {
					t.Fatalf("n=%d condition=%.0e exponent=%v: %v", n, condition, exponent, err)
				}
				// u*κ*exponent from rounding (first order), a ridge of 1e-6
				// likewise, an iteration's tolerance of 1e-6.
				tol := 40*float64(n)*s.unit*condition*exponent + 1e-6*condition*exponent + 1e-5
				if e := relative(x, jacobi.Function(w, q, -exponent)); !(e <= tol) {
					t.Errorf("n=%d condition=%.0e exponent=%v: relative error %.1e exceeds %.1e", n, condition, exponent, e, tol)
				}
				if e := asymmetry(x); e != 0 {
					t.Errorf("n=%d condition=%.0e exponent=%v: result is not symmetric (%.1e)", n, condition, exponent, e)
				}
			}
		}
	}
}

// scaling: (cA)^-e = c^-e*A^-e for c a power of two, to a few roundings.
func (s suite[T]) scaling(t *testing.T) {
	b := s.newBackend(t, maxOrder)
	a, _ := s.matrix(24, 1e2, 2)
	want := gemm.NewMatrix[T](24, 24)
	if err := b.Root(context.Background(), want, a, 0.25); err != nil {
		t.Fatal(err)
	}
	for _, e := range []int{-80, -40, 40, 80} {
		c, x := gemm.NewMatrix[T](24, 24), gemm.NewMatrix[T](24, 24)
		for i, v := range a.Data {
			c.Data[i] = T(math.Ldexp(float64(v), e))
		}
		if err := b.Root(context.Background(), x, c, 0.25); err != nil {
			t.Fatalf("scale 2^%d: %v", e, err)
		}
		for i := range x.Data {
			x.Data[i] = T(float64(x.Data[i]) * math.Exp2(float64(e)/4))
		}
		if d := relative(x, widen(want)); !(d <= 1e-4) {
			t.Errorf("scale 2^%d: results differ by %.1e", e, d)
		}
	}
}

func (s suite[T]) eigen(t *testing.T) {
	b := s.newBackend(t, maxOrder)
	for _, n := range []int{1, 2, 3, 17, 49} {
		a, ref := s.matrix(n, 1e3, 3)
		want, _ := jacobi.Eigen(ref)
		for _, descending := range []bool{false, true} {
			q, w := gemm.NewMatrix[T](n, n), make([]T, n)
			if err := b.Eigen(context.Background(), q, w, a, descending); err != nil {
				t.Fatalf("n=%d: %v", n, err)
			}
			tol := 40 * math.Sqrt(float64(n)) * s.unit
			for i, v := range w {
				at := i
				if descending {
					at = n - 1 - i
				}
				if d := math.Abs(float64(v) - want[at]); !(d <= tol) {
					t.Errorf("n=%d descending=%v: eigenvalue %d is %v, want %v", n, descending, i, v, want[at])
				}
			}
			if e := orthogonality(q); !(e <= tol) {
				t.Errorf("n=%d: columns are orthonormal to %.1e only", n, e)
			}
			if e := residual(ref, q, w); !(e <= tol) {
				t.Errorf("n=%d: |AQ-QΛ| is %.1e", n, e)
			}
		}
	}
}

func (s suite[T]) iterate(t *testing.T) {
	b := s.newBackend(t, maxOrder)
	for _, n := range []int{1, 2, 5, 40} {
		a, ref := s.matrix(n, 1e2, 4)
		q0 := orthogonal(n, 5)
		for _, sorted := range []bool{true, false} {
			q := gemm.NewMatrix[T](n, n)
			for i, v := range q0.Data {
				q.Data[i] = T(v)
			}
			var perm []int
			if sorted {
				perm = make([]int, n)
			}
			old := widen(q)
			if err := b.Iterate(context.Background(), q, a, perm); err != nil {
				t.Fatalf("n=%d: %v", n, err)
			}
			order := expectedOrder(ref, old, sorted)
			if sorted && fmt.Sprint(perm) != fmt.Sprint(order) {
				t.Fatalf("n=%d: order %v, want %v", n, perm, order)
			}
			tol := 100 * float64(n) * 1e2 * s.unit
			if e := orthogonality(q); !(e <= 40*math.Sqrt(float64(n))*s.unit) {
				t.Errorf("n=%d: columns are orthonormal to %.1e only", n, e)
			}
			if e := belowTriangle(ref, old, q, order); !(e <= tol) {
				t.Errorf("n=%d sorted=%v: Qᵀ*A*Q_old has %.1e below its diagonal", n, sorted, e)
			}
		}
	}
}

// expectedOrder ranks the columns of q by descending diag(qᵀaq).
func expectedOrder(a, q gemm.Matrix[float64], sorted bool) []int {
	n := a.Rows
	est, order := make([]float64, n), make([]int, n)
	for k := range n {
		order[k] = k
		for i := range n {
			for j := range n {
				est[k] += q.At(i, k) * a.At(i, j) * q.At(j, k)
			}
		}
	}
	for i := range order {
		for j := i; sorted && j > 0 && est[order[j]] > est[order[j-1]]; j-- {
			order[j], order[j-1] = order[j-1], order[j]
		}
	}
	return order
}

// belowTriangle returns the largest element of newᵀ*a*old[:,order] below the
// diagonal, which is R of the QR and must vanish there, relative to the largest
// of all.
func belowTriangle[T gemm.Float](a, old gemm.Matrix[float64], q gemm.Matrix[T], order []int) float64 {
	n := a.Rows
	below, all := 0.0, 0.0
	for j, c := range order {
		y := make([]float64, n)
		for i := range n {
			for k := range n {
				y[i] += a.At(i, k) * old.At(k, c)
			}
		}
		for i := range n {
			r := 0.0
			for k := range n {
				r += float64(q.At(k, i)) * y[k]
			}
			all = max(all, math.Abs(r))
			if i > j {
				below = max(below, math.Abs(r))
			}
		}
	}
	return below / all
}

func (s suite[T]) diagonalize(t *testing.T) {
	b := s.newBackend(t, maxOrder)
	for _, n := range []int{1, 2, 6, 20} {
		a, ref := s.matrix(n, 1e2, 6)
		want, _ := jacobi.Eigen(ref)
		q, w := gemm.NewMatrix[T](n, n), make([]T, n)
		for i := range n {
			q.Set(i, i, 1)
		}
		if err := b.Diagonalize(context.Background(), q, w, a, 2000, 1e-5); err != nil {
			t.Fatalf("n=%d: %v", n, err)
		}
		// Off-diagonal mass δ moves eigenvalues by at most δ*‖B‖_F.
		tol := 1e-5*float64(n) + 400*float64(n)*s.unit
		for i, v := range w {
			if d := math.Abs(float64(v) - want[i]); !(d <= tol) {
				t.Errorf("n=%d: eigenvalue %d is %v, want %v", n, i, v, want[i])
			}
		}
		if e := residual(ref, q, w); !(e <= tol) {
			t.Errorf("n=%d: |AQ-QΛ| is %.1e", n, e)
		}
	}
}

func (s suite[T]) refusal(t *testing.T) {
	b := s.newBackend(t, maxOrder)
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		for _, n := range []int{1, 3, 50} {
			a, _ := s.matrix(n, 10, 7)
			a.Set(n-1, 0, T(bad))
			a.Set(0, n-1, T(bad))
			q, w, perm := sentinel[T](n), make([]T, n), make([]int, n)
			ctx := context.Background()
			for name, err := range map[string]error{
				"Root":        b.Root(ctx, q, a, 0.5),
				"Eigen":       b.Eigen(ctx, q, w, a, true),
				"Iterate":     b.Iterate(ctx, q, a, perm),
				"Diagonalize": b.Diagonalize(ctx, q, w, a, 3, 0),
			} {
				if !errors.Is(err, invroot.ErrNonFinite) {
					t.Errorf("%s of order %d with %v: error %v, want ErrNonFinite", name, n, bad, err)
				}
			}
			for i, v := range q.Data {
				if v != T(i) {
					t.Fatalf("order %d: element %d of the output was written", n, i)
				}
			}
		}
	}
}

func (s suite[T]) cancel(t *testing.T) {
	b := s.newBackend(t, maxOrder)
	ctx, stop := context.WithCancel(context.Background())
	stop()
	a, _ := s.matrix(40, 10, 8)
	q, w := sentinel[T](40), make([]T, 40)
	for name, err := range map[string]error{
		"Root":        b.Root(ctx, q, a, 0.5),
		"Eigen":       b.Eigen(ctx, q, w, a, true),
		"Iterate":     b.Iterate(ctx, q, a, nil),
		"Diagonalize": b.Diagonalize(ctx, q, w, a, 3, 0),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v, want context.Canceled", name, err)
		}
	}
}

// views: strided inputs and outputs inside larger arrays.
func (s suite[T]) views(t *testing.T) {
	b := s.newBackend(t, maxOrder)
	const n, wide = 21, 30
	a, _ := s.matrix(n, 1e2, 9)
	in, out := sentinel[T](wide), sentinel[T](wide)
	view, dst := in.Slice(4, 5, n, n), out.Slice(3, 2, n, n)
	for i := range n {
		copy(view.Row(i), a.Row(i))
	}
	packed := gemm.NewMatrix[T](n, n)
	ctx := context.Background()
	if err := errors.Join(b.Root(ctx, packed, a, 0.25), b.Root(ctx, dst, view, 0.25)); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		for j := range n {
			if dst.At(i, j) != packed.At(i, j) {
				t.Fatalf("element (%d,%d): %v from a view, %v from a packed copy", i, j, dst.At(i, j), packed.At(i, j))
			}
			if view.At(i, j) != a.At(i, j) {
				t.Fatalf("input element (%d,%d) was written", i, j)
			}
		}
	}
	for i := range wide {
		for j := range wide {
			inside := i >= 3 && i < 3+n && j >= 2 && j < 2+n
			if !inside && out.At(i, j) != T(i*wide+j) {
				t.Fatalf("neighbour (%d,%d) of the output was written", i, j)
			}
		}
	}
}

func (s suite[T]) repeat(t *testing.T) {
	a, _ := s.matrix(70, 1e3, 10)
	var first gemm.Matrix[T]
	for range 2 {
		b := s.newBackend(t, maxOrder)
		for range 2 {
			x := gemm.NewMatrix[T](70, 70)
			if err := b.Root(context.Background(), x, a, 0.25); err != nil {
				t.Fatal(err)
			}
			if first.Rows == 0 {
				first = x
			}
			for i, v := range x.Data {
				if v != first.Data[i] {
					t.Fatalf("element %d: %v, then %v", i, first.Data[i], v)
				}
			}
		}
	}
}

// sentinel returns a matrix whose elements count up.
func sentinel[T gemm.Float](n int) gemm.Matrix[T] {
	m := gemm.NewMatrix[T](n, n)
	for i := range m.Data {
		m.Data[i] = T(i)
	}
	return m
}

func widen[T gemm.Float](m gemm.Matrix[T]) gemm.Matrix[float64] {
	out := gemm.NewMatrix[float64](m.Rows, m.Cols)
	for i := range m.Rows {
		for j, v := range m.Row(i) {
			out.Set(i, j, float64(v))
		}
	}
	return out
}

func relative[T gemm.Float](x gemm.Matrix[T], want gemm.Matrix[float64]) float64 {
	diff, norm := 0.0, 0.0
	for i := range want.Rows {
		for j, w := range want.Row(i) {
			d := float64(x.At(i, j)) - w
			diff += d * d
			norm += w * w
		}
	}
	return math.Sqrt(diff / norm)
}

func asymmetry[T gemm.Float](x gemm.Matrix[T]) float64 {
	worst := 0.0
	for i := range x.Rows {
		for j := range i {
			worst = max(worst, math.Abs(float64(x.At(i, j)-x.At(j, i))))
		}
	}
	return worst
}

func orthogonality[T gemm.Float](q gemm.Matrix[T]) float64 {
	worst := 0.0
	for i := range q.Cols {
		for j := range i + 1 {
			s := 0.0
			for k := range q.Rows {
				s += float64(q.At(k, i)) * float64(q.At(k, j))
			}
			if i == j {
				s--
			}
			if !(math.Abs(s) <= worst) {
				worst = math.Abs(s)
			}
		}
	}
	return worst
}

func residual[T gemm.Float](a gemm.Matrix[float64], q gemm.Matrix[T], w []T) float64 {
	worst := 0.0
	for i := range a.Rows {
		for j := range q.Cols {
			s := -float64(q.At(i, j)) * float64(w[j])
			for k := range a.Cols {
				s += a.At(i, k) * float64(q.At(k, j))
			}
			if !(math.Abs(s) <= worst) {
				worst = math.Abs(s)
			}
		}
	}
	return worst
}
