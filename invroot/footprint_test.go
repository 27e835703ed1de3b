package invroot

import (
	"context"
	"runtime"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
)

func TestScratchBytesTellsWhatASolverHolds(t *testing.T) {
	for _, n := range []int{200, 300} {
		for _, opts := range []Options{{Precision: Single}, {Precision: Auto}} {
			eng := gemm.New(1)
			a, q := gemm.NewMatrix[float32](n, n), gemm.NewMatrix[float32](n, n)
			for i := range n {
				a.Set(i, i, float32(i)) // singular: Auto goes on in float64
			}
			setIdentity(q)
			perm, w := make([]int, n), make([]float32, n)
			run := func() {
				s, err := NewSolver[float32](eng, n, opts)
				if err != nil {
					t.Fatal(err)
				}
				ctx := context.Background()
				if _, err := s.InverseRoot(ctx, gemm.NewMatrix[float32](n, n), a, 4); err != nil {
					t.Fatal(err)
				}
				for _, c := range []func() error{
					func() error { _, err := s.Iterate(ctx, q, a, perm); return err },
					func() error { _, err := s.Diagonalize(ctx, q, w, a, 1, 0); return err },
				} {
					if err := c(); err != nil {
						t.Fatal(err)
					}
				}
				if s.wide != nil {
					s.wide.spare()
					s.wide.factorizer()
				}
				s.Close()
			}
			run() // the engine's own buffers are made here
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			run()
			runtime.ReadMemStats(&after)
			got := int64(after.TotalAlloc-before.TotalAlloc) - int64(4*n*n)
			want := ScratchBytes[float32](n, 1, opts)
			// The allocator rounds each of some 20 large slices a core up to a
			// page of 8 KiB.
			slack := int64(20 * 8192)
			if opts.Precision == Auto {
				slack *= 2
			}
			if got < want || got > want+slack {
				t.Errorf("n=%d %v: %d bytes held, %d computed", n, opts.Precision, got, want)
			}
			eng.Close()
		}
	}
}
