package asteria

import (
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/invroot"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/kron/krontest"
)

// shipped is the solver that the runtime uses, with the ridge of the references.
var shipped = krontest.Solvers{Float64: refresher[float64], Float32: refresher[float32]}

func refresher[T gemm.Float](t testing.TB, ridge float64, order int) kron.Refresher[T] {
	t.Helper()
	o := invroot.Options{Ridge: invroot.Ridge{Kind: invroot.Absolute, Value: ridge}}
	eng := gemm.New(1)
	t.Cleanup(eng.Close)
	s, err := invroot.NewSolver[T](eng, order, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return &recorder[T]{solver: invroot.NewRefresher(s)}
}

func golden(t *testing.T, pattern string) {
	t.Helper()
	krontest.Run(t, krontest.Dir("testdata/golden"), pattern, shipped)
}

func TestGoldenSOAP(t *testing.T)      { golden(t, "soap_*.json") }
func TestGoldenShampoo(t *testing.T)   { golden(t, "shampoo_*.json") }
func TestGoldenKLShampoo(t *testing.T) { golden(t, "klshampoo_*.json") }
func TestGoldenKLSOAP(t *testing.T)    { golden(t, "klsoap_*.json") }
func TestGoldenStale(t *testing.T)     { golden(t, "stale_*.json") }
