package invroot

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
)

// QᵀQ = I and QᵀA upper triangular, both within 8*n*u of the size of A.
func testQR[T gemm.Float](t *testing.T, u float64) {
	for _, n := range []int{1, 2, 7, 33, 64, 130} {
		r := rand.New(rand.NewPCG(21, uint64(n)))
		a := gemm.NewMatrix[T](n, n)
		for i := range a.Data {
			a.Data[i] = T(r.NormFloat64())
		}
		eng := gemm.New(1)
		s, err := NewSolver[T](eng, n, Options{})
		if err != nil {
			t.Fatal(err)
		}
		q := gemm.NewMatrix[T](n, n)
		if _, err := s.QR(context.Background(), q, a); err != nil {
			t.Fatal(err)
		}
		s.Close()
		eng.Close()
		for i := range n {
			for j := range n {
				var gram, tri float64
				for k := range n {
					gram += float64(q.At(k, i)) * float64(q.At(k, j))
					tri += float64(q.At(k, i)) * float64(a.At(k, j))
				}
				if i == j {
					gram--
				}
				if j >= i {
					tri = 0
				}
				bound := 8 * float64(n) * u
				if math.Abs(gram) > bound || math.Abs(tri) > bound*math.Sqrt(float64(n)) {
					t.Fatalf("n=%d (%d,%d): gram off by %g, below the diagonal %g", n, i, j, gram, tri)
				}
			}
		}
	}
}

func TestQR(t *testing.T) {
	t.Run("float32", func(t *testing.T) { testQR[float32](t, 0x1p-24) })
	t.Run("float64", func(t *testing.T) { testQR[float64](t, 0x1p-53) })
}

func TestQRRefusesNaNAndKeepsItsDestination(t *testing.T) {
	eng := gemm.New(1)
	defer eng.Close()
	s, err := NewSolver[float32](eng, 2, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	q, a := gemm.NewMatrix[float32](2, 2), gemm.NewMatrix[float32](2, 2)
	q.Set(0, 1, 3)
	a.Set(1, 0, float32(math.NaN()))
	if _, err := s.QR(context.Background(), q, a); !errors.Is(err, ErrNonFinite) || q.At(0, 1) != 3 {
		t.Fatalf("error %v, destination %v", err, q.Data)
	}
}
