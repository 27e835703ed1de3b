package vec

import (
	"math"
	"math/rand/v2"
	"testing"
)

// normal returns n standard normal numbers.
func normal(r *rand.Rand, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = r.NormFloat64()
	}
	return x
}

func narrowed(x []float64) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = float32(v)
	}
	return y
}

// slope checks one component of a gradient by a central difference. Its error is
// about h²·|f”'|/6 + eps·|f|/h, below 1e-7 for h = 1e-4 and values near 1.
func slope(t *testing.T, what string, x []float64, i int, got float64, f func() float64) {
	t.Helper()
	const h = 1e-4
	keep := x[i]
	x[i] = keep + h
	up := f()
	x[i] = keep - h
	down := f()
	x[i] = keep
	if want := (up - down) / (2 * h); math.Abs(want-got) > 1e-6*max(1, math.Abs(want)) {
		t.Fatalf("%s: gradient %d is %v, difference quotient %v", what, i, got, want)
	}
}

func TestSwiGLUGradIsTheDerivative(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	const n = 37
	gate, up, dout, out := normal(r, n), normal(r, n), normal(r, n), make([]float64, n)
	dgate, dup := make([]float64, n), make([]float64, n)
	SwiGLUGrad(dgate, dup, gate, up, dout)
	loss := func() float64 { SwiGLU(out, gate, up); return Dot(out, dout) }
	for i := range n {
		slope(t, "gate", gate, i, dgate[i], loss)
		slope(t, "up", up, i, dup[i], loss)
	}
}

func TestNormGradsAreTheDerivatives(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	const n, eps = 41, 1e-6
	x, w, dy, y, res := normal(r, n), normal(r, n), normal(r, n), make([]float64, n), normal(r, n)
	dx, dw := make([]float64, n), make([]float64, n)
	inv := RMSNorm(y, x, w, eps)
	RMSNormGrad(dx, dw, dy, x, w, inv)
	rms := func() float64 { RMSNorm(y, x, w, eps); return Dot(y, dy) }
	add := func() float64 { RMSNormAdd(y, res, x, w, eps); return Dot(y, dy) }
	for i := range n {
		slope(t, "rms x", x, i, dx[i], rms)
		slope(t, "rms w", w, i, dw[i], rms)
		slope(t, "rms+residual x", x, i, dx[i], add)
		slope(t, "residual", res, i, dy[i], add)
	}
	inv = LayerNorm(y, x, eps)
	LayerNormGrad(dx, dy, y, inv)
	for i := range n {
		slope(t, "layer norm x", x, i, dx[i], func() float64 { LayerNorm(y, x, eps); return Dot(y, dy) })
	}
}

func TestSoftmaxAndCrossEntropy(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	const n, target, scale, z = 45, 11, 0.25, 1e-2
	x, p, dp, dx := normal(r, n), make([]float64, n), normal(r, n), make([]float64, n)
	lse := Softmax(p, x)
	if s := Sum(p); math.Abs(s-1) > 1e-14 {
		t.Fatalf("softmax sums to %v", s)
	}
	SoftmaxGrad(dx, p, dp, Dot(p, dp), 1)
	for i := range n {
		slope(t, "softmax", x, i, dx[i], func() float64 { Softmax(p, x); return Dot(p, dp) })
	}
	scratch := make([]float64, n)
	ce, lse2 := CrossEntropy(dx, x, target, scale, z)
	if math.Abs(lse2-lse) > 1e-14*math.Abs(lse)*10 || math.Abs(ce-(lse-x[target])) > 1e-13 {
		t.Fatalf("ce %v lse %v, softmax gave lse %v", ce, lse2, lse)
	}
	for i := range n {
		slope(t, "cross-entropy", x, i, dx[i], func() float64 {
			ce, lse := CrossEntropy(scratch, x, target, scale, z)
			return scale * (ce + z*lse*lse)
		})
	}
}

