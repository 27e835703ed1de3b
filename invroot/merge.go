package invroot

import (
	"math"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/gemm/vec"
)

// mergePhase names the loops of a merge that can be spread over threads.
type mergePhase uint8

const (
	phaseRoots mergePhase = iota
	phaseWeights
	phaseVectors
)

// mergeTask is one merge: views of divide's arrays for the node, and its counts.
type mergeTask[T gemm.Float] struct {
	c       *divide[T]
	lo      int
	n, m    int // orders of the node and of its upper half
	k, lost int // non-deflated and deflated eigenvalues
	phase   mergePhase

	z                    gemm.Matrix[T]
	d, zv, prod, pd, pz  []float64
	sd, sz, sz2          []float64
	index, kept, gone    []int
	perm, to             []int
	kind                 []uint8
	secular              secular
	upperRows, denseRows int
}

// bind takes the node's part of every array.
func (t *mergeTask[T]) bind(c *divide[T], lo, n, m int) {
	hi := lo + n
	t.c, t.lo, t.n, t.m = c, lo, n, m
	t.z = c.z.Slice(lo, lo, n, n)
	t.d, t.zv, t.prod = c.d[lo:hi], c.zv[lo:hi], c.prod[lo:hi]
	t.pd, t.pz = c.pd[lo:hi], c.pz[lo:hi]
	t.sd, t.sz, t.sz2 = c.sd[lo:hi], c.sz[lo:hi], c.sz2[lo:hi]
	t.index, t.kept, t.gone = c.index[lo:hi], c.kept[lo:hi], c.gone[lo:hi]
	t.perm, t.to, t.kind = c.perm[lo:hi], c.place[lo:hi], c.kind[lo:hi]
	t.secular.origin, t.secular.offset = c.origin[lo:hi], c.offset[lo:hi]
	t.secular.tol = 0x1p-53
	if unit[T]() > 0x1p-30 {
		t.secular.tol = 0x1p-32 // far below the roundoff of the float32 vectors
	}
	t.secular.set = c.k.set
}

// couple forms the rank-one vector from the halves' adjoining columns, of length
// one, and returns its weight.
func (t *mergeTask[T]) couple() float64 {
	rho := t.c.e[t.lo+t.m-1]
	sign := math.Copysign(1, rho)
	sum := 0.0
	for i := range t.n {
		row := t.z.Data[i*t.z.Stride:]
		v := float64(row[t.m-1])
		if i >= t.m {
			v = sign * float64(row[t.m])
		}
		t.zv[i] = v
		sum += v * v
	}
	inv := 1 / math.Sqrt(sum)
	for i := range t.zv {
		t.zv[i] *= inv
	}
	return math.Abs(rho) * sum
}

// mergeOrder sorts the two ascending halves of d into index.
func (t *mergeTask[T]) mergeOrder() {
	a, b := 0, t.m
	for i := range t.index {
		if b >= t.n || (a < t.m && t.d[a] <= t.d[b]) {
			t.index[i] = a
			a++
		} else {
			t.index[i] = b
			b++
		}
	}
	for i := range t.kind {
		t.kind[i] = upper
		if i >= t.m {
			t.kind[i] = lower
		}
	}
}

// deflate finds the eigenpairs that the rank-one part does not move: those with
// a negligible component, and all but one of a cluster of equal poles, made
// negligible by a rotation (LAPACK laed2). It fills kept and gone, and the
// secular problem's poles and weights.
func (t *mergeTask[T]) deflate(rho float64) (k, lost int) {
	tol := t.tolerance()
	prev := -1
	keep := func(j int) {
		t.kept[k] = j
		k++
	}
	for _, j := range t.index {
		if rho*math.Abs(t.zv[j]) <= tol {
			t.gone[lost] = j
			lost++
			continue
		}
		if prev >= 0 && t.rotated(prev, j, tol) {
			t.gone[lost] = prev
			lost++
		} else if prev >= 0 {
			keep(prev)
		}
		prev = j
	}
	if prev >= 0 {
		keep(prev)
	}
	for i, j := range t.kept[:k] {
		t.sd[i], t.sz[i], t.sz2[i] = t.d[j], t.zv[j], t.zv[j]*t.zv[j]
	}
	t.secular.d, t.secular.z2 = t.sd[:k], t.sz2[:k]
	return k, lost
}

// tolerance is LAPACK's 8*u*max(|d|, |z|): a deflation perturbs the matrix by no more.
func (t *mergeTask[T]) tolerance() float64 {
	s := max(math.Abs(t.d[t.index[0]]), math.Abs(t.d[t.index[t.n-1]]))
	for _, v := range t.zv {
		s = max(s, math.Abs(v))
	}
	return 8 * unit[T]() * s
}

