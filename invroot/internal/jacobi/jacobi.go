package jacobi

import (
	"math"

	"github.com/asteria-runtime/asteria/gemm"
)

// Eigen returns eigenvalues (ascending) and orthonormal eigenvectors (columns)
// of a symmetric matrix by the cyclic Jacobi method (Golub and Van Loan, Matrix
// Computations, 8.5): slow, short, and accurate to a few units in the last
// place of the norm.
func Eigen(a gemm.Matrix[float64]) (w []float64, q gemm.Matrix[float64]) {
	n := a.Rows
	b := gemm.NewMatrix[float64](n, n)
	q = gemm.NewMatrix[float64](n, n)
	for i := range n {
		copy(b.Row(i), a.Row(i))
		q.Set(i, i, 1)
	}
	for range 60 {
		if off(b) <= 1e-34*square(b) {
			break
		}
		for i := range n {
			for j := range i {
				rotate(b, q, i, j)
			}
		}
	}
	w = make([]float64, n)
	for i := range n {
		w[i] = b.At(i, i)
	}
	sortColumns(w, q)
	return w, q
}

// rotate zeroes element (i, j) of b by a similarity rotation that q accumulates.
func rotate(b, q gemm.Matrix[float64], i, j int) {
	x := b.At(i, j)
	if x == 0 {
		return
	}
	theta := (b.At(j, j) - b.At(i, i)) / (2 * x)
	t := 1 / (math.Abs(theta) + math.Hypot(theta, 1))
	if theta < 0 {
		t = -t
	}
	c := 1 / math.Hypot(t, 1)
	s := t * c
	for k := range b.Rows {
		u, v := b.At(i, k), b.At(j, k)
		b.Set(i, k, c*u-s*v)
		b.Set(j, k, s*u+c*v)
	}
	for k := range b.Rows {
		u, v := b.At(k, i), b.At(k, j)
		b.Set(k, i, c*u-s*v)
		b.Set(k, j, s*u+c*v)
		u, v = q.At(k, i), q.At(k, j)
		q.Set(k, i, c*u-s*v)
		q.Set(k, j, s*u+c*v)
	}
}

func off(b gemm.Matrix[float64]) float64 {
	s := 0.0
	for i := range b.Rows {
		for j := range i {
			s += 2 * b.At(i, j) * b.At(i, j)
		}
	}
	return s
}

func square(b gemm.Matrix[float64]) float64 {
	s := off(b)
	for i := range b.Rows {
		s += b.At(i, i) * b.At(i, i)
	}
	return s
}

func sortColumns(w []float64, q gemm.Matrix[float64]) {
	for i := range w {
		for j := i; j > 0 && w[j] < w[j-1]; j-- {
			w[j], w[j-1] = w[j-1], w[j]
			for k := range q.Rows {
				u, v := q.At(k, j), q.At(k, j-1)
				q.Set(k, j, v)
				q.Set(k, j-1, u)
			}
		}
	}
}

// Power returns A^x for a symmetric positive definite matrix, by [Eigen].
func Power(a gemm.Matrix[float64], x float64) gemm.Matrix[float64] {
	w, q := Eigen(a)
	return Function(w, q, x)
}

// Function returns Q*diag(w^x)*Qᵀ.
func Function(w []float64, q gemm.Matrix[float64], x float64) gemm.Matrix[float64] {
	out := gemm.NewMatrix[float64](q.Rows, q.Rows)
	for k, v := range w {
		f := math.Pow(v, x)
		for i := range out.Rows {
			qf := q.At(i, k) * f
			row := out.Row(i)
			for j := range row {
				row[j] += qf * q.At(j, k)
			}
		}
	}
	return out
}
