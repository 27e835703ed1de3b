package asteria

import (
	"fmt"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// d256 has the block matrices of a model of width 256 with 4 layers, hidden 688.
func d256() []param.Param[float32] {
	var params []param.Param[float32]
	for layer := range 4 {
		for i, dims := range [][]int{{256, 256}, {256, 256}, {256, 256}, {256, 256}, {688, 256}, {688, 256}, {256, 688}} {
			params = append(params, tensor[float32](fmt.Sprintf("layers.%d.%d", layer, i), param.Matrix, dims...))
		}
	}
	return params
}

// BenchmarkStep is an optimizer step of the 28 block matrices of a small model,
// without and with the refresh of all blocks; adamw is the baseline.
func BenchmarkStep(b *testing.B) {
	for _, threads := range []int{1, 2} {
		for _, m := range []kron.Method{kron.SOAP, kron.Shampoo, kron.KLShampoo} {
			b.Run(fmt.Sprintf("%v/threads=%d/plain", m, threads), func(b *testing.B) { benchStep(b, param.Matrix, m, threads, 1<<40) })
			b.Run(fmt.Sprintf("%v/threads=%d/refresh", m, threads), func(b *testing.B) { benchStep(b, param.Matrix, m, threads, 1) })
		}
		b.Run(fmt.Sprintf("adamw/threads=%d", threads), func(b *testing.B) { benchStep(b, param.Norm, kron.SOAP, threads, 1) })
	}
}

func benchStep(b *testing.B, role param.Role, m kron.Method, threads int, every int64) {
	params := d256()
	for i := range params {
		params[i].Role = role
	}
	eng := gemm.New(threads)
	defer eng.Close()
	r, err := New(params, eng, Options{Method: m, Frequency: every, Kron: kron.Options{Start: 1}})
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	run(b, r, params, 1, 3)
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Step(4, 1e-4); err != nil {
			b.Fatal(err)
		}
	}
}
