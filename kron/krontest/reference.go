package krontest

import (
	"context"
	"errors"
	"math"
	"sort"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/kron"
)

// Reference is a dense solver for tests: cyclic Jacobi rotations and
// unblocked Householder QR, all in float64 whatever the element type. It
// allocates freely and costs about 100 n³.
type Reference[T gemm.Float] struct {
	// Ridge is added to the diagonal before a root, absolute; should the
	// smallest eigenvalue still lie below it, all are shifted up to it.
	Ridge float64
}

var _ kron.Refresher[float32] = Reference[float32]{}

// Root implements [kron.Refresher].
func (s Reference[T]) Root(_ context.Context, dst, a gemm.Matrix[T], exponent float64) error {
	m := widen(a)
	for i := range m {
		m[i][i] += s.Ridge
	}
	w, q, err := jacobi(m)
	if err != nil {
		return err
	}
	shift := max(0, s.Ridge-w[0])
	n := len(w)
	for i := range n {
		for j := range n {
			sum := 0.0
			for k := range n {
				sum += q[i][k] * math.Pow(w[k]+shift, -exponent) * q[j][k]
			}
			dst.Set(i, j, T(sum))
		}
	}
	return nil
}

// Eigen implements [kron.Refresher].
func (s Reference[T]) Eigen(_ context.Context, q gemm.Matrix[T], w []T, a gemm.Matrix[T], descending bool) error {
	values, vectors, err := jacobi(widen(a))
	if err != nil {
		return err
	}
	n := len(values)
	for j := range n {
		from := j
		if descending {
			from = n - 1 - j
		}
		w[j] = T(values[from])
		for i := range n {
			q.Set(i, j, T(vectors[i][from]))
		}
	}
	return nil
}

// Iterate implements [kron.Refresher].
func (s Reference[T]) Iterate(_ context.Context, q, a gemm.Matrix[T], perm []int) error {
	wide, old := widen(a), widen(q)
	product := multiply(wide, old)
	if perm != nil {
		estimate := make([]float64, len(old))
		for j := range estimate {
			for i := range old {
				estimate[j] += old[i][j] * product[i][j]
			}
			perm[j] = j
		}
		sort.SliceStable(perm, func(x, y int) bool { return estimate[perm[x]] > estimate[perm[y]] })
		product = columns(product, perm)
	}
	basis, _ := householder(product)
	return narrow(q, basis)
}

// Diagonalize implements [kron.Refresher].
func (s Reference[T]) Diagonalize(_ context.Context, q gemm.Matrix[T], w []T, a gemm.Matrix[T], maxIter int, tol float64) error {
	basis := widen(q)
	b := multiply(transposed(basis), multiply(widen(a), basis))
	for range maxIter {
		total, diagonal := 0.0, 0.0
		for i := range b {
			for j := range b {
				total += b[i][j] * b[i][j]
			}
			diagonal += b[i][i] * b[i][i]
		}
		if math.Sqrt(max(0, total-diagonal)) <= tol*math.Sqrt(total) {
			break
		}
		step, r := householder(b)
		b, basis = multiply(r, step), multiply(basis, step)
	}
	order := make([]int, len(b))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(x, y int) bool { return b[order[x]][order[x]] < b[order[y]][order[y]] })
	for i, from := range order {
		w[i] = T(b[from][from])
	}
	return narrow(q, columns(basis, order))
}

var errNotFinite = errors.New("krontest: matrix is not finite")

// jacobi returns eigenvalues in ascending order and eigenvectors in columns
// (Golub & Van Loan, section 8.5). It converges quadratically; 60 sweeps are
// never reached by a finite matrix.
func jacobi(a [][]float64) (w []float64, q [][]float64, err error) {
	n := len(a)
	q = identity(n)
	for range 60 {
		off := 0.0
		for i := range n {
			for j := range i {
				off += math.Abs(a[i][j])
			}
		}
		if math.IsNaN(off) || math.IsInf(off, 0) {
			return nil, nil, errNotFinite
		}
		if off == 0 {
			break
		}
		for i := range n {
			for j := range i {
				rotate(a, q, j, i)
			}
		}
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(x, y int) bool { return a[order[x]][order[x]] < a[order[y]][order[y]] })
	w = make([]float64, n)
	for i, from := range order {
		w[i] = a[from][from]
	}
	return w, columns(q, order), nil
}

