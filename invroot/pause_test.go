package invroot

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/asteria-runtime/asteria/gemm"
)

// calls are the kinds of refreshes, for one solver and one matrix.
func calls[T gemm.Float](s *Solver[T], x, a gemm.Matrix[T], w []T, perm []int) map[string]func() error {
	ctx := context.Background()
	return map[string]func() error{
		"root":        func() error { _, err := s.InverseRoot(ctx, x, a, 4); return err },
		"eigen":       func() error { _, err := s.EigenSym(ctx, x, w, a, true); return err },
		"iterate":     func() error { setIdentity(x); _, err := s.Iterate(ctx, x, a, perm); return err },
		"diagonalize": func() error { setIdentity(x); _, err := s.Diagonalize(ctx, x, w, a, 2, 0); return err },
	}
}

// A pause changes no bit, allocates nothing, and comes on the caller's goroutine
// only: with several threads the race detector would see another one in count.
func TestPausesChangeNothing(t *testing.T) {
	const n = 200
	a := cast[float32](spectra[1].matrix(n, 37), 1)
	for _, threads := range []int{1, 2} {
		for _, m := range methods {
			count := 0
			eng := gemm.New(threads)
			defer eng.Close()
			s, err := NewSolver[float32](eng, n, Options{Method: m, Pause: func() { count++ }})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			plain := newTestSolver[float32](t, n, Options{Method: m})
			x, y := gemm.NewMatrix[float32](n, n), gemm.NewMatrix[float32](n, n)
			w, perm := make([]float32, n), make([]int, n)
			want := calls(plain, y, a, w, perm)
			for name, call := range calls(s, x, a, w, perm) {
				count = 0
				if err := call(); err != nil {
					t.Fatal(err)
				}
				if count < 8 {
					t.Errorf("threads=%d %v %s: %d pauses", threads, m, name, count)
				}
				if allocs := leastAllocs(func() { _ = call() }); allocs != 0 {
					t.Errorf("threads=%d %v %s: %v allocations", threads, m, name, allocs)
				}
				if err := want[name](); err != nil {
					t.Fatal(err)
				}
				for i, v := range y.Data {
					if x.Data[i] != v {
						t.Fatalf("threads=%d %v %s: element %d is %v with pauses, %v without", threads, m, name, i, x.Data[i], v)
					}
				}
			}
		}
	}
}

// leastAllocs is how much a call always allocates. Where products of two workers meet for
// the first time, which a busy machine may put off, the engine grows a second scratch: once.
func leastAllocs(f func()) float64 {
	least := testing.AllocsPerRun(1, f)
	for range 4 {
		least = min(least, testing.AllocsPerRun(1, f))
	}
	return least
}

// BenchmarkPause measures the longest stretch of a refresh without a pause: of
// each round the longest, and of those the shortest, since a round in which the
// thread lost its core tells nothing.
func BenchmarkPause(b *testing.B) {
	for _, n := range []int{256, 512, 1024} {
		a := gram[float32](gemm.New(1), n)
		var last time.Time
		var longest time.Duration
		eng := gemm.New(1)
		defer eng.Close()
		s, err := NewSolver[float32](eng, n, Options{Pause: func() {
			now := time.Now()
			longest, last = max(longest, now.Sub(last)), now
		}})
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		for name, call := range calls(s, gemm.NewMatrix[float32](n, n), a, make([]float32, n), make([]int, n)) {
			b.Run(fmt.Sprintf("%s/n=%d", name, n), func(b *testing.B) {
				least := time.Hour
				for b.Loop() {
					longest, last = 0, time.Now()
					if err := call(); err != nil {
						b.Fatal(err)
					}
					least = min(least, max(longest, time.Since(last)))
				}
				b.ReportMetric(float64(least.Microseconds()), "µs-longest")
			})
		}
	}
}
