package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/cpuid/v2"
)

// levels runs f under every instruction set that the machine has.
func levels(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	top := level()
	for l := portable; l <= top; l++ {
		t.Run(l.String(), func(t *testing.T) {
			force(t, l)
			f(t)
		})
	}
}

// force hides processor features so that level gives l until the test ends.
func force(t testing.TB, l isa) {
	var off []cpuid.FeatureID
	switch l {
	case portable:
		off = []cpuid.FeatureID{cpuid.AVX2, cpuid.ASIMD}
	case narrow:
		off = []cpuid.FeatureID{cpuid.AVX512F}
	}
	for _, id := range off {
		if cpuid.CPU.Has(id) {
			cpuid.CPU.Disable(id)
			t.Cleanup(func() { cpuid.CPU.Enable(id) })
		}
	}
	if level() != l {
		t.Fatalf("level is %v, want %v", level(), l)
	}
}

// kernel is one row of the comparison: run and spec work on the same number of
// slices; c are scalars. The results of reductions are compared as bits.
type kernelCase struct {
	name   string
	slices int
	run    func(s [][]float32, c []float32) float64
	spec   func(s [][]float32, c []float32) float64
}

func void(f func()) float64 { f(); return 0 }

func kernelCases() []kernelCase {
	type ss = [][]float32
	type fs = []float32
	return []kernelCase{
		{"fill", 1, func(s ss, c fs) float64 { return void(func() { Fill(s[0], c[0]) }) },
			func(s ss, c fs) float64 { return void(func() { fillRef(s[0], c[0]) }) }},
		{"add", 3, func(s ss, c fs) float64 { return void(func() { Add(s[0], s[1], s[2]) }) },
			func(s ss, c fs) float64 { return void(func() { addRef(s[0], s[1], s[2]) }) }},
		{"sub", 3, func(s ss, c fs) float64 { return void(func() { Sub(s[0], s[1], s[2]) }) },
			func(s ss, c fs) float64 { return void(func() { subRef(s[0], s[1], s[2]) }) }},
		{"mul", 3, func(s ss, c fs) float64 { return void(func() { Mul(s[0], s[1], s[2]) }) },
			func(s ss, c fs) float64 { return void(func() { mulRef(s[0], s[1], s[2]) }) }},
		{"div", 3, func(s ss, c fs) float64 { return void(func() { Div(s[0], s[1], s[2]) }) },
			func(s ss, c fs) float64 { return void(func() { divRef(s[0], s[1], s[2]) }) }},
		{"mulAdd", 3, func(s ss, c fs) float64 { return void(func() { MulAdd(s[0], s[1], s[2]) }) },
			func(s ss, c fs) float64 { return void(func() { mulAddRef(s[0], s[1], s[2]) }) }},
		{"axpy", 2, func(s ss, c fs) float64 { return void(func() { Axpy(c[0], s[1], s[0]) }) },
			func(s ss, c fs) float64 { return void(func() { axpyRef(s[0], s[1], c[0]) }) }},
		{"axpby", 2, func(s ss, c fs) float64 { return void(func() { Axpby(c[0], s[1], c[1], s[0]) }) },
			func(s ss, c fs) float64 { return void(func() { axpbyRef(s[0], s[1], c[0], c[1]) }) }},
		{"scaleTo", 2, func(s ss, c fs) float64 { return void(func() { ScaleTo(s[0], c[0], s[1]) }) },
			func(s ss, c fs) float64 { return void(func() { scaleToRef(s[0], s[1], c[0]) }) }},
		{"scale", 1, func(s ss, c fs) float64 { return void(func() { Scale(c[0], s[0]) }) },
			func(s ss, c fs) float64 { return void(func() { scaleToRef(s[0], s[0], c[0]) }) }},
		{"scaledMul", 3, func(s ss, c fs) float64 { return void(func() { ScaledMul(s[0], c[0], s[1], s[2]) }) },
			func(s ss, c fs) float64 { return void(func() { scaledMulRef(s[0], s[1], s[2], c[0]) }) }},
		{"scaledMulAdd", 4, func(s ss, c fs) float64 { return void(func() { ScaledMulAdd(s[0], s[1], c[0], s[2], s[3]) }) },
			func(s ss, c fs) float64 { return void(func() { scaledMulAddRef(s[0], s[1], s[2], s[3], c[0]) }) }},
		{"combine", 3, func(s ss, c fs) float64 { return void(func() { Combine(s[0], c[0], s[1], c[1], s[2], c[2]) }) },
			func(s ss, c fs) float64 { return void(func() { combineRef(s[0], s[1], s[2], c[0], c[1], c[2]) }) }},
		{"center", 2, func(s ss, c fs) float64 { return void(func() { Center(s[0], s[1], c[0], c[1]) }) },
			func(s ss, c fs) float64 { return void(func() { centerRef(s[0], s[1], c[0], c[1]) }) }},
		{"clamp", 2, func(s ss, c fs) float64 { return void(func() { Clamp(s[0], s[1], -0.5, 0.25) }) },
			func(s ss, c fs) float64 { return void(func() { clampRef(s[0], s[1], -0.5, 0.25) }) }},
		{"clampGrad", 3, func(s ss, c fs) float64 { return void(func() { ClampGrad(s[0], s[1], s[2], -0.5, 0.25) }) },
			func(s ss, c fs) float64 { return void(func() { clampGradRef(s[0], s[1], s[2], -0.5, 0.25) }) }},
		{"sqrt", 2, func(s ss, c fs) float64 { return void(func() { Sqrt(s[0], s[1]) }) },
			func(s ss, c fs) float64 { return void(func() { sqrtRef(s[0], s[1]) }) }},
		{"invSqrt", 2, func(s ss, c fs) float64 { return void(func() { InvSqrt(s[0], s[1]) }) },
			func(s ss, c fs) float64 { return void(func() { invSqrtRef(s[0], s[1]) }) }},
		{"lerp", 2, func(s ss, c fs) float64 { return void(func() { Lerp(s[0], s[1], c[0]) }) },
			func(s ss, c fs) float64 { return void(func() { lerpRef(s[0], s[1], c[0]) }) }},
		{"lerpMul", 3, func(s ss, c fs) float64 { return void(func() { LerpMul(s[0], s[1], s[2], c[0]) }) },
			func(s ss, c fs) float64 { return void(func() { lerpMulRef(s[0], s[1], s[2], 1-c[0], c[0]) }) }},
		{"lerpSquare", 2, func(s ss, c fs) float64 { return void(func() { LerpSquare(s[0], s[1], c[0]) }) },
			func(s ss, c fs) float64 { return void(func() { lerpMulRef(s[0], s[1], s[1], 1-c[0], c[0]) }) }},
		{"adamDirection", 3, func(s ss, c fs) float64 { return void(func() { AdamDirection(s[0], s[1], s[2], c[0], c[1], 1e-8) }) },
			func(s ss, c fs) float64 { return void(func() { adamDirectionRef(s[0], s[1], s[2], c[0], c[1], 1e-8) }) }},
		{"adamW", 4, func(s ss, c fs) float64 {
			return void(func() { AdamW(s[0], s[1], s[2], s[3], c[0], 0.9, 0.95, 0.999, c[1], c[2], 1e-8) })
		},
			func(s ss, c fs) float64 {
				return void(func() {
					b1, b2 := float32(0.9), float32(0.95)
					adamWRef(s[0], s[1], s[2], s[3], c[0], b1, 1-b1, b2, 1-b2, 0.999, c[1], c[2], 1e-8)
				})
			}},
		{"swiGLU", 3, func(s ss, c fs) float64 { return void(func() { SwiGLU(s[0], s[1], s[2]) }) },
			func(s ss, c fs) float64 { return void(func() { swiGLURef(s[0], s[1], s[2]) }) }},
		{"swiGLUGrad", 5, func(s ss, c fs) float64 { return void(func() { SwiGLUGrad(s[0], s[1], s[2], s[3], s[4]) }) },
			func(s ss, c fs) float64 { return void(func() { swiGLUGradRef(s[0], s[1], s[2], s[3], s[4]) }) }},
		{"rotate", 6, func(s ss, c fs) float64 { return void(func() { rotate32(s[0], s[1], s[2], s[3], s[4], s[5]) }) },
			func(s ss, c fs) float64 { return void(func() { rotateRef(s[0], s[1], s[2], s[3], s[4], s[5]) }) }},
		{"unrotate", 6, func(s ss, c fs) float64 { return void(func() { unrotate32(s[0], s[1], s[2], s[3], s[4], s[5]) }) },
			func(s ss, c fs) float64 { return void(func() { unrotateRef(s[0], s[1], s[2], s[3], s[4], s[5]) }) }},
		{"softmaxGrad", 3, func(s ss, c fs) float64 { return void(func() { SoftmaxGrad(s[0], s[1], s[2], c[0], c[1]) }) },
			func(s ss, c fs) float64 { return void(func() { softmaxGradRef(s[0], s[1], s[2], c[0], c[1]) }) }},
		{"rmsNormGrad", 5, func(s ss, c fs) float64 {
			return void(func() { rmsNormGrad32(s[0], s[1], s[2], s[3], s[4], c[0], c[1]) })
		},
			func(s ss, c fs) float64 {
				return void(func() { rmsNormGradRef(s[0], s[1], s[2], s[3], s[4], c[0], c[1]) })
			}},
		{"sum", 1, func(s ss, c fs) float64 { return float64(Sum(s[0])) }, func(s ss, c fs) float64 { return float64(sumRef(s[0])) }},
		{"dot", 2, func(s ss, c fs) float64 { return float64(Dot(s[0], s[1])) }, func(s ss, c fs) float64 { return float64(dotRef(s[0], s[1])) }},
		{"dot3", 3, func(s ss, c fs) float64 { return float64(Dot3(s[0], s[1], s[2])) },
			func(s ss, c fs) float64 { return float64(dot3Ref(s[0], s[1], s[2])) }},
		{"squaresAbout", 1, func(s ss, c fs) float64 { return float64(SquaresAbout(s[0], c[0])) },
			func(s ss, c fs) float64 { return float64(squaresAboutRef(s[0], c[0])) }},
		{"expSum", 2, func(s ss, c fs) float64 { return float64(ExpSum(s[0], s[1], c[0])) },
			func(s ss, c fs) float64 { return float64(expSumRef(s[0], s[1], c[0])) }},
		{"sumSquares", 1, func(s ss, c fs) float64 { return SumSquares(s[0]) }, func(s ss, c fs) float64 { return sumSquaresRef(s[0]) }},
		{"max", 1, func(s ss, c fs) float64 { return float64(Max(s[0])) }, func(s ss, c fs) float64 { return float64(mostRef(s[0])) }},
		{"absBits", 1, func(s ss, c fs) float64 { return float64(absBits32(s[0])) }, func(s ss, c fs) float64 { return float64(absBitsRef(s[0])) }},
	}
}

