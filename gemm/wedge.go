package gemm

// wedgeStride is the number of elements between rows of a wedge's coefficients;
// no leaf is larger.
const wedgeStride = 16

// wedge is one call of a triangular kernel: row p of b is b[at+p*step:][:width],
// and step may be negative. The assembly reads it by offset (see _gen).
type wedge[T Float] struct {
	l     []T // lower triangle, rows wedgeStride apart
	b     []T
	at    int
	step  int
	width int // columns, at most two vectors
	order int
}

// solveWedge replaces b by the solution x of L*x = b.
func solveWedge[T Float](t *wedge[T]) {
	for p := range t.order {
		x := t.row(p)
		for q := range p {
			c := t.l[p*wedgeStride+q]
			for j, v := range t.row(q) {
				x[j] -= c * v
			}
		}
		d := t.l[p*wedgeStride+p]
		for j := range x {
			x[j] /= d
		}
	}
}

// timesWedge replaces b by L*b.
func timesWedge[T Float](t *wedge[T]) {
	for p := t.order - 1; p >= 0; p-- {
		x := t.row(p)
		d := t.l[p*wedgeStride+p]
		for j := range x {
			x[j] *= d
		}
		for q := range p {
			c := t.l[p*wedgeStride+q]
			for j, v := range t.row(q) {
				x[j] += c * v
			}
		}
	}
}

// row is row p of b.
func (t *wedge[T]) row(p int) []T { return t.b[t.at+p*t.step:][:t.width] }
