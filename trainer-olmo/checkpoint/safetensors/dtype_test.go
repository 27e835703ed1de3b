package safetensors

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

func TestHalfPrecision(t *testing.T) {
	for bits, want := range map[uint16]float64{
		0x0000: 0, 0x3c00: 1, 0xc000: -2, 0x7bff: 65504, 0x0400: 0x1p-14, 0x0001: 0x1p-24, 0x03ff: 1023 * 0x1p-24,
		0x7c00: math.Inf(1), 0xfc00: math.Inf(-1), 0x3555: 0.333251953125, 0x8001: -0x1p-24,
	} {
		if got := fromHalf(bits); float64(got) != want {
			t.Errorf("%#04x is %g, want %g", bits, got, want)
		}
	}
	if v := fromHalf(0x7e00); v == v {
		t.Errorf("NaN became %g", v)
	}
	if v := fromHalf(0x8000); v != 0 || !math.Signbit(float64(v)) {
		t.Errorf("-0 became %g", v)
	}
}

// Every half is the value of its fields.
func TestHalfAgainstDefinition(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		exp, frac := int(h>>10)&31, float64(h&1023)
		if exp == 31 {
			continue
		}
		want := math.Ldexp(1+frac/1024, exp-15)
		if exp == 0 {
			want = math.Ldexp(frac/1024, -14)
		}
		if h>>15 == 1 {
			want = -want
		}
		if got := float64(fromHalf(h)); got != want {
			t.Fatalf("%#04x is %g, want %g", h, got, want)
		}
	}
}

// toBF16 picks the nearest of the two neighbours, the even one on a tie.
func TestBF16RoundsToNearestEven(t *testing.T) {
	const seed = 7
	rng := rand.New(rand.NewPCG(seed, 0))
	widen := func(b uint16) float64 { return float64(math.Float32frombits(uint32(b) << 16)) }
	for i := range 20000 {
		v := math.Float32frombits(rng.Uint32())
		if v != v || math.Abs(float64(v)) > 0x1p126 {
			continue
		}
		if i%4 == 0 { // exact ties
			v = math.Float32frombits(math.Float32bits(v)&^0xffff | 0x8000)
		}
		got := toBF16(v)
		d := math.Abs(widen(got) - float64(v))
		for _, other := range []uint16{got - 1, got + 1} {
			o := math.Abs(widen(other) - float64(v))
			if o < d || (o == d && got&1 == 1) {
				t.Fatalf("seed %d: %g became %g, %g is nearer", seed, v, widen(got), widen(other))
			}
		}
	}
	if nan := toBF16(math.Float32frombits(0x7f800001)); widen(nan) == widen(nan) {
		t.Error("NaN became a number")
	}
}

func TestEncodeDecode(t *testing.T) {
	src := []float64{0, 1, -2.5, 0x1p-126, 3e38, math.Inf(1), math.Copysign(0, -1)}
	for _, d := range []DType{F64, F32, BF16} {
		b, back := make([]byte, len(src)*int(d.Size())), make([]float64, len(src))
		encode(d, b, src)
		decode(d, back, b)
		for i, v := range src {
			want := v
			switch d {
			case F32:
				want = float64(float32(v))
			case BF16:
				want = float64(math.Float32frombits(uint32(toBF16(float32(v))) << 16))
			}
			if math.Float64bits(back[i]) != math.Float64bits(want) {
				t.Errorf("%s: %g became %g", d, v, back[i])
			}
		}
	}
	half := binary.LittleEndian.AppendUint16(nil, 0x3c00)
	var one [1]float32
	if decode(F16, one[:], half); one[0] != 1 {
		t.Errorf("F16 one is %g", one[0])
	}
}
