package optim

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// twins returns two equal sets of parameters, one of them empty, with gradients.
func twins(seed uint64) (a, b []param.Param[float32]) {
	g := rand.New(rand.NewPCG(seed, 3))
	for i, n := range []int{5, 2*chunkLen + 7, 0, chunkLen} {
		p := param.Param[float32]{Name: string(rune('a' + i)), Role: param.Norm, Value: make([]float32, n), Grad: make([]float32, n)}
		for j := range p.Value {
			p.Value[j], p.Grad[j] = float32(g.NormFloat64()), float32(g.NormFloat64())
		}
		a = append(a, p)
		p.Value, p.Grad = slices.Clone(p.Value), slices.Clone(p.Grad)
		b = append(b, p)
	}
	return a, b
}

// Moments that are lent parameter by parameter, from memory that is another each
// time, give the bits of moments that AdamW keeps.
func TestLentMomentsKeepTheBits(t *testing.T) {
	for seed := range uint64(5) {
		eng := gemm.New(1 + int(seed)%2)
		defer eng.Close()
		kept, lent := twins(seed)
		opts := AdamWOptions{WeightDecay: 0.1, Engine: eng, Prefix: "aux"}
		whole := NewAdamW(kept, opts)
		opts.Lent = true
		parts := NewAdamW(lent, opts)
		moments := make([][2][]float32, len(lent))
		for i, p := range lent {
			moments[i] = [2][]float32{make([]float32, len(p.Value)), make([]float32, len(p.Value))}
		}
		for range 3 {
			if err := whole.StepScaled(1, 0.01, 0.5); err != nil {
				t.Fatal(err)
			}
			parts.Begin(0.01, 0.5)
			for i := range slices.Backward(lent) {
				m, v := slices.Clone(moments[i][0]), slices.Clone(moments[i][1])
				parts.StepParam(i, m, v)
				moments[i] = [2][]float32{m, v}
			}
		}
		sections := whole.Sections()
		for i := range kept {
			if !slices.Equal(kept[i].Value, lent[i].Value) {
				t.Errorf("seed %d: parameter %s differs", seed, kept[i].Name)
			}
			for k, name := range parts.MomentNames(i) {
				if s := sections[1+2*i+k]; s.Name != name || !slices.Equal(s.F32, moments[i][k]) {
					t.Errorf("seed %d: %s differs, or is %s", seed, name, s.Name)
				}
			}
		}
		if c := parts.Sections(); len(c) != 1 || c[0].Name != sections[0].Name || c[0].I64[0] != 3 {
			t.Errorf("seed %d: the counter is %+v", seed, c)
		}
	}
}

func TestLentMomentsAllocateNothing(t *testing.T) {
	eng := gemm.New(2)
	defer eng.Close()
	params, _ := twins(1)
	a := NewAdamW(params, AdamWOptions{Engine: eng, Lent: true})
	m, v := make([]float32, len(params[1].Value)), make([]float32, len(params[1].Value))
	if n := testing.AllocsPerRun(10, func() { a.Begin(0.1, 1); a.StepParam(1, m, v) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	defer func() {
		if recover() == nil {
			t.Error("a step without moments did not panic")
		}
	}()
	_ = a.Step(1, 0.1)
}