// rotated moves the component of pole i onto its neighbour j when the two poles
// are so close that the coupling this creates is negligible.
func (t *mergeTask[T]) rotated(i, j int, tol float64) bool {
	length := math.Hypot(t.zv[i], t.zv[j])
	c, s := t.zv[j]/length, -t.zv[i]/length
	if math.Abs((t.d[j]-t.d[i])*c*s) > tol {
		return false
	}
	t.zv[j], t.zv[i] = length, 0
	if t.kind[i] != t.kind[j] {
		t.widen(i)
		t.widen(j)
	}
	lo, hi := t.span(t.kind[j])
	t.c.k.rotate(t.z.Row(i)[lo:hi], t.z.Row(j)[lo:hi], T(c), T(s))
	di, dj := t.d[i], t.d[j]
	t.d[i] = di*c*c + dj*s*s
	t.d[j] = di*s*s + dj*c*c
	return true
}

// span returns the columns in which a row of a kind may be non-zero.
func (t *mergeTask[T]) span(kind uint8) (lo, hi int) {
	switch kind {
	case upper:
		return 0, t.m
	case lower:
		return t.m, t.n
	}
	return 0, t.n
}

// widen makes row i dense: the other half, unused so far, becomes zero.
func (t *mergeTask[T]) widen(i int) {
	t.blank(t.z.Row(i), t.kind[i])
	t.kind[i] = dense
}

// blank clears the part of a row that its kind says is zero.
func (t *mergeTask[T]) blank(row []T, kind uint8) {
	switch kind {
	case upper:
		clear(row[t.m:])
	case lower:
		clear(row[:t.m])
	}
}

// arrange orders the kept rows upper, dense, lower: the products with the upper
// and the lower half of z then each have one contiguous range of rows.
func (t *mergeTask[T]) arrange() {
	at := 0
	var counts [3]int
	for _, kind := range [3]uint8{upper, dense, lower} {
		for i, j := range t.kept[:t.k] {
			if t.kind[j] == kind {
				t.perm[at] = i
				at++
				counts[kind]++
			}
		}
	}
	t.upperRows, t.denseRows = counts[upper], counts[dense]
}

// gathered returns the compact copies of the kept rows' halves, and of the
// deflated rows, all inside the node's rows of the scratch g.
func (t *mergeTask[T]) gathered() (left, right, rest gemm.Matrix[T]) {
	g := t.c.g
	buf := g.Data[t.lo*g.Stride : (t.lo+t.n)*g.Stride]
	take := func(rows, cols int) gemm.Matrix[T] {
		v := gemm.Matrix[T]{Rows: rows, Cols: cols, Stride: cols, Data: buf[:rows*cols]}
		buf = buf[rows*cols:]
		return v
	}
	rl := t.upperRows + t.denseRows
	left = take(rl, t.m)
	right = take(t.k-t.upperRows, t.n-t.m)
	rest = take(t.lost, t.n)
	return left, right, rest
}

// stash copies the rows of z that the merge reads out of the way of its result.
func (t *mergeTask[T]) stash() {
	if t.k == 0 {
		t.upperRows, t.denseRows = 0, 0
	}
	left, right, rest := t.gathered()
	for i := range left.Rows {
		copy(left.Row(i), t.z.Row(t.kept[t.perm[i]])[:t.m])
	}
	for i := range right.Rows {
		copy(right.Row(i), t.z.Row(t.kept[t.perm[t.upperRows+i]])[t.m:])
	}
	for i := range rest.Rows {
		j := t.gone[i]
		copy(rest.Row(i), t.z.Row(j))
		t.blank(rest.Row(i), t.kind[j])
	}
}

// Do implements gemm.Task for the three loops of a merge.
func (t *mergeTask[T]) Do(chunk, _ int) {
	lo := chunk * mergeChunk
	hi := min(lo+mergeChunk, t.k)
	switch t.phase {
	case phaseRoots:
		for j := lo; j < hi; j++ {
			t.secular.solve(j)
		}
	case phaseWeights:
		t.weights(lo, hi)
	case phaseVectors:
		for j := lo; j < hi; j++ {
			t.vector(j)
		}
	}
}