// rotate zeroes a[k][l], k < l, by a rotation that it also applies to q.
func rotate(a, q [][]float64, k, l int) {
	if a[k][l] == 0 {
		return
	}
	theta := (a[l][l] - a[k][k]) / (2 * a[k][l])
	t := 1 / (math.Abs(theta) + math.Sqrt(1+theta*theta))
	if theta < 0 {
		t = -t
	}
	c := 1 / math.Sqrt(1+t*t)
	s := t * c
	for i := range a {
		x, y := a[i][k], a[i][l]
		a[i][k], a[i][l] = c*x-s*y, s*x+c*y
		x, y = q[i][k], q[i][l]
		q[i][k], q[i][l] = c*x-s*y, s*x+c*y
	}
	for i := range a {
		x, y := a[k][i], a[l][i]
		a[k][i], a[l][i] = c*x-s*y, s*x+c*y
	}
	// Rounding leaves these off by an ulp of the diagonal, for ever.
	a[k][l], a[l][k] = 0, 0
}

// householder returns a = q*r with q orthogonal and r upper triangular.
func householder(a [][]float64) (q, r [][]float64) {
	n := len(a)
	r = columns(a, nil)
	q = identity(n)
	for k := range n - 1 {
		norm := 0.0
		for i := k; i < n; i++ {
			norm = math.Hypot(norm, r[i][k])
		}
		if norm == 0 {
			continue
		}
		v := make([]float64, n)
		for i := k; i < n; i++ {
			v[i] = r[i][k]
		}
		v[k] += math.Copysign(norm, v[k])
		reflect(r, v, k, true)
		reflect(q, v, k, false)
	}
	return q, r
}

// reflect applies I - 2vvᵀ/vᵀv from the left, or to m's rows from the right.
func reflect(m [][]float64, v []float64, from int, left bool) {
	n := len(m)
	length := 0.0
	for i := from; i < n; i++ {
		length += v[i] * v[i]
	}
	for j := range n {
		dot := 0.0
		for i := from; i < n; i++ {
			dot += v[i] * *cell(m, i, j, left)
		}
		for i := from; i < n; i++ {
			*cell(m, i, j, left) -= 2 * dot / length * v[i]
		}
	}
}

func cell(m [][]float64, i, j int, left bool) *float64 {
	if left {
		return &m[i][j]
	}
	return &m[j][i]
}

func identity(n int) [][]float64 {
	m := make([][]float64, n)
	for i := range m {
		m[i] = make([]float64, n)
		m[i][i] = 1
	}
	return m
}

// columns copies the named columns of m in their order, all of them for nil.
func columns(m [][]float64, order []int) [][]float64 {
	out := make([][]float64, len(m))
	for i, row := range m {
		out[i] = append([]float64(nil), row...)
		for j, from := range order {
			out[i][j] = row[from]
		}
	}
	return out
}

func transposed(m [][]float64) [][]float64 {
	out := identity(len(m))
	for i := range m {
		for j := range m {
			out[i][j] = m[j][i]
		}
	}
	return out
}

func multiply(a, b [][]float64) [][]float64 {
	out := make([][]float64, len(a))
	for i := range a {
		out[i] = make([]float64, len(b))
		for k, x := range a[i] {
			for j, y := range b[k] {
				out[i][j] += x * y
			}
		}
	}
	return out
}

func widen[T gemm.Float](m gemm.Matrix[T]) [][]float64 {
	out := make([][]float64, m.Rows)
	for i := range out {
		out[i] = make([]float64, m.Cols)
		for j, v := range m.Row(i) {
			out[i][j] = float64(v)
		}
	}
	return out
}

func narrow[T gemm.Float](dst gemm.Matrix[T], src [][]float64) error {
	for i, row := range src {
		for j, v := range row {
			if math.IsNaN(v) {
				return errNotFinite
			}
			dst.Set(i, j, T(v))
		}
	}
	return nil
}
