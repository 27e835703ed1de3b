package invroot_test

import (
	"fmt"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/invroot"
	"github.com/asteria-runtime/asteria/invroot/invroottest"
)

func TestConformance(t *testing.T) {
	for _, method := range []invroot.Method{invroot.Eigen, invroot.CoupledNewton, invroot.HigherOrder} {
		for _, precision := range []invroot.Precision{invroot.Auto, invroot.Single, invroot.Double} {
			for _, threads := range []int{1, 2} {
				opts := invroot.Options{Method: method, Precision: precision}
				t.Run(fmt.Sprintf("method=%v/precision=%v/threads=%d", method, precision, threads), func(t *testing.T) {
					if testing.Short() && threads == 2 && precision != invroot.Auto {
						t.Skip("short")
					}
					t.Run("float32", func(t *testing.T) { invroottest.Run(t, backend[float32](threads, opts)) })
					if precision == invroot.Auto {
						t.Run("float64", func(t *testing.T) { invroottest.Run(t, backend[float64](threads, opts)) })
					}
				})
			}
		}
	}
}

func backend[T gemm.Float](threads int, opts invroot.Options) func(t *testing.T, maxOrder int) invroottest.Backend[T] {
	return func(t *testing.T, maxOrder int) invroottest.Backend[T] {
		eng := gemm.New(threads)
		s, err := invroot.NewSolver[T](eng, maxOrder, opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			s.Close()
			eng.Close()
		})
		return invroot.NewRefresher(s)
	}
}