// weights recomputes z so that the roots found are the exact eigenvalues of diag(d)+z*zᵀ
// (Loewner's formula): the vectors are then orthogonal whatever the roots' errors.
//
//	z[i]² = Π_j (λ[j]-d[i]) / Π_{j≠i} (d[j]-d[i])
func (t *mergeTask[T]) weights(lo, hi int) {
	s := &t.secular
	prod := t.prod[lo:hi]
	for i := range prod {
		prod[i] = 1
	}
	for j := range t.k {
		pole, o, y := s.d[j], s.origin[j], s.offset[j]
		if j < lo || j >= hi {
			s.set.loewner(prod, s.d[lo:hi], o, y, pole)
			continue
		}
		s.set.loewner(prod[:j-lo], s.d[lo:j], o, y, pole)
		prod[j-lo] *= (o - pole) + y
		s.set.loewner(prod[j+1-lo:], s.d[j+1:hi], o, y, pole)
	}
	for i := range prod {
		prod[i] = math.Copysign(math.Sqrt(math.Abs(prod[i])), t.sz[lo+i])
	}
}

// permuteWeights brings the weights into the arranged order, beside their poles.
func (t *mergeTask[T]) permuteWeights() {
	for i, j := range t.perm[:t.k] {
		t.pd[i], t.pz[i] = t.sd[j], t.prod[j]
	}
}

// vector forms row j of u, the eigenvector of the secular problem, columns in
// the arranged order.
func (t *mergeTask[T]) vector(j int) {
	u := t.vectors().Row(j)
	sum := vector(t.c.k.set, u, t.pd[:t.k], t.pz[:t.k], t.secular.origin[j], t.secular.offset[j])
	vec.Scale(T(1/math.Sqrt(sum)), u)
}

// vectors returns the k×k part of the scratch u that belongs to the node.
func (t *mergeTask[T]) vectors() gemm.Matrix[T] {
	return t.c.u.Slice(t.lo, 0, t.k, t.k)
}

// products forms the new rows: the upper half of z is touched by the upper and
// dense rows only, the lower half by the dense and lower ones.
func (t *mergeTask[T]) products(eng *gemm.Engine) {
	left, right, _ := t.gathered()
	u := t.vectors()
	t.c.wait.point()
	t.product(eng, u.Slice(0, 0, t.k, left.Rows), left, t.z.Slice(0, 0, t.k, t.m))
	t.c.wait.point()
	t.product(eng, u.Slice(0, t.upperRows, t.k, right.Rows), right, t.z.Slice(0, t.m, t.k, t.n-t.m))
}

// product sets z = u*q, zero when no row of q is left.
func (t *mergeTask[T]) product(eng *gemm.Engine, u, q, z gemm.Matrix[T]) {
	if q.Rows == 0 {
		for i := range z.Rows {
			clear(z.Row(i))
		}
		return
	}
	gemm.Mul(eng, false, false, 1, u, q, 0, z)
}

// place appends the deflated rows, and brings rows and eigenvalues into ascending order.
func (t *mergeTask[T]) place() {
	_, _, rest := t.gathered()
	for i := range rest.Rows {
		copy(t.z.Row(t.k+i), rest.Row(i))
	}
	for i, j := range t.gone[:t.lost] {
		t.zv[i] = t.d[j]
	}
	t.sortGone()
	a, b := 0, 0
	for i := range t.n {
		if b >= t.lost || (a < t.k && t.root(a) <= t.zv[t.index[b]]) {
			t.to[i], t.prod[i] = a, t.root(a)
			a++
		} else {
			t.to[i], t.prod[i] = t.k+t.index[b], t.zv[t.index[b]]
			b++
		}
	}
	copy(t.d, t.prod[:t.n])
	t.permute()
}

// root returns eigenvalue j of the secular problem.
func (t *mergeTask[T]) root(j int) float64 { return t.secular.origin[j] + t.secular.offset[j] }

// sortGone orders the deflated eigenvalues, which are nearly sorted already:
// index[b] is the position in gone of the b-th smallest.
func (t *mergeTask[T]) sortGone() {
	for i := range t.lost {
		t.index[i] = i
		for j := i; j > 0 && t.zv[t.index[j]] < t.zv[t.index[j-1]]; j-- {
			t.index[j], t.index[j-1] = t.index[j-1], t.index[j]
		}
	}
}

// permute moves row to[i] of z to row i, following cycles; the scratch u holds the one row
// that a cycle displaces.
func (t *mergeTask[T]) permute() {
	spare := t.c.u.Row(t.lo)[:t.n]
	for start := range t.n {
		if t.to[start] == start || t.to[start] < 0 {
			continue
		}
		copy(spare, t.z.Row(start))
		i := start
		for t.to[i] != start {
			from := t.to[i]
			copy(t.z.Row(i), t.z.Row(from))
			t.to[i] = -1
			i = from
		}
		copy(t.z.Row(i), spare)
		t.to[i] = -1
	}
}
