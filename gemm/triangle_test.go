package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// triangles lists the sixteen forms.
func triangles() (list []Triangle) {
	for i := range 16 {
		list = append(list, Triangle{Right: i&1 > 0, Upper: i&2 > 0, Trans: i&4 > 0, Unit: i&8 > 0})
	}
	return list
}

// dense returns op(a) in float64 with explicit zeros and ones.
func dense[T Float](t Triangle, n int, a []T, lda int) [][]float64 {
	x := make([][]float64, n)
	for i := range x {
		x[i] = make([]float64, n)
	}
	for i := range n {
		for j := range n {
			v := float64(a[i*lda+j])
			switch {
			case i == j && t.Unit:
				v = 1
			case i != j && (j > i) != t.Upper:
				continue
			}
			if t.Trans {
				x[j][i] = v
			} else {
				x[i][j] = v
			}
		}
	}
	return x
}

// product64 returns op(a)*b or b*op(a), and the same with absolute values.
func product64[T Float](t Triangle, a [][]float64, m, n int, b []T, ldb int) (sum, size [][]float64) {
	for i := range m {
		s, z := make([]float64, n), make([]float64, n)
		for j := range n {
			for l := range len(a) {
				v := 0.0
				if t.Right {
					v = float64(b[i*ldb+l]) * a[l][j]
				} else {
					v = a[i][l] * float64(b[l*ldb+j])
				}
				s[j] += v
				z[j] += math.Abs(v)
			}
		}
		sum, size = append(sum, s), append(size, z)
	}
	return sum, size
}

func testTriangles[T Float](t *testing.T, e *Engine) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 7))
	sizes := [][2]int{{1, 1}, {5, 3}, {13, 40}, {14, 33}, {15, 64}, {29, 17}, {64, 50}, {97, 131}}
	for _, tri := range triangles() {
		for _, size := range sizes {
			m, n := size[0], size[1]
			if testing.Short() && tri.Unit && m > 30 {
				continue
			}
			if tri.Right {
				m, n = n, m
			}
			order := tri.order(m, n)
			lda, ldb := order+r.IntN(4), n+r.IntN(4)
			a, b := guarded[T](r, order, order, lda), guarded[T](r, m, n, ldb)
			for i := range order {
				a.x[i*lda+i] = 2 + a.x[i*lda+i]
				for j := range order {
					if i != j {
						a.x[i*lda+j] /= T(order)
					}
				}
			}
			full := dense(tri, order, a.x, lda)
			name := fmt.Sprintf("%+v m=%d n=%d seed %d", tri, m, n, seed)
			eps := epsilon[T]()

			want, mag := product64(tri, full, m, n, b.x, ldb)
			x := b.clone()
			trmmFor[T](e)(tri, m, n, 3, a.x, lda, x.x, ldb)
			x.check(t, "trmm "+name)
			for i := range m {
				for j := range n {
					if d := math.Abs(float64(x.x[i*ldb+j]) - 3*want[i][j]); d > 4*float64(order+2)*eps*3*mag[i][j] {
						t.Fatalf("trmm %s: (%d,%d) is %g, want %g", name, i, j, x.x[i*ldb+j], 3*want[i][j])
					}
				}
			}

			// Backward error of substitution: |op(a)x - alpha b| <= c n eps |op(a)||x|.
			x = b.clone()
			trsmFor[T](e)(tri, m, n, 3, a.x, lda, x.x, ldb)
			x.check(t, "trsm "+name)
			got, mag := product64(tri, full, m, n, x.x, ldb)
			for i := range m {
				for j := range n {
					w := 3 * float64(b.x[i*ldb+j])
					if d := math.Abs(got[i][j] - w); !(d <= 4*float64(order+2)*eps*(mag[i][j]+math.Abs(w))) {
						t.Fatalf("trsm %s: residual of (%d,%d) is %g", name, i, j, d)
					}
				}
			}
		}
	}
}

func trsmFor[T Float](e *Engine) func(Triangle, int, int, T, []T, int, []T, int) {
	return func(t Triangle, m, n int, alpha T, a []T, lda int, b []T, ldb int) {
		triangle(e, t, true, m, n, alpha, a, lda, b, ldb)
	}
}

func trmmFor[T Float](e *Engine) func(Triangle, int, int, T, []T, int, []T, int) {
	return func(t Triangle, m, n int, alpha T, a []T, lda int, b []T, ldb int) {
		triangle(e, t, false, m, n, alpha, a, lda, b, ldb)
	}
}

func TestTrianglesMatchTheDenseProduct(t *testing.T) {
	eachEngine(t, func(t *testing.T, e *Engine) {
		testTriangles[float32](t, e)
		testTriangles[float64](t, e)
	})
}

func TestPotrfFactors(t *testing.T) {
	eachEngine(t, func(t *testing.T, e *Engine) {
		testPotrf[float32](t, e)
		testPotrf[float64](t, e)
	})
}

func testPotrf[T Float](t *testing.T, e *Engine) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 3))
	for _, n := range []int{1, 2, 7, 8, 13, 14, 15, 31, 64, 100, 187} {
		ld := n + r.IntN(3)
		g := guarded[T](r, n, n+3, n+3)
		a := guarded[T](r, n, n, ld)
		for i := range n {
			for j := range i + 1 {
				s := 0.0
				for l := range n + 3 {
					s += float64(g.x[i*(n+3)+l]) * float64(g.x[j*(n+3)+l])
				}
				a.x[i*ld+j] = T(s)
			}
			a.x[i*ld+i] += 1
		}
		l := a.clone()
		if !potrf(e, n, l.x, ld) {
			t.Fatalf("n=%d seed %d: refused a positive definite matrix", n, seed)
		}
		l.check(t, fmt.Sprintf("potrf n=%d", n))
		// Backward error: |L*Lᵀ - a| <= c n eps |L||Lᵀ|.
		for i := range n {
			for j := range n {
				if j > i {
					if l.x[i*ld+j] != a.x[i*ld+j] {
						t.Fatalf("n=%d: upper triangle written at (%d,%d)", n, i, j)
					}
					continue
				}
				s, mag := 0.0, 0.0
				for q := range j + 1 {
					v := float64(l.x[i*ld+q]) * float64(l.x[j*ld+q])
					s, mag = s+v, mag+math.Abs(v)
				}
				if d := math.Abs(s - float64(a.x[i*ld+j])); d > 4*float64(n+2)*epsilon[T]()*mag {
					t.Fatalf("n=%d seed %d: (%d,%d) is off by %g", n, seed, i, j, d)
				}
			}
		}
		b := a.clone()
		b.x[(n/2)*ld+n/2] = -1
		if potrf(e, n, b.x, ld) {
			t.Fatalf("n=%d: accepted an indefinite matrix", n)
		}
		b = a.clone()
		b.x[(n-1)*ld+n-1] = T(math.NaN())
		if potrf(e, n, b.x, ld) {
			t.Fatalf("n=%d: accepted NaN", n)
		}
	}
}
