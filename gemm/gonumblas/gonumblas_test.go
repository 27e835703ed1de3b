package gonumblas

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/blas/gonum"
	"gonum.org/v1/gonum/blas/testblas"

	"github.com/asteria-runtime/asteria/gemm"
)

// TestGonumSuite runs gonum's own conformance tests of float64 level 3.
func TestGonumSuite(t *testing.T) {
	for threads := 1; threads <= 2; threads++ {
		e := gemm.New(threads)
		defer e.Close()
		i := New(e)
		t.Run("Dgemm", func(t *testing.T) { testblas.TestDgemm(t, i) })
		t.Run("Dsymm", func(t *testing.T) { testblas.DsymmTest(t, i) })
		t.Run("Dsyrk", func(t *testing.T) { testblas.DsyrkTest(t, i) })
		t.Run("Dsyr2k", func(t *testing.T) { testblas.Dsyr2kTest(t, i) })
		t.Run("Dtrmm", func(t *testing.T) { testblas.DtrmmTest(t, i) })
		t.Run("Dtrsm", func(t *testing.T) { testblas.DtrsmTest(t, i) })
	}
}

func random32(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(2*r.Float64() - 1)
	}
	return x
}

// TestFloat32AgreesWithGonum compares every routine with gonum's on sizes with
// tails; the bound is that of two sums of up to k products of numbers below 1 in
// any order: 2*(k+3)*k*2^-24.
func TestFloat32AgreesWithGonum(t *testing.T) {
	e := gemm.New(2)
	defer e.Close()
	ours, theirs := New(e), gonum.Implementation{}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	for _, n := range []int{1, 3, 17, 64, 65, 150} {
		m, k := n/2+1, n+5
		ld := 2*n + 9
		a, b, c := random32(r, ld*ld), random32(r, ld*ld), random32(r, ld*ld)
		for i := range ld {
			a[i*ld+i] = 3
			for j := range ld {
				if i != j {
					a[i*ld+j] /= float32(n)
				}
			}
		}
		compare := func(name string, call func(blas.Float32, []float32)) {
			t.Helper()
			x, y := append([]float32(nil), c...), append([]float32(nil), c...)
			call(ours, x)
			call(theirs, y)
			bound := 2 * float64(k+3) * float64(k) * 0x1p-24
			for i := range x {
				if d := math.Abs(float64(x[i] - y[i])); !(d <= bound) {
					t.Fatalf("%s n=%d seed %d: element %d is %g, gonum has %g", name, n, seed, i, x[i], y[i])
				}
			}
		}
		transposes := []blas.Transpose{blas.NoTrans, blas.Trans, blas.ConjTrans}
		for _, ta := range transposes {
			for _, tb := range transposes {
				compare("Sgemm", func(f blas.Float32, c []float32) { f.Sgemm(ta, tb, m, n, k, 2, a, ld, b, ld, 0.5, c, ld) })
			}
		}
		for _, ul := range []blas.Uplo{blas.Lower, blas.Upper} {
			for _, tr := range transposes {
				compare("Ssyrk", func(f blas.Float32, c []float32) { f.Ssyrk(ul, tr, n, k, 2, b, ld, 0.5, c, ld) })
				compare("Ssyr2k", func(f blas.Float32, c []float32) { f.Ssyr2k(ul, tr, n, k, 2, a, ld, b, ld, 0, c, ld) })
			}
			for _, s := range []blas.Side{blas.Left, blas.Right} {
				compare("Ssymm", func(f blas.Float32, c []float32) { f.Ssymm(s, ul, m, n, 2, a, ld, b, ld, 0.5, c, ld) })
				for _, tr := range transposes {
					for _, d := range []blas.Diag{blas.Unit, blas.NonUnit} {
						name := fmt.Sprintf("%c%c%c%c", s, ul, tr, d)
						compare("Strmm "+name, func(f blas.Float32, c []float32) { f.Strmm(s, ul, tr, d, m, n, 2, a, ld, c, ld) })
						compare("Strsm "+name, func(f blas.Float32, c []float32) { f.Strsm(s, ul, tr, d, m, n, 2, a, ld, c, ld) })
					}
				}
			}
		}
	}
}

// TestBadArgumentsPanicAsInGonum holds that checks are gonum's.
func TestBadArgumentsPanicAsInGonum(t *testing.T) {
	e := gemm.New(1)
	defer e.Close()
	ours, theirs := New(e), gonum.Implementation{}
	x := make([]float32, 16)
	message := func(call func(blas.Float32Level3), f blas.Float32Level3) (m any) {
		defer func() { m = recover() }()
		call(f)
		return nil
	}
	for i, call := range []func(blas.Float32Level3){
		func(f blas.Float32Level3) { f.Sgemm('x', blas.Trans, 2, 2, 2, 1, x, 2, x, 2, 0, x, 2) },
		func(f blas.Float32Level3) { f.Sgemm(blas.NoTrans, blas.Trans, -1, 2, 2, 1, x, 2, x, 2, 0, x, 2) },
		func(f blas.Float32Level3) { f.Sgemm(blas.NoTrans, blas.Trans, 2, 2, 2, 1, x, 1, x, 2, 0, x, 2) },
		func(f blas.Float32Level3) { f.Sgemm(blas.NoTrans, blas.Trans, 5, 5, 5, 1, x, 5, x, 5, 0, x, 5) },
		func(f blas.Float32Level3) { f.Ssyrk('x', blas.Trans, 2, 2, 1, x, 2, 0, x, 2) },
		func(f blas.Float32Level3) { f.Ssymm('x', blas.Lower, 2, 2, 1, x, 2, x, 2, 0, x, 2) },
		func(f blas.Float32Level3) { f.Strsm(blas.Left, blas.Lower, blas.Trans, 'x', 2, 2, 1, x, 2, x, 2) },
		func(f blas.Float32Level3) { f.Strmm(blas.Left, blas.Lower, blas.Trans, blas.Unit, 2, 2, 1, x, 1, x, 2) },
	} {
		got, want := message(call, ours), message(call, theirs)
		if got != want || got == nil {
			t.Errorf("call %d panics with %v, gonum with %v", i, got, want)
		}
	}
}

// TestUse holds that gonum's registries take an implementation.
func TestUse(t *testing.T) {
	e := gemm.New(1)
	defer e.Close()
	old32, old64 := blas32.Implementation(), blas64.Implementation()
	defer func() { blas32.Use(old32); blas64.Use(old64) }()
	i := New(e)
	blas32.Use(i)
	blas64.Use(i)
	a := blas32.General{Rows: 2, Cols: 2, Stride: 2, Data: []float32{1, 2, 3, 4}}
	c := blas32.General{Rows: 2, Cols: 2, Stride: 2, Data: make([]float32, 4)}
	blas32.Gemm(blas.NoTrans, blas.NoTrans, 1, a, a, 0, c)
	if c.Data[0] != 7 || c.Data[3] != 22 {
		t.Errorf("product is %v", c.Data)
	}
}
