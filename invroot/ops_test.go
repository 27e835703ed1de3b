package invroot_test

import (
	"context"
	"errors"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/invroot"
	"github.com/asteria-runtime/asteria/invroot/invroottest"
)

func cpu[T gemm.Float](t *testing.T) invroot.Ops[T] {
	eng := gemm.New(2)
	t.Cleanup(eng.Close)
	return invroot.NewCPU[T](eng)
}

func late[T gemm.Float](t *testing.T) invroot.Ops[T] { return invroottest.Delay(cpu[T](t)) }

func TestOpsConformance(t *testing.T) {
	t.Run("cpu/float32", func(t *testing.T) { invroottest.RunOps(t, cpu[float32]) })
	t.Run("cpu/float64", func(t *testing.T) { invroottest.RunOps(t, cpu[float64]) })
	t.Run("late/float32", func(t *testing.T) { invroottest.RunOps(t, late[float32]) })
}

// Results are read, and operands written, only after Sync.
func TestLateOperationsGiveTheSameBits(t *testing.T) {
	t.Run("float32", func(t *testing.T) { invroottest.SameResults(t, cpu[float32]) })
	t.Run("float64", func(t *testing.T) { invroottest.SameResults(t, cpu[float64]) })
}

var errLost = errors.New("device lost")

// lost computes nothing and says so at Sync.
type lost struct{ invroot.Ops[float32] }

func (lost) Gemm(bool, bool, float32, gemm.Matrix[float32], gemm.Matrix[float32], float32, gemm.Matrix[float32]) {
}
func (lost) Sync() error { return errLost }

func TestLostOperationsLeaveARootToTheHostAndABasisAsItWas(t *testing.T) {
	eng := gemm.New(1)
	defer eng.Close()
	s, err := invroot.NewSolverOn[float32](eng, lost{invroot.NewCPU[float32](eng)}, 4, invroot.Options{Method: invroot.CoupledNewton})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a, x := gemm.NewMatrix[float32](4, 4), gemm.NewMatrix[float32](4, 4)
	for i := range 4 {
		a.Set(i, i, 16)
	}
	rep, err := s.InverseRoot(context.Background(), x, a, 4)
	if d := x.At(1, 1) - 0.5; err != nil || rep.Precision != invroot.Double || d > 1e-6 || d < -1e-6 {
		t.Errorf("root %v with %+v and error %v, want 0.5 in float64", x.At(1, 1), rep, err)
	}
	q := gemm.MatrixOf(4, 4, []float32{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1})
	_, err = s.Iterate(context.Background(), q, a, nil)
	if !errors.Is(err, errLost) || q.At(2, 2) != 1 {
		t.Errorf("error %v, basis %v", err, q.Data)
	}
}
