package gemm

// The portable kernels are the specification: the assembly is tested against
// them. They are also what other architectures and the tag noasm run.

// genericFamily is the portable kernel set. Its tile is 4×4: with 2 rows at a
// time, 8 sums and 6 operands fit the 15 float registers that compilers have.
func genericFamily[T Float]() *family[T] {
	f := &family[T]{
		lanes: 4, vectors: 1, rows: []int{0, 4}, masked: true,
		byRow: make([][]func(*tile[T]), 2), byCol: make([][]func(*tile[T]), 2),
		leaf:       8,
		copyPanels: copyPanels[T], turnPanel: turnPanel[T], peak: peak[T],
		blocking: blocking{kc: 256, mc: 64, nc: 128, keepRows: 16, inPlaceA: 4 << 10, inPlaceB: 4 << 10},
	}
	for range f.leaf + 1 {
		f.solve = append(f.solve, solveWedge[T])
		f.times = append(f.times, timesWedge[T])
	}
	for range 5 {
		f.byRow[1] = append(f.byRow[1], tileByRow[T])
		f.byCol[1] = append(f.byCol[1], tileByCol[T])
	}
	return f
}

// tileByRow is the kernel for row-major a.
func tileByRow[T Float](t *tile[T]) { tileLoop(t, t.lda, 1) }

// tileByCol is the kernel for k-major a.
func tileByCol[T Float](t *tile[T]) { tileLoop(t, 1, t.lda) }

// tileLoop runs the tiles of t; element (i, l) of a is a[i*ra+l*ca]. Rows count
// on from tile to tile for the diagonal.
func tileLoop[T Float](t *tile[T], ra, ca int) {
	for q := range t.count {
		b, c := t.b[q*t.bstep:], t.c[q*t.cstep:]
		for i := 0; i < t.rows; i += 2 {
			a := t.a[q*t.astep+i*ra:]
			diag := t.diag + q*t.rows + i
			if i+2 <= t.rows && t.width == 4 {
				s := dot2x4(t.k, a, ra, ca, b, t.ldb)
				t.store(c[i*t.ldc:], diag, s[:4])
				t.store(c[(i+1)*t.ldc:], diag+1, s[4:])
				continue
			}
			for r := range min(2, t.rows-i) {
				s := dot1x4(t.k, a[r*ra:], ca, b, t.ldb, t.width)
				t.store(c[(i+r)*t.ldc:], diag+r, s[:t.width])
			}
		}
	}
}

// dot2x4 returns two rows of four sums.
func dot2x4[T Float](k int, a []T, ra, ca int, b []T, ldb int) [8]T {
	var s00, s01, s02, s03, s10, s11, s12, s13 T
	x, y := 0, 0
	for range k {
		a0, a1 := a[x], a[x+ra]
		p := b[y : y+4 : y+4]
		s00 += a0 * p[0]
		s01 += a0 * p[1]
		s02 += a0 * p[2]
		s03 += a0 * p[3]
		s10 += a1 * p[0]
		s11 += a1 * p[1]
		s12 += a1 * p[2]
		s13 += a1 * p[3]
		x += ca
		y += ldb
	}
	return [8]T{s00, s01, s02, s03, s10, s11, s12, s13}
}

// dot1x4 returns one row of width <= 4 sums.
func dot1x4[T Float](k int, a []T, ca int, b []T, ldb, width int) (s [4]T) {
	for l := range k {
		v := a[l*ca]
		for j, w := range b[l*ldb : l*ldb+width] {
			s[j] += v * w
		}
	}
	return s
}

// store writes one row of sums as the mode says; diag is its last column when lower.
func (t *tile[T]) store(c []T, diag int, s []T) {
	for j, v := range s {
		if t.mode&modeLower != 0 && j > diag {
			return
		}
		if t.mode&modeScale != 0 {
			v *= t.alpha
		}
		switch {
		case t.mode&modeAdd != 0:
			v += c[j]
		case t.mode&modeBeta != 0:
			v += t.beta * c[j]
		}
		c[j] = v
	}
}

// copyPanels copies depth rows of width elements a panel and pads each with zeros.
func copyPanels[T Float](dst []T, ldd int, src []T, lds, depth, width, pad int, p panels) {
	for q := range p.count {
		to, from := dst[q*p.dst:], src[q*p.src:]
		for r := range depth {
			d := to[r*ldd : r*ldd+pad]
			copy(d, from[r*lds:r*lds+width])
			clear(d[width:])
		}
	}
}

// turnPanel transposes width rows of depth elements and pads with zeros.
func turnPanel[T Float](dst []T, ldd int, src []T, lds, depth, width, pad int) {
	for x := range width {
		for r, v := range src[x*lds : x*lds+depth] {
			dst[r*ldd+x] = v
		}
	}
	for r := range depth {
		clear(dst[r*ldd+width : r*ldd+pad])
	}
}

// peak keeps 8 sums in registers.
func peak[T Float](n int) int {
	a := make([]T, 2)
	b := make([]T, 4)
	for range n {
		dot2x4(64, a, 1, 0, b, 0)
	}
	return n * 64 * 8
}
