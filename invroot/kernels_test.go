package invroot

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
)

// eachKernelSet runs f with an engine of every kernel set that this machine has.
func eachKernelSet(t *testing.T, f func(t *testing.T, eng *gemm.Engine)) {
	for _, k := range []gemm.Kernel{gemm.Generic, gemm.AVX2, gemm.AVX512} {
		t.Run(k.String(), func(t *testing.T) {
			eng, err := gemm.NewWith(gemm.Options{Threads: 1, Kernel: k})
			if errors.Is(err, errors.ErrUnsupported) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer eng.Close()
			f(t, eng)
		})
	}
}

// guarded returns a slice of n random values inside a larger array of sentinels,
// at an odd offset, and a check that the sentinels still stand.
func guarded[T gemm.Float](rng *rand.Rand, n int) (x []T, check func() error) {
	const pad = 19
	all := make([]T, n+2*pad)
	for i := range all {
		all[i] = T(1e30)
	}
	x = all[pad : pad+n : pad+n]
	for i := range x {
		x[i] = T(rng.NormFloat64())
	}
	return x, func() error {
		for i, v := range all {
			if (i < pad || i >= pad+n) && v != T(1e30) {
				return fmt.Errorf("element %d of the guard is %v", i-pad, v)
			}
		}
		return nil
	}
}

func closeTo[T gemm.Float](got, want []T, tol float64) error {
	for i := range want {
		if d := math.Abs(float64(got[i]) - float64(want[i])); !(d <= tol*(1+math.Abs(float64(want[i])))) {
			return fmt.Errorf("element %d: %v, want %v", i, got[i], want[i])
		}
	}
	return nil
}

func TestKernelsAgreeWithThePortableOnes(t *testing.T) {
	eachKernelSet(t, func(t *testing.T, eng *gemm.Engine) {
		t.Run("float32", func(t *testing.T) { kernelsAgree[float32](t, eng) })
		t.Run("float64", func(t *testing.T) { kernelsAgree[float64](t, eng) })
	})
}

func kernelsAgree[T gemm.Float](t *testing.T, eng *gemm.Engine) {
	rng := rand.New(rand.NewPCG(7, 7))
	k := newKernels[T](eng)
	for n := 0; n <= 70; n++ {
		tol := 4 * float64(n+1) * unit[T]()
		for count := range 7 {
			const extra = 3
			flat, check := guarded[T](rng, count*(n+extra))
			rows := gemm.Matrix[T]{Rows: count, Cols: n, Stride: n + extra, Data: flat}
			x, checkX := guarded[T](rng, n)
			got, want := make([]T, count), make([]T, count)
			k.dots(got, rows, x)
			dotsGeneric(want, rows, x)
			if err := closeTo(got, want, tol); err != nil {
				t.Fatalf("dots n=%d rows=%d: %v", n, count, err)
			}
			y := append([]T(nil), x...)
			k.axpys(x, got, rows)
			axpysGeneric(y, got, rows)
			if err := errors.Join(closeTo(x, y, tol*8), check(), checkX()); err != nil {
				t.Fatalf("axpys n=%d rows=%d: %v", n, count, err)
			}
		}
		x, checkX := guarded[T](rng, n)
		y, checkY := guarded[T](rng, n)
		gx, gy := append([]T(nil), x...), append([]T(nil), y...)
		k.rotate(x, y, 0.6, 0.8)
		rotateGeneric(gx, gy, 0.6, 0.8)
		if err := errors.Join(closeTo(x, gx, tol), closeTo(y, gy, tol), checkX(), checkY()); err != nil {
			t.Fatalf("rotate n=%d: %v", n, err)
		}
	}
}

func TestSymmetricProductReadsEachTriangleOnce(t *testing.T) {
	eachKernelSet(t, func(t *testing.T, eng *gemm.Engine) {
		t.Run("float32", func(t *testing.T) { symvAgrees[float32](t, eng) })
		t.Run("float64", func(t *testing.T) { symvAgrees[float64](t, eng) })
	})
}

