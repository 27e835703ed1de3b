package asteria

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// tensor returns a parameter of normal numbers.
func tensor[T gemm.Float](name string, role param.Role, dims ...int) param.Param[T] {
	n := size(dims)
	rng := rand.New(rand.NewPCG(uint64(n), uint64(len(name))))
	p := param.Param[T]{Name: name, Shape: dims, Role: role, Value: make([]T, n), Grad: make([]T, n)}
	for i := range p.Value {
		p.Value[i] = T(rng.NormFloat64()) / 50
	}
	return p
}

// network has a parameter for every route.
func network[T gemm.Float]() []param.Param[T] {
	return []param.Param[T]{
		tensor[T]("embed", param.Embedding, 50, 12),
		tensor[T]("layers.0.q", param.Matrix, 12, 12),
		tensor[T]("layers.0.up", param.Matrix, 30, 12),
		tensor[T]("layers.0.norm", param.Norm, 12),
		tensor[T]("layers.1.conv", param.Matrix, 4, 3, 5),
		tensor[T]("layers.1.bias", param.Matrix, 7),
		tensor[T]("layers.1.scalar", param.Matrix),
		tensor[T]("head", param.Head, 50, 12),
	}
}

// fill sets all gradients for a step, the same for the same seed and step.
func fill[T gemm.Float](params []param.Param[T], seed uint64, step int64) {
	rng := rand.New(rand.NewPCG(seed, uint64(step)))
	for _, p := range params {
		for i := range p.Grad {
			p.Grad[i] = T(rng.NormFloat64())
		}
	}
}

func newRuntime[T gemm.Float](t testing.TB, params []param.Param[T], threads int, o Options) *Runtime[T] {
	t.Helper()
	eng := gemm.New(threads)
	t.Cleanup(eng.Close)
	r, err := New(params, eng, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// run takes steps [from, to].
func run[T gemm.Float](t testing.TB, r *Runtime[T], params []param.Param[T], from, to int64) {
	t.Helper()
	for step := from; step <= to; step++ {
		fill(params, 9, step)
		if err := r.Step(step, 0.01); err != nil {
			t.Fatal(err)
		}
	}
}

// bits hashes nothing: it lists every number of parameters and state, exactly.
func bits[T gemm.Float](params []param.Param[T], r *Runtime[T]) map[string]string {
	out := map[string]string{}
	for _, p := range params {
		out["param/"+p.Name] = exact(p.Value)
	}
	for _, s := range r.Sections() {
		name := s.Name
		err := s.With(false, func(s param.Section) error {
			out[name] = exact(s.F32) + exact(s.F64) + fmt.Sprint(s.I64)
			return nil
		})
		if err != nil {
			out[name] = err.Error()
		}
	}
	return out
}

// copySection copies a section as a checkpoint does: it holds one at a time.
func copySection(t testing.TB, dst, src param.Section) {
	t.Helper()
	if src.Held == nil {
		copy(dst.I64, src.I64)
	}
	var mem param.Section
	read := func(s param.Section) error {
		mem = param.Section{F32: slices.Clone(s.F32), F64: slices.Clone(s.F64)}
		return nil
	}
	write := func(s param.Section) error {
		copy(s.F32, mem.F32)
		copy(s.F64, mem.F64)
		return nil
	}
	if err := errors.Join(src.With(false, read), dst.With(true, write)); err != nil {
		t.Fatal(err)
	}
}

func exact[T gemm.Float](x []T) string {
	b := make([]byte, 0, 8*len(x))
	for _, v := range x {
		u := math.Float64bits(float64(v))
		for range 8 {
			b = append(b, byte(u))
			u >>= 8
		}
	}
	return string(b)
}

// same reports the first section that differs.
func same(t testing.TB, what string, got, want map[string]string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d sections, want %d", what, len(got), len(want))
	}
	for name, w := range want {
		if got[name] != w {
			t.Fatalf("%s: %s differs", what, name)
		}
	}
}

var methods = []kron.Method{kron.SOAP, kron.Shampoo, kron.KLShampoo, kron.KLSOAP, kron.EigenShampoo}