const guard = float32(12345.678)

// arena returns slices of n elements at the given odd offset with guard elements
// on both sides, and a check that the guards still stand.
func arena(r *rand.Rand, slices, n, offset int, special bool) (s [][]float32, guarded func() bool) {
	var whole [][]float32
	for i := range slices {
		w := make([]float32, n+64)
		for j := range w {
			w[j] = guard
		}
		o := 16 + (offset+5*i)%16
		x := w[o : o+n : o+n]
		for j := range x {
			x[j] = sample(r, special)
		}
		whole, s = append(whole, w), append(s, x)
	}
	return s, func() bool {
		for i, w := range whole {
			o := 16 + (offset+5*i)%16
			for j, v := range w {
				if (j < o || j >= o+n) && v != guard {
					return false
				}
			}
		}
		return true
	}
}

func sample(r *rand.Rand, special bool) float32 {
	if special && r.IntN(12) == 0 {
		v := []float32{0, float32(math.Copysign(0, -1)), float32(math.Inf(1)), float32(math.Inf(-1)),
			float32(math.NaN()), 1e-40, -1e-42, 3e38, -3e38, 88.9, -103.9, 104, -88, 1}
		return v[r.IntN(len(v))]
	}
	return float32(r.NormFloat64() * math.Exp2(float64(r.IntN(8)-4)))
}

