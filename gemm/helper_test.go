package gemm

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

// guard is the bit pattern around and between the rows of test matrices: it must
// survive, and as NaN it shows up in results that read it.
var guard = math.NaN()

const guardLen = 67

// matrix is a rows×cols matrix inside a larger slice of guards.
type matrix[T Float] struct {
	all, x         []T
	rows, cols, ld int
}

// guarded returns a random matrix, with guards before, after and between rows.
func guarded[T Float](r *rand.Rand, rows, cols, ld int) *matrix[T] {
	n := 0
	if rows > 0 && cols > 0 {
		n = (rows-1)*ld + cols
	}
	all := make([]T, n+2*guardLen)
	for i := range all {
		all[i] = T(guard)
	}
	m := &matrix[T]{all: all, x: all[guardLen : guardLen+n : guardLen+n], rows: rows, cols: cols, ld: ld}
	for i := range rows {
		for j := range cols {
			m.x[i*ld+j] = T(2*r.Float64() - 1)
		}
	}
	return m
}

// clone copies the matrix with its guards.
func (m *matrix[T]) clone() *matrix[T] {
	c := *m
	c.all = append([]T(nil), m.all...)
	n := len(m.x)
	c.x = c.all[guardLen : guardLen+n : guardLen+n]
	return &c
}

// check fails when a guard was overwritten.
func (m *matrix[T]) check(t *testing.T, name string) {
	t.Helper()
	for i, v := range m.all {
		at := i - guardLen
		inside := at >= 0 && at < len(m.x) && at%m.ld < m.cols
		if !inside && !math.IsNaN(float64(v)) {
			t.Fatalf("%s: guard at %d of %dx%d (ld %d) overwritten with %g", name, at, m.rows, m.cols, m.ld, v)
		}
	}
}

// epsilon is the unit roundoff of T.
func epsilon[T Float]() float64 {
	var v T
	if _, ok := any(v).(float32); ok {
		return 0x1p-24
	}
	return 0x1p-53
}

// sameBits reports whether two slices are equal bit for bit, NaN included.
func sameBits[T Float](a, b []T) bool {
	for i := range a {
		if a[i] != b[i] && !(a[i] != a[i] && b[i] != b[i]) {
			return false
		}
	}
	return len(a) == len(b)
}

// kernelSets lists the sets that can run here.
func kernelSets() (sets []Kernel) {
	for _, k := range []Kernel{Generic, AVX2, AVX512, NEON} {
		if !errors.Is(k.check(), errors.ErrUnsupported) {
			sets = append(sets, k)
		}
	}
	return sets
}

// engine returns an engine that the test closes.
func engine(t testing.TB, threads int, k Kernel) *Engine {
	t.Helper()
	e, err := NewWith(Options{Threads: threads, Kernel: k})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// eachEngine runs f for every kernel set with one and three threads.
func eachEngine(t *testing.T, f func(t *testing.T, e *Engine)) {
	for _, k := range kernelSets() {
		for _, threads := range []int{1, 3} {
			if testing.Short() && k == Generic && threads == 1 {
				continue // the portable kernels are slow under the race detector
			}
			t.Run(k.String()+"/threads="+string(rune('0'+threads)), func(t *testing.T) {
				f(t, engine(t, threads, k))
			})
		}
	}
}
