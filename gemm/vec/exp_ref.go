package vec

import (
	"math"

	"github.com/asteria-runtime/asteria/gemm"
)

// Constants of exp32. expMin and expMax lie beyond the arguments whose result
// rounds to 0 (-103.97) and to +Inf (88.72). The polynomial interpolates
// (exp(r)-1-r)/r² at the five Chebyshev nodes of |r| <= ln(2)/2; its error
// relative to exp(r) is 1.1e-8.
const (
	expMin = -104
	expMax = 89
	log2e  = 0x1.715476p+0
	magic  = 0x1.8p+23      // adding it rounds to an integer
	ln2hi  = 0x1.63p-1      // 355/512: times an 8-bit integer it is exact
	ln2lo  = -2.12194440e-4 // ln(2) - ln2hi
	exp0   = 0x1p-1         // 0x3f000000
	exp1   = 0x1.5554dcp-3  // 0x3e2aaa6e
	exp2   = 0x1.55551ap-5  // 0x3d2aaa8d
	exp3   = 0x1.120b6ep-7  // 0x3c0905b7
	exp4   = 0x1.6d110ap-10 // 0x3ab68885
)

// exp32 is exp(x) within 2 ulp, subnormal results included; the largest error seen
// over the whole range is 0.98 ulp. exp(-Inf) = 0, exp(+Inf) = +Inf, NaN stays NaN.
func exp32(x float32) float32 {
	if x < expMin {
		return 0
	}
	if x > expMax {
		x = expMax
	}
	t := float32(x*log2e) + magic
	n := t - magic
	r := x - float32(n*ln2hi)
	r -= float32(n * ln2lo)
	p := float32(r*exp4) + exp3
	p = float32(p*r) + exp2
	p = float32(p*r) + exp1
	p = float32(p*r) + exp0
	p = float32(float32(r*r) * p)
	p = float32(p+r) + 1
	// Two steps, because 2^n alone may overflow or underflow where exp(x) does
	// not; the first product is exact.
	k := int32(math.Float32bits(t) - math.Float32bits(magic))
	h := k >> 1
	return float32(p*power2(h)) * power2(k-h)
}

// power2 returns 2^k for k in [-126, 127].
func power2(k int32) float32 { return math.Float32frombits(uint32(k+127) << 23) }

// exp is exp32 or math.Exp.
func exp[T gemm.Float](x T) T {
	if single[T]() {
		return T(exp32(float32(x)))
	}
	return T(math.Exp(float64(x)))
}
