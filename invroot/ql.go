package invroot

import "math"

// leafOrder is the order up to which a tridiagonal problem is solved by
// implicit QL instead of being divided.
const leafOrder = 32

// leaf solves small tridiagonal problems in float64.
type leaf struct {
	k     kernels[float64]
	e     [leafOrder]float64
	v     [leafOrder * leafOrder]float64 // eigenvectors as rows
	order [leafOrder]int
}

// solve overwrites d with the eigenvalues of the tridiagonal matrix (d, e), not sorted;
// the rows of l.v are the eigenvectors. It is the implicit QL iteration
// (Martin and Wilkinson 1968, EISPACK tql2); e has len(d)-1 elements and is kept.
func (l *leaf) solve(d, e []float64) error {
	n := len(d)
	clear(l.v[:n*n])
	for i := range n {
		l.v[i*n+i] = 1
	}
	copy(l.e[:], e[:n-1])
	l.e[n-1] = 0
	for i := range n {
		for sweeps := 0; ; sweeps++ {
			m := l.split(d, i)
			if m == i {
				break
			}
			if sweeps == 60 { // 1.7 sweeps an eigenvalue is usual, 30 LAPACK's limit
				return &ConvergenceError{Stage: "tridiagonal ql", Order: n, Iterations: sweeps, Residual: math.Abs(l.e[i])}
			}
			l.sweep(d, i, m)
		}
	}
	return nil
}

// split returns the end of the unreduced block that begins at i.
func (l *leaf) split(d []float64, i int) int {
	m := i
	for m < len(d)-1 {
		if math.Abs(l.e[m]) <= 0x1p-53*(math.Abs(d[m])+math.Abs(d[m+1])) {
			break
		}
		m++
	}
	return m
}

// sweep does one QL step with Wilkinson's shift on the block [i, m].
func (l *leaf) sweep(d []float64, i, m int) {
	n := len(d)
	e := &l.e
	g := (d[i+1] - d[i]) / (2 * e[i])
	r := math.Hypot(g, 1)
	g = d[m] - d[i] + e[i]/(g+math.Copysign(r, g))
	s, c, p := 1.0, 1.0, 0.0
	for j := m - 1; j >= i; j-- {
		f, b := s*e[j], c*e[j]
		r = math.Sqrt(f*f + g*g)
		e[j+1] = r
		if r == 0 { // the block has split: recover from underflow
			d[j+1] -= p
			e[m] = 0
			return
		}
		inv := 1 / r
		s, c = f*inv, g*inv
		g = d[j+1] - p
		r = (d[j]-g)*s + 2*c*b
		p = s * r
		d[j+1] = g + p
		g = c*r - b
		l.k.rotate(l.v[(j+1)*n:(j+2)*n], l.v[j*n:(j+1)*n], c, s)
	}
	d[i] -= p
	e[i] = g
	e[m] = 0
}

// sort fills l.order with the rows in ascending order of d and sorts d.
func (l *leaf) sort(d []float64) []int {
	order := l.order[:len(d)]
	for i := range order {
		order[i] = i
		for j := i; j > 0 && d[j] < d[j-1]; j-- {
			d[j], d[j-1] = d[j-1], d[j]
			order[j], order[j-1] = order[j-1], order[j]
		}
	}
	return order
}
