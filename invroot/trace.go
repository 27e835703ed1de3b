package invroot

import (
	"math"

	"github.com/asteria-runtime/asteria/gemm"
)

// traceFactor returns max(trace A, floor)^(-1/2), the factor of trace scaling
// (facebookresearch/optimizers). The floor is the absolute ridge, or the
// smallest normal number.
func traceFactor[T gemm.Float](o Options, a gemm.Matrix[T]) float64 {
	floor := 0x1p-1022
	if o.Ridge.Kind == Absolute {
		floor = max(floor, o.Ridge.Value)
	}
	trace := 0.0
	for i := range a.Rows {
		trace += float64(a.Row(i)[i])
	}
	return 1 / math.Sqrt(max(trace, floor))
}