func TestRotateIsAnIsometryWithInverse(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for _, half := range []int{1, 4, 16, 20, 64} {
		x := narrowed(normal(r, 3*2*half))
		cos, sin := make([]float32, half), make([]float32, half)
		for j := range half {
			s, c := math.Sincos(float64(j) * 0.3)
			cos[j], sin[j] = float32(c), float32(s)
		}
		y := append([]float32(nil), x...)
		Rotate(y, y, cos, sin)
		// Head 1 starts after 2*half elements and turns like head 0.
		a, b := float64(x[2*half]), float64(x[3*half])
		if want := a*float64(cos[0]) - b*float64(sin[0]); math.Abs(want-float64(y[2*half])) > 1e-6 {
			t.Fatalf("half=%d: head 1 is %v, want %v", half, y[2*half], want)
		}
		Unrotate(y, y, cos, sin)
		for i := range x {
			// cos²+sin² is 1 within 2 eps; four roundings more.
			if math.Abs(float64(x[i]-y[i])) > 8*0x1p-24*(math.Abs(float64(x[i]))+4) {
				t.Fatalf("half=%d: element %d returns as %v, was %v", half, i, y[i], x[i])
			}
		}
	}
}

// float32 results against float64 ones on the same input. The bounds count
// roundings: a sum of n positive terms over 64 lanes has about n/64+6 of them.
func TestFloat32IsCloseToFloat64(t *testing.T) {
	levels(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(10, 10))
		const n, eps = 1000, 0x1p-24
		x64 := normal(r, n)
		x := narrowed(x64)
		for i := range x64 {
			x64[i] = float64(x[i])
		}
		if got, want := float64(Dot(x, x)), Dot(x64, x64); math.Abs(got-want) > (n/64+8)*eps*want {
			t.Errorf("dot %v, want %v", got, want)
		}
		if got, want := SumSquares(x), Dot(x64, x64); math.Abs(got-want) > n*0x1p-53*want {
			t.Errorf("sum of squares %v, want %v", got, want)
		}
		p, p64 := make([]float32, n), make([]float64, n)
		lse, lse64 := Softmax(p, x), Softmax(p64, x64)
		if math.Abs(lse-lse64) > (n/64+12)*eps {
			t.Errorf("log-sum-exp %v, want %v", lse, lse64)
		}
		SwiGLU(p, x, x)
		SwiGLU(p64, x64, x64)
		for i := range p {
			if math.Abs(float64(p[i])-p64[i]) > 6*eps*math.Abs(p64[i]) {
				t.Errorf("swiglu(%v) = %v, want %v", x[i], p[i], p64[i])
			}
		}
	})
}

func TestSwiGLUAtTheEnds(t *testing.T) {
	levels(t, func(t *testing.T) {
		gate := []float32{-1e4, -100, -88.5, 100, 1e4}
		up := []float32{1, 1, 1, 1, 1}
		got := make([]float32, 5)
		SwiGLU(got, gate, up)
		for i, want := range []float64{0, 0, -88.5 * math.Exp(-88.5), 100, 1e4} {
			// Below -88.7 exp overflows and silu is 0 within 4e-37.
			if math.Abs(float64(got[i])-want) > 4e-37+1e-6*math.Abs(want) {
				t.Errorf("silu(%v) = %v, want %v", gate[i], got[i], want)
			}
		}
	})
}

func TestFromBF16IsExact(t *testing.T) {
	for b := range 1 << 16 {
		var got [1]float32
		FromBF16(got[:], []uint16{uint16(b)})
		if math.Float32bits(got[0]) != uint32(b)<<16 {
			t.Fatalf("pattern %#x became %v", b, got[0])
		}
	}
}

// The portable code serves float64 too; the same table of formulas, in float64,
// by an independent route.
func TestAdamWInFloat64(t *testing.T) {
	p, g, m, v := []float64{1}, []float64{0.5}, []float64{0.1}, []float64{0.04}
	AdamW(p, g, m, v, 0.5, 0.9, 0.95, 0.99, 0.01, 1.5, 1e-8)
	wantM, wantV := 0.9*0.1+0.1*0.25, 0.95*0.04+0.05*0.0625
	want := 0.99 - 0.01*wantM/(math.Sqrt(wantV)*1.5+1e-8)
	if math.Abs(p[0]-want) > 1e-15 || math.Abs(m[0]-wantM) > 1e-16 || math.Abs(v[0]-wantV) > 1e-16 {
		t.Fatalf("p %v m %v v %v, want %v %v %v", p[0], m[0], v[0], want, wantM, wantV)
	}
}