func copies(s [][]float32) [][]float32 {
	var out [][]float32
	for _, x := range s {
		out = append(out, append([]float32(nil), x...))
	}
	return out
}

func sameBits(x, y float32) bool {
	return math.Float32bits(x) == math.Float32bits(y) || x != x && y != y
}

func compare(t *testing.T, k kernelCase, r *rand.Rand, n, offset int, special bool) {
	t.Helper()
	s, guarded := arena(r, k.slices, n, offset, special)
	c := []float32{float32(r.NormFloat64()), float32(r.Float64()), float32(r.NormFloat64())}
	want := copies(s)
	ws, gs := k.spec(want, c), k.run(s, c)
	where := fmt.Sprintf("%s n=%d offset=%d special=%v", k.name, n, offset, special)
	if math.Float64bits(gs) != math.Float64bits(ws) && !(gs != gs && ws != ws) {
		t.Fatalf("%s: result %v, specification %v", where, gs, ws)
	}
	for i := range s {
		for j := range s[i] {
			if !sameBits(s[i][j], want[i][j]) {
				t.Fatalf("%s: slice %d element %d is %v, specification %v", where, i, j, s[i][j], want[i][j])
			}
		}
	}
	if !guarded() {
		t.Fatalf("%s: wrote outside the slice", where)
	}
}

