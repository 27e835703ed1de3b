package gemm

import (
	"math/rand/v2"
	"testing"
)

func TestMovesKeepEveryElement(t *testing.T) {
	for _, k := range kernelSets() {
		t.Run(k.String(), func(t *testing.T) {
			e := engine(t, 1, k)
			movesMatch[float32](t, e)
			movesMatch[float64](t, e)
		})
	}
}

func movesMatch[T Float](t *testing.T, e *Engine) {
	t.Helper()
	const seed = 7
	r := rand.New(rand.NewPCG(seed, 0))
	view := func(m *matrix[T]) Matrix[T] { return Matrix[T]{m.rows, m.cols, m.ld, m.x} }
	for trial := range 200 {
		rows, cols := r.IntN(70), r.IntN(130)
		src := guarded[T](r, rows, cols, cols+r.IntN(3))
		same, turned := guarded[T](r, rows, cols, cols+r.IntN(3)), guarded[T](r, cols, rows, rows+r.IntN(20))
		wantSame, wantTurned := same.clone(), turned.clone()
		for i := range rows {
			for j := range cols {
				v := src.x[i*src.ld+j]
				wantSame.x[i*same.ld+j], wantTurned.x[j*turned.ld+i] = v, v
			}
		}
		Copy(e, view(same), view(src))
		Transpose(e, view(turned), view(src))
		if !sameBits(same.all, wantSame.all) {
			t.Fatalf("seed %d trial %d: copy of %d×%d differs", seed, trial, rows, cols)
		}
		if !sameBits(turned.all, wantTurned.all) {
			t.Fatalf("seed %d trial %d: transpose of %d×%d differs", seed, trial, rows, cols)
		}
	}
}

func TestMovesToAnotherShapePanic(t *testing.T) {
	e := engine(t, 1, Auto)
	a, b := NewMatrix[float32](2, 3), NewMatrix[float32](4, 3)
	for name, f := range map[string]func(){"copy": func() { Copy(e, b, a) }, "transpose": func() { Transpose(e, b, a) }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s did not panic", name)
				}
			}()
			f()
		}()
	}
}
