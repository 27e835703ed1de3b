package vec

import (
	"math"
	"math/rand/v2"
	"os"
	"testing"
)

// ulp32 is the spacing of float32 at the exact value y: 2^-149 among subnormals.
func ulp32(y float64) float64 {
	_, e := math.Frexp(y)
	return math.Ldexp(1, max(e-24, -149))
}

// expError returns the error of got as exp(x) in ulps of the exact result.
func expError(x, got float32) float64 {
	want := math.Exp(float64(x))
	if want > math.MaxFloat32+ulp32(math.MaxFloat32)/2 {
		if math.IsInf(float64(got), 1) {
			return 0
		}
		return math.Inf(1)
	}
	return math.Abs(float64(got)-want) / ulp32(want)
}

// The bound of 2 ulp, over the whole range: every 997th float32 (every one with
// ASTERIA_LONG=1) whose exponential is neither 0 nor infinite.
func TestExpErrorIsBelowTwoUlp(t *testing.T) {
	stride := uint32(997)
	if os.Getenv("ASTERIA_LONG") != "" {
		stride = 1
	}
	worst, at := 0.0, float32(0)
	for _, sign := range []uint32{0, 1 << 31} {
		for b := uint32(0); b <= math.Float32bits(105); b += stride {
			x := math.Float32frombits(b | sign)
			if e := expError(x, exp32(x)); e > worst {
				worst, at = e, x
			}
		}
	}
	t.Logf("largest error %.3f ulp at %v", worst, at)
	if worst > 2 {
		t.Fatalf("exp32(%v) = %v, off by %.2f ulp", at, exp32(at), worst)
	}
}

func TestExpAtTheEnds(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, c := range []struct{ x, want float32 }{
		{inf, inf}, {-inf, 0}, {0, 1}, {float32(math.Copysign(0, -1)), 1},
		{88.72284, inf}, {88.72283, float32(math.Exp(float64(float32(88.72283))))},
		{1e30, inf}, {-1e30, 0}, {-104, 0}, {-103.98, 0},
		{-103.9, math.SmallestNonzeroFloat32}, {-87.4, float32(math.Exp(float64(float32(-87.4))))},
	} {
		levels(t, func(t *testing.T) {
			dst := make([]float32, 1)
			sum := ExpSum(dst, []float32{c.x}, 0)
			if math.Abs(float64(dst[0])-float64(c.want)) > 2*ulp32(float64(c.want)) || sum != dst[0] {
				t.Fatalf("exp(%v) = %v (sum %v), want %v", c.x, dst[0], sum, c.want)
			}
		})
	}
	if v := exp32(float32(math.NaN())); v == v {
		t.Fatalf("exp(NaN) = %v", v)
	}
}

// One NaN must not spread to its neighbours, nor be lost in the sum.
func TestExpSumKeepsNaNInItsPlace(t *testing.T) {
	levels(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(5, 5))
		for n := 1; n < 70; n++ {
			x := make([]float32, n)
			i := r.IntN(n)
			x[i] = float32(math.NaN())
			sum := ExpSum(x, x, 0)
			if sum == sum {
				t.Fatalf("n=%d: sum %v hides the NaN at %d", n, sum, i)
			}
			for j, v := range x {
				if (v != v) != (j == i) {
					t.Fatalf("n=%d: NaN at %d, element %d is %v", n, i, j, v)
				}
			}
		}
	})
}