func symvAgrees[T gemm.Float](t *testing.T, eng *gemm.Engine) {
	rng := rand.New(rand.NewPCG(8, 8))
	w := lanes[T]()
	for _, n := range []int{1, 2, 5, 15, 16, 17, 31, 33, 50, 64, 100, 161, 333, 700} {
		full, a := gemm.NewMatrix[T](n, n), scratch[T](n, n)
		for i := range n {
			for j := range i + 1 {
				v := T(rng.NormFloat64())
				full.Set(i, j, v)
				full.Set(j, i, v)
			}
		}
		for i := range n { // beyond its diagonal block a row holds what must not be read
			for j := range n {
				a.Set(i, j, full.At(i, j))
				if j >= i-i%w+w {
					a.Set(i, j, T(math.NaN()))
				}
			}
		}
		x := make([]T, n)
		for i := range x {
			x[i] = T(rng.NormFloat64())
		}
		want, got := make([]T, n), make([]T, n)
		dotsGeneric(want, full, x)
		task := symvTask[T]{k: newKernels[T](eng), part: scratch[T](symvChunks, n)}
		task.run(eng, a, x, got)
		if err := closeTo(got, want, 16*math.Sqrt(float64(n))*unit[T]()); err != nil {
			t.Errorf("n=%d: %v", n, err)
		}
	}
}

func TestSecularKernelsAgreeWithThePortableOnes(t *testing.T) {
	eachKernelSet(t, func(t *testing.T, eng *gemm.Engine) {
		rng := rand.New(rand.NewPCG(9, 9))
		set := newKernels[float64](eng).set
		for n := 0; n <= 41; n++ {
			d, checkD := guarded[float64](rng, n)
			z, checkZ := guarded[float64](rng, n)
			for i := range d {
				d[i], z[i] = float64(i), z[i]*z[i]
			}
			const origin, offset, pole = 3, 0.25, 3.0625
			s, p := set.secular(d, z, origin, offset)
			ws, wp := secularGeneric(d, z, origin, offset)
			if err := closeTo([]float64{s, p}, []float64{ws, wp}, 1e-13); err != nil {
				t.Fatalf("secular n=%d: %v", n, err)
			}
			want, want32 := make([]float64, n), make([]float32, n)
			out, checkOut := guarded[float64](rng, n)
			out32, check32 := guarded[float32](rng, n)
			a, b := vector(set, out, d, z, origin, offset), vector(set, out32, d, z, origin, offset)
			w := vectorGeneric(want, d, z, origin, offset)
			vectorGeneric(want32, d, z, origin, offset)
			err := errors.Join(closeTo(out, want, 1e-14), closeTo(out32, want32, 1e-7), closeTo([]float64{a, b}, []float64{w, w}, 1e-13))
			set.loewner(out, d, origin, offset, pole)
			loewnerGeneric(want, d, origin, offset, pole)
			err = errors.Join(err, closeTo(out, want, 1e-14), checkD(), checkZ(), checkOut(), check32())
			if err != nil {
				t.Fatalf("n=%d: %v", n, err)
			}
		}
	})
}

func TestEveryKernelSetDecomposes(t *testing.T) {
	eachKernelSet(t, func(t *testing.T, eng *gemm.Engine) {
		for _, n := range []int{35, 130, 259} {
			a := spectra[1].matrix(n, 61)
			t.Run(fmt.Sprintf("n=%d/float32", n), func(t *testing.T) { setDecomposes(t, eng, cast[float32](a, 1)) })
			t.Run(fmt.Sprintf("n=%d/float64", n), func(t *testing.T) { setDecomposes(t, eng, a) })
		}
	})
}

func setDecomposes[T gemm.Float](t *testing.T, eng *gemm.Engine, a gemm.Matrix[T]) {
	n := a.Rows
	s, err := NewSolver[T](eng, n, Options{Precision: Single})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	q, w := gemm.NewMatrix[T](n, n), make([]T, n)
	if _, err := s.EigenSym(context.Background(), q, w, a, true); err != nil {
		t.Fatal(err)
	}
	tol := 20 * math.Sqrt(float64(n)+8) * unit[T]()
	if e := orthogonality(q); !(e <= tol) {
		t.Errorf("|QᵀQ-I| = %.1e exceeds %.1e", e, tol)
	}
	if e := decompositionError(a, q, w); !(e <= tol) {
		t.Errorf("|AQ-QΛ|/|A| = %.1e exceeds %.1e", e, tol)
	}
	if _, err := s.Iterate(context.Background(), q, a, nil); err != nil {
		t.Fatal(err)
	}
	if e := orthogonality(q); !(e <= tol) {
		t.Errorf("after a refresh |QᵀQ-I| = %.1e exceeds %.1e", e, tol)
	}
}
