package asteria

import (
	"math"
	"strings"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/trainer-olmo/optim"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// The number of threads changes no bit, nor does the share of blocks that all
// threads compute together.
func TestThreadsDoNotChangeTheBits(t *testing.T) {
	mixed := false
	for _, m := range methods {
		o := Options{Method: m, Frequency: 3, WeightDecay: 0.1}
		var want map[string]string
		for _, threads := range []int{1, 2, 3} {
			params := network[float32]()
			r := newRuntime(t, params, threads, o)
			run(t, r, params, 1, 10)
			if threads == 1 {
				want = bits(params, r)
				continue
			}
			mixed = mixed || (r.wide != nil && len(r.queue) > 0)
			same(t, m.String(), bits(params, r), want)
		}
	}
	if !mixed {
		t.Fatal("no runtime had both kinds of blocks: the test is void")
	}
}

// State written into another runtime's sections continues with the same bits.
func TestSectionsHoldAllState(t *testing.T) {
	for _, m := range methods {
		o := Options{Method: m, Frequency: 3, Stagger: true}
		params := network[float32]()
		r := newRuntime(t, params, 2, o)
		run(t, r, params, 1, 7)

		resumed := network[float32]()
		q := newRuntime(t, resumed, 1, o)
		for i, p := range params {
			copy(resumed[i].Value, p.Value)
		}
		from, to := r.Sections(), q.Sections()
		for i, s := range from {
			if to[i].Name != s.Name {
				t.Fatalf("section %d is %s, want %s", i, to[i].Name, s.Name)
			}
			copy(to[i].F32, s.F32)
			copy(to[i].I64, s.I64)
		}
		if err := q.Check(); err != nil {
			t.Fatal(err)
		}
		run(t, r, params, 8, 16)
		run(t, q, resumed, 8, 16)
		same(t, m.String(), bits(resumed, q), bits(params, r))
	}
}

func TestCheckNamesTheDamagedBlock(t *testing.T) {
	params := network[float32]()
	r := newRuntime(t, params, 1, Options{})
	for _, s := range r.Sections() {
		if s.Name == "kron/layers.0.up/meta" {
			s.I64[0] = -4
		}
	}
	if err := r.Check(); err == nil || !strings.Contains(err.Error(), "layers.0.up") {
		t.Errorf("got %v", err)
	}
}

func TestParametersGoWhereTheyBelong(t *testing.T) {
	routes := func(o Options) map[string]string {
		got := map[string]string{}
		plan, err := PlanFor[float32](Shapes(network[float32]()), 1, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range plan.Lines {
			if l.Name != "" {
				got[l.Name] = l.Method
			}
		}
		return got
	}
	base := map[string]string{
		"embed": "adamw", "head": "adamw", "layers.0.norm": "adamw", "layers.1.bias": "adamw", "layers.1.scalar": "adamw",
		"layers.0.q": "soap", "layers.0.up": "soap", "layers.1.conv": "soap",
	}
	for name, want := range base {
		if got := routes(Options{})[name]; got != want {
			t.Errorf("%s goes to %s, want %s", name, got, want)
		}
	}
	one := routes(Options{OneSidedEmbeddings: true})
	if one["embed"] != "soap" || one["head"] != "soap" {
		t.Errorf("one-sided: %v", one)
	}
	// A side above the limit has no factor under SOAP and is cut under Shampoo;
	// with both sides above it there is nothing left for SOAP.
	small := routes(Options{MaxPrecondDim: 6})
	if small["layers.0.q"] != "adamw" || small["layers.1.conv"] != "soap" {
		t.Errorf("soap, limit 6: %v", small)
	}
	cut := routes(Options{Method: kron.Shampoo, MaxPrecondDim: 6})
	if cut["layers.0.q"] != "shampoo" {
		t.Errorf("shampoo, limit 6: %v", cut)
	}
}

func TestOneSidedEmbeddingsHaveOneFactor(t *testing.T) {
	params := network[float32]()
	r := newRuntime(t, params, 1, Options{OneSidedEmbeddings: true, Frequency: 2})
	for _, u := range r.units {
		want := 12
		if n := u.block.Name(); n != "embed" && n != "head" {
			continue
		}
		if u.block.FactorOrder(0) != 0 || u.block.FactorOrder(1) != want {
			t.Errorf("%s: factors %d and %d", u.block.Name(), u.block.FactorOrder(0), u.block.FactorOrder(1))
		}
	}
	run(t, r, params, 1, 5)
}

// Every parameter takes part; frozen and empty ones are left alone.
func TestStepMovesWhatHasAGradient(t *testing.T) {
	for _, m := range methods {
		params := append(network[float32](), tensor[float32]("empty", param.Matrix, 0, 4), tensor[float32]("frozen", param.Matrix, 4, 4))
		params[len(params)-1].Grad = nil
		before := map[string]string{}
		for _, p := range params {
			before[p.Name] = exact(p.Value)
		}
		r := newRuntime(t, params, 2, Options{Method: m, Frequency: 2})
		run(t, r, params, 1, 4)
		for _, p := range params {
			frozen := p.Name == "frozen" || p.Name == "empty"
			if (exact(p.Value) == before[p.Name]) != frozen {
				t.Errorf("%v: %s moved: %v", m, p.Name, !frozen)
			}
			for _, v := range p.Value {
				if v-v != 0 {
					t.Fatalf("%v: %s is not finite", m, p.Name)
				}
			}
		}
	}
}

// NoDecay and AuxLR reach the parameters they name.
func TestDecayAndAuxiliaryRate(t *testing.T) {
	params := network[float64]()
	o := Options{WeightDecay: 0.5, AuxLR: 0.25, NoDecay: optim.DecayRule{NoDecayNames: []string{"layers.0.q"}, NoDecayRoles: []param.Role{param.Norm}}}
	r := newRuntime(t, params, 1, o)
	before := make([][]float64, len(params))
	for step := int64(1); step <= 2; step++ { // SOAP's first call moves nothing
		for i, p := range params {
			clear(p.Grad)
			before[i] = append([]float64(nil), p.Value...)
		}
		if err := r.Step(step, 0.1); err != nil {
			t.Fatal(err)
		}
	}
	for i, p := range params {
		want := 1 - 0.1*0.5
		switch p.Name {
		case "layers.0.q", "layers.0.norm":
			want = 1
		case "embed", "head", "layers.1.bias", "layers.1.scalar":
			want = 1 - 0.1*0.25*0.5
		}
		if got := p.Value[0] / before[i][0]; math.Abs(got-want) > 1e-12 {
			t.Errorf("%s shrank by %v, want %v", p.Name, got, want)
		}
	}
}

// Staggered refreshes fall on different steps, all within an interval.
func TestStaggerSpreadsTheRefreshes(t *testing.T) {
	var params []param.Param[float32]
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		params = append(params, tensor[float32](name, param.Matrix, 8, 8))
	}
	count := func(stagger bool) []int {
		r := newRuntime(t, params, 1, Options{Frequency: 3, Stagger: stagger})
		var per []int
		seen := int64(0)
		for step := int64(1); step <= 7; step++ {
			run(t, r, params, step, step)
			total := int64(0)
			for _, h := range r.Health() {
				total += h.Refreshes
			}
			per = append(per, int(total-seen))
			seen = total
		}
		return per
	}
	if got := count(false); got[0] != 6 || got[3] != 6 || got[6] != 6 || got[1]+got[2] != 0 {
		t.Errorf("together: %v", got)
	}
	if got := count(true); got[0] != 6 || got[1] != 2 || got[2] != 2 || got[3] != 2 || got[4] != 2 {
		t.Errorf("staggered: %v", got)
	}
}

// A step allocates nothing after the first interval.
func TestStepDoesNotAllocate(t *testing.T) {
	for _, m := range methods {
		params := network[float32]()
		r := newRuntime(t, params, 1, Options{Method: m, Frequency: 2})
		run(t, r, params, 1, 8)
		step := int64(9)
		if n := testing.AllocsPerRun(10, func() {
			if err := r.Step(step, 0.01); err != nil {
				t.Fatal(err)
			}
			step++
		}); n != 0 {
			t.Errorf("%v: %v allocations a step", m, n)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	eng := gemm.New(1)
	defer eng.Close()
	params := network[float32]()
	for want, c := range map[string]struct {
		params []param.Param[float32]
		eng    *gemm.Engine
		o      Options
	}{
		"engine is nil":                   {params, nil, Options{}},
		"AuxLR -1":                        {params, eng, Options{AuxLR: -1}},
		"OneSidedEmbeddings with shampoo": {params, eng, Options{Method: kron.Shampoo, OneSidedEmbeddings: true}},
		"two parameters are named layer":  {append([]param.Param[float32]{tensor[float32]("layer", 0, 2, 2)}, tensor[float32]("layer", 0, 2, 2)), eng, Options{}},
		"Betas[1] 2":                      {params, eng, Options{Betas: [2]float64{0.9, 2}}},
		"the limit is 1000, over by":      {params, eng, Options{MemoryLimit: 1000}},
	} {
		r, err := New(c.params, c.eng, c.o)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
		if r != nil {
			t.Errorf("%q: a runtime came with the error", want)
		}
	}
}

// Field failure A2, end to end: the block that fails too often is named, the
// others have taken their step.
func TestA02_StepNamesTheFailingBlock(t *testing.T) {
	params := network[float32]()
	r := newRuntime(t, params, 2, Options{Frequency: 1, Kron: kron.Options{MaxFailures: 2}})
	run(t, r, params, 1, 2)
	var err error
	steps := int64(0)
	for step := int64(3); step < 10 && err == nil; step++ {
		fill(params, 9, step)
		params[1].Grad[0] = float32(math.Inf(1)) // what the trainer must not let through
		params[1].Value[0] = 0
		err = r.Step(step, 0)
		steps++
	}
	if err == nil || steps != 3 || !strings.Contains(err.Error(), "block layers.0.q") {
		t.Fatalf("after %d steps: %v", steps, err)
	}
	for _, h := range r.Health() {
		bad := h.Block == "layers.0.q"
		if (h.Failed == 3) != bad || (h.Consecutive == 3) != bad {
			t.Errorf("%s: %d failed, %d in a row", h.Block, h.Failed, h.Consecutive)
		}
	}
}

func TestHealthTellsAgesAndEvidence(t *testing.T) {
	params := network[float32]()
	r := newRuntime(t, params, 1, Options{Method: kron.Shampoo, Frequency: 4})
	for _, h := range r.Health() {
		if h.Age != -1 || h.Version != 0 {
			t.Errorf("before the first step: %+v", h)
		}
	}
	run(t, r, params, 1, 10)
	for _, h := range r.Health() {
		if h.Age != 2 || h.Version != 2 || h.Refreshes != 2 || h.Solver != "eigen" {
			t.Errorf("%+v", h)
		}
		if !(h.Residual < 1e-4) || !(h.Condition >= 1) || !(h.Damping > 0) {
			t.Errorf("evidence of %s: residual %g, condition %g, damping %g", h.Block, h.Residual, h.Condition, h.Damping)
		}
	}
}

// Field failure A2 on the shipped chain: a factor too badly conditioned for
// float32 ends in float64, and the stage is counted for its block alone.
func TestA02_StagesAreCountedPerBlock(t *testing.T) {
	params := []param.Param[float32]{tensor[float32]("flat", param.Matrix, 6, 6), tensor[float32]("steep", param.Matrix, 6, 6)}
	r := newRuntime(t, params, 1, Options{Method: kron.Shampoo, Frequency: 2})
	for step := int64(1); step <= 6; step++ {
		for i := range 6 {
			params[0].Grad[7*i] = 1                                  // factor: a multiple of the identity
			params[1].Grad[7*i] = float32(math.Pow(0.1, float64(i))) // condition 1e10, above the ridge
		}
		if err := r.Step(step, 0.01); err != nil {
			t.Fatal(err)
		}
	}
	flat, steep := r.Health()[0], r.Health()[1]
	if flat.ToDouble != 0 || steep.ToDouble != 6 || steep.Precision != "double" || steep.Refreshes != 3 {
		t.Errorf("flat %+v\nsteep %+v", flat, steep)
	}
	if s := r.Totals(); s.Blocks != 2 || s.Refreshes != 6 || s.AgeMax != 0 || s.Failed != 0 {
		t.Errorf("%+v", s)
	}
}

func TestDivideBalances(t *testing.T) {
	for _, c := range []struct {
		costs    []float64
		threads  int
		together int
	}{
		{nil, 2, 0},
		{[]float64{5}, 1, 0},
		{[]float64{5}, 2, 1},
		{[]float64{4, 4}, 2, 0},
		{[]float64{4, 4, 4}, 2, 1},
		{[]float64{9, 1, 1}, 2, 1},
		{[]float64{3, 3, 3, 3, 1, 1, 1, 1}, 2, 0},
	} {
		if got := countTogether(c.costs, c.threads); got != c.together {
			t.Errorf("%v on %d threads: %d together, want %d", c.costs, c.threads, got, c.together)
		}
	}
}
