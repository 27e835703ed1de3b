package kron_test

import (
	"testing"

	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/kron/krontest"
)

// reference solves in float64 with plain loops, whatever the element type.
var reference = krontest.Solvers{
	Float64: func(_ testing.TB, ridge float64, _ int) kron.Refresher[float64] {
		return krontest.Reference[float64]{Ridge: ridge}
	},
	Float32: func(_ testing.TB, ridge float64, _ int) kron.Refresher[float32] {
		return krontest.Reference[float32]{Ridge: ridge}
	},
}

func golden(t *testing.T, pattern string) {
	t.Helper()
	krontest.Run(t, krontest.Dir("testdata/golden"), pattern, reference)
}

func TestGoldenSOAP(t *testing.T)      { golden(t, "soap_*.json") }
func TestGoldenShampoo(t *testing.T)   { golden(t, "shampoo_*.json") }
func TestGoldenKLShampoo(t *testing.T) { golden(t, "klshampoo_*.json") }
func TestGoldenKLSOAP(t *testing.T)    { golden(t, "klsoap_*.json") }
func TestGoldenStale(t *testing.T)     { golden(t, "stale_*.json") }