func TestKernelsEqualTheSpecification(t *testing.T) {
	levels(t, func(t *testing.T) {
		for _, k := range kernelCases() {
			t.Run(k.name, func(t *testing.T) {
				r := rand.New(rand.NewPCG(1, uint64(len(k.name))))
				stride := 1
				if testing.Short() {
					stride = 5
				}
				for n := 0; n < 2*lanes+3; n += stride {
					for _, special := range []bool{false, true} {
						compare(t, k, r, n, n%16, special)
						compare(t, k, r, n, (7*n+3)%16, special)
					}
				}
				long := []int{1000, chunk - 1, chunk, chunk + 1, 2*chunk + 77}
				if testing.Short() {
					long = []int{1000, chunk + 1}
				}
				for _, n := range long {
					compare(t, k, r, n, 3, false)
				}
			})
		}
	})
}

func TestKernelsMayWorkInPlace(t *testing.T) {
	levels(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(2, 2))
		for _, n := range []int{1, 15, 16, 17, 100} {
			s, _ := arena(r, 3, n, 1, false)
			want := copies(s)
			swiGLUGradRef(want[0], want[1], copies(s)[0], copies(s)[1], want[2])
			SwiGLUGrad(s[0], s[1], s[0], s[1], s[2])
			wantExp := append([]float32(nil), s[2]...)
			expSumRef(wantExp, s[2], 0.5)
			ExpSum(s[2], s[2], 0.5)
			for i := range n {
				if !sameBits(s[0][i], want[0][i]) || !sameBits(s[1][i], want[1][i]) || !sameBits(s[2][i], wantExp[i]) {
					t.Fatalf("n=%d element %d differs when the result overwrites the source", n, i)
				}
			}
		}
	})
}

// An element-wise result must not depend on where a caller cuts the slice.
func TestSplittingAnElementwiseCallKeepsTheBits(t *testing.T) {
	levels(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(3, 3))
		const n = 333
		s, _ := arena(r, 3, n, 0, true)
		want := make([]float32, n)
		SwiGLU(want, s[1], s[2])
		for range 50 {
			cut := r.IntN(n)
			SwiGLU(s[0][:cut], s[1][:cut], s[2][:cut])
			SwiGLU(s[0][cut:], s[1][cut:], s[2][cut:])
			for i := range want {
				if !sameBits(s[0][i], want[i]) {
					t.Fatalf("cut at %d: element %d is %v, whole %v", cut, i, s[0][i], want[i])
				}
			}
		}
	})
}

func TestReductionsDoNotDependOnTheAddress(t *testing.T) {
	levels(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(4, 4))
		base := make([]float32, 1000)
		for i := range base {
			base[i] = sample(r, false)
		}
		want := [2]float64{float64(Dot(base, base)), SumSquares(base)}
		for o := range 33 {
			moved := append(make([]float32, o), base...)[o:]
			if got := [2]float64{float64(Dot(moved, moved)), SumSquares(moved)}; got != want {
				t.Fatalf("offset %d: %v, want %v", o, got, want)
			}
		}
	})
}

func TestMaxAndFiniteSeeEveryPosition(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	levels(t, func(t *testing.T) {
		for _, n := range []int{1, 7, 16, 63, 64, 65, 130, chunk + 5} {
			x := make([]float32, n)
			for _, i := range []int{0, n / 2, n - 1} {
				for _, v := range []float32{nan, inf, -inf} {
					x[i] = v
					if Finite(x) {
						t.Fatalf("n=%d: %v at %d not seen", n, v, i)
					}
					if got := Max(x); v != v && got == got || v == inf && got != inf {
						t.Fatalf("n=%d: Max is %v with %v at %d", n, got, v, i)
					}
					x[i] = 0
				}
			}
			if !Finite(x) || Max(x) != 0 || MaxAbs(x) != 0 {
				t.Fatalf("n=%d: zeros are not finite", n)
			}
		}
	})
}

func TestShortSlicesPanic(t *testing.T) {
	for name, f := range map[string]func(){
		"add":      func() { Add(make([]float32, 3), make([]float32, 3), make([]float32, 2)) },
		"dot":      func() { Dot(make([]float64, 3), make([]float64, 2)) },
		"rotate":   func() { Rotate(make([]float32, 6), make([]float32, 6), make([]float32, 2), make([]float32, 2)) },
		"bfloat16": func() { FromBF16(make([]float32, 2), make([]uint16, 1)) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Fatal("no panic")
				}
			}()
			f()
		})
	}
}

func TestNothingAllocates(t *testing.T) {
	x, y, z, m := make([]float32, 100), make([]float32, 100), make([]float32, 100), make([]float32, 100)
	a := testing.AllocsPerRun(50, func() {
		Add(x, y, z)
		AdamW(x, y, z, m, 1, 0.9, 0.95, 1, 0.1, 1, 1e-8)
		SwiGLU(x, y, z)
		Softmax(x, y)
		RMSNormGrad(x, y, z, x, y, 1)
		CrossEntropy(x, x, 3, 1, 1e-4)
	})
	if a != 0 {
		t.Fatalf("%v allocations", a)
	}
}
