package optim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// sizes straddle the chunks; none of them is a multiple of a vector.
var sizes = []int{1, 7, chunkLen - 1, chunkLen, chunkLen + 1, 3*chunkLen + 5}

// randomParams returns parameters of the sizes with random values and gradients.
func randomParams[T gemm.Float](seed uint64) []param.Param[T] {
	r := rand.New(rand.NewPCG(seed, 1))
	roles := []param.Role{param.Matrix, param.Embedding, param.Norm, param.Head}
	var ps []param.Param[T]
	for i, n := range sizes {
		p := param.Param[T]{Name: fmt.Sprintf("p%d.weight", i), Shape: []int{n}, Role: roles[i%len(roles)], Value: make([]T, n), Grad: make([]T, n)}
		for j := range n {
			p.Value[j], p.Grad[j] = T(r.NormFloat64()), T(r.NormFloat64())
		}
		ps = append(ps, p)
	}
	return ps
}

func regrad[T gemm.Float](ps []param.Param[T], seed uint64) {
	r := rand.New(rand.NewPCG(seed, 2))
	for _, p := range ps {
		for j := range p.Grad {
			p.Grad[j] = T(r.NormFloat64())
		}
	}
}

// optimizers are the ones of this package on the same kind of parameters.
func optimizers(ps []param.Param[float32], eng *gemm.Engine) map[string]param.Optimizer {
	decay := DecayRule{NoDecayRoles: []param.Role{param.Embedding}}
	return map[string]param.Optimizer{
		"adamw": NewAdamW(ps, AdamWOptions{WeightDecay: 0.1, Decay: decay, Engine: eng}),
		"lionw": NewLionW(ps, LionWOptions{WeightDecay: 0.1, Decay: decay, Engine: eng}),
	}
}

func bits(ps []param.Param[float32], sections []param.Section) []uint32 {
	var out []uint32
	add := func(x []float32) {
		for _, v := range x {
			out = append(out, math.Float32bits(v))
		}
	}
	for _, p := range ps {
		add(p.Value)
	}
	for _, s := range sections {
		add(s.F32)
	}
	return out
}

func TestThreadsDoNotChangeABit(t *testing.T) {
	for _, name := range []string{"adamw", "lionw"} {
		var want []uint32
		var norms []float64
		for _, threads := range []int{1, 2, 3} {
			eng := gemm.New(threads)
			ps := randomParams[float32](1)
			opt := optimizers(ps, eng)[name]
			clip := NewClipper(ps, ClipOptions{MaxNorm: 1, Engine: eng})
			for step := range int64(4) {
				regrad(ps, uint64(step))
				norm := clip.Norm()
				norms = append(norms, norm)
				clip.Clip(norm, step+1)
				if err := opt.Step(step+1, 1e-2); err != nil {
					t.Fatal(err)
				}
			}
			got := bits(ps, opt.Sections())
			if want == nil {
				want = got
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: other bits with %d threads", name, threads)
			}
			eng.Close()
		}
		for i, n := range norms {
			if n != norms[i%4] {
				t.Errorf("%s: norm %d differs: %v, %v", name, i, n, norms[i%4])
			}
		}
	}
}

// TestChunksMatchAScalarLoop compares with the formula, element by element.
func TestChunksMatchAScalarLoop(t *testing.T) {
	ps, ref := randomParams[float64](2), randomParams[float64](2)
	o := AdamWOptions{WeightDecay: 0.1, Decay: DecayRule{NoDecayNames: []string{"p1.*"}}}
	opt := NewAdamW(ps, o)
	const lr, b1, b2 = 1e-2, 0.9, 0.95
	m, v := make([][]float64, len(ref)), make([][]float64, len(ref))
	for step := 1; step <= 3; step++ {
		regrad(ps, uint64(step))
		regrad(ref, uint64(step))
		if err := opt.Step(int64(step), lr); err != nil {
			t.Fatal(err)
		}
		c1, c2 := 1-math.Pow(b1, float64(step)), 1-math.Pow(b2, float64(step))
		for i, p := range ref {
			if m[i] == nil {
				m[i], v[i] = make([]float64, len(p.Value)), make([]float64, len(p.Value))
			}
			wd := 0.1
			if i == 1 {
				wd = 0
			}
			for j, g := range p.Grad {
				p.Value[j] *= 1 - lr*wd
				m[i][j] = b1*m[i][j] + (1-b1)*g
				v[i][j] = b2*v[i][j] + (1-b2)*g*g
				p.Value[j] -= lr / c1 * m[i][j] / (math.Sqrt(v[i][j])/math.Sqrt(c2) + 1e-8)
			}
		}
	}
	for i := range ps {
		// A dozen roundings of numbers of size one in each of three steps.
		compare(t, ps[i].Name, ps[i].Value, ref[i].Value, 3*12*0x1p-52*4)
	}
}

func TestStepsDoNotAllocate(t *testing.T) {
	ps := randomParams[float32](3)
	eng := gemm.New(2)
	defer eng.Close()
	clip := NewClipper(ps, ClipOptions{MaxNormRatio: 2, Engine: eng})
	rule := NewSkipRule(SkipOptions{Window: 4})
	for name, opt := range optimizers(ps, eng) {
		step := int64(0)
		if n := testing.AllocsPerRun(10, func() {
			step++
			clip.Zero()
			regradTiny(ps)
			norm := clip.Norm()
			clip.Clip(norm, step)
			rule.Accept(norm, norm)
			if err := opt.Step(step, 1e-3); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations a step", name, n)
		}
	}
}

func regradTiny(ps []param.Param[float32]) {
	for _, p := range ps {
		for j := range p.Grad {
			p.Grad[j] = float32(j%5) - 2
		}
	}
}

// TestA05_ZeroGradient has no gradient on the first step, on step 5, and for one
// parameter only.
func TestA05_ZeroGradient(t *testing.T) {
	const lr, wd = 1e-2, 0.1
	ps := randomParams[float32](4)
	opt := NewAdamW(ps, AdamWOptions{WeightDecay: wd})
	clip := NewClipper(ps, ClipOptions{MaxNorm: 1})
	step := func(k int64) {
		t.Helper()
		norm := clip.Norm()
		clip.Clip(norm, k)
		if err := opt.Step(k, lr); err != nil {
			t.Fatal(err)
		}
		if opt.Updates() != k {
			t.Fatalf("step %d: %d updates counted", k, opt.Updates())
		}
		for _, p := range ps {
			for j, v := range p.Value {
				if v-v != 0 {
					t.Fatalf("step %d: %s[%d] is %v", k, p.Name, j, v)
				}
			}
		}
	}
	before := slices.Clone(ps[5].Value)
	clip.Zero()
	step(1)
	for j, v := range ps[5].Value {
		if want := before[j] * float32(1-lr*wd); v != want {
			t.Fatalf("element %d is %v, weight decay alone gives %v", j, v, want)
		}
	}
	for k := int64(2); k <= 6; k++ {
		regrad(ps, uint64(k))
		if k == 5 {
			clip.Zero()
		}
		clear(ps[2].Grad)
		step(k)
	}
	for j, v := range opt.m[2] {
		if v != 0 || opt.v[2][j] != 0 {
			t.Fatalf("the parameter without gradients has moments %v, %v", v, opt.v[2][j])
		}
	}
}

func TestScalingInTheStepIsClipping(t *testing.T) {
	a, b := randomParams[float32](11), randomParams[float32](11)
	one, two := NewAdamW(a, AdamWOptions{WeightDecay: 0.1}), NewAdamW(b, AdamWOptions{WeightDecay: 0.1})
	ca, cb := NewClipper(a, ClipOptions{MaxNorm: 3}), NewClipper(b, ClipOptions{MaxNorm: 3})
	for k := int64(1); k <= 4; k++ {
		regrad(a, uint64(k))
		regrad(b, uint64(k))
		coef, uniform := ca.Factor(ca.Norm(), k)
		if got := cb.Clip(cb.Norm(), k); got != coef || !uniform || coef == 1 {
			t.Fatalf("step %d: factor %v, Clip %v, uniform %v", k, coef, got, uniform)
		}
		if one.StepScaled(k, 1e-2, coef) != nil || two.Step(k, 1e-2) != nil {
			t.Fatal("a step failed")
		}
	}
	if !slices.Equal(bits(a, one.Sections()), bits(b, two.Sections())) {
		t.Error("scaling in the step gives other bits than clipping before it")
	}
}

func TestSectionsAreTheStateInPlace(t *testing.T) {
	a, b := randomParams[float32](5), randomParams[float32](5)
	for name := range optimizers(a, nil) {
		one, two := optimizers(a, nil)[name], optimizers(b, nil)[name]
		for k := int64(1); k <= 3; k++ {
			regrad(a, uint64(k))
			if err := one.Step(k, 1e-2); err != nil {
				t.Fatal(err)
			}
		}
		// Restore through the sections, then both must go the same way.
		for i, s := range two.Sections() {
			src := one.Sections()[i]
			if s.Name != src.Name {
				t.Fatalf("section %q, want %q", s.Name, src.Name)
			}
			copy(s.F32, src.F32)
			copy(s.I64, src.I64)
		}
		for i := range b {
			copy(b[i].Value, a[i].Value)
		}
		for k := int64(4); k <= 6; k++ {
			regrad(a, uint64(k))
			regrad(b, uint64(k))
			if err := one.Step(k, 1e-2); err != nil {
				t.Fatal(err)
			}
			if err := two.Step(k, 1e-2); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(bits(a, one.Sections()), bits(b, two.Sections())) {
			t.Errorf("%s: a restored optimizer goes another way", name)
		}
	}
}

func TestDecayRule(t *testing.T) {
	r := DecayRule{NoDecayRoles: []param.Role{param.Norm}, NoDecayNames: []string{"model.embed_tokens.*", "*.bias"}}
	for _, tc := range []struct {
		name string
		role param.Role
		want bool
	}{
		{"model.norm.weight", param.Norm, false},
		{"model.embed_tokens.weight", param.Embedding, false},
		{"lm_head.weight", param.Head, true},
		{"model.layers.0.mlp.up_proj.bias", param.Matrix, false},
		{"model.layers.0.mlp.up_proj.weight", param.Matrix, true},
	} {
		if got := r.Decays(tc.name, tc.role); got != tc.want {
			t.Errorf("Decays(%s) = %v, want %v", tc.name, got, tc.want)
		}
	}
	if !(DecayRule{}).Decays("anything", param.Norm) {
		t.Error("the zero rule excludes something")
	}
}

func TestOptionsReportAllFaults(t *testing.T) {
	nan := math.NaN()
	for name, tc := range map[string]struct {
		err   error
		wants []string
	}{
		"adamw": {AdamWOptions{Betas: [2]float64{1, -1}, Eps: -1, WeightDecay: math.Inf(1), Decay: DecayRule{NoDecayNames: []string{"["}}}.Validate(), []string{"beta1", "beta2", "eps", "weight decay", "pattern"}},
		"lionw": {LionWOptions{Betas: [2]float64{nan, 1}, WeightDecay: -1}.Validate(), []string{"beta1", "beta2", "weight decay"}},
		"clip":  {ClipOptions{MaxNorm: nan, MaxNormRatio: -1, AverageBeta: 1, WarmupSteps: -1, WarmupFactor: nan}.Validate(), []string{"max grad norm is", "ratio", "average beta", "steps", "factor"}},
		"skip":  {SkipOptions{Window: -1, Sigma: nan}.Validate(), []string{"window", "sigma"}},
		"curve": {CurveOptions{Warmup: -1, TMax: -1, WarmupFraction: 2, DecayMinLR: nan, Periods: []int64{0}}.Validate(), []string{"warm-up is", "t_max", "warm-up fraction", "decay min lr", "period 0"}},
	} {
		if tc.err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		for _, want := range tc.wants {
			if !strings.Contains(tc.err.Error(), want) {
				t.Errorf("%s: the error does not name %q: %v", name, want, tc.err)
			}
		}
	}
	for name, err := range map[string]error{
		"adamw": AdamWOptions{}.Validate(), "lionw": LionWOptions{}.Validate(), "clip": ClipOptions{}.Validate(),
		"skip": SkipOptions{}.Validate(), "curve": CurveOptions{}.Validate(),
	} {
		if err != nil {
			t.Errorf("%s: the zero value is refused: %v", name, err)
		}
	}
}

func TestClipBoundsTheNorm(t *testing.T) {
	for _, bound := range []float64{0.5, 3, 1e9} {
		ps := randomParams[float64](6)
		c := NewClipper(ps, ClipOptions{MaxNorm: bound})
		norm := c.Norm()
		if ref := GlobalNorm(ps); ref != norm {
			t.Errorf("GlobalNorm %v, Clipper.Norm %v", ref, norm)
		}
		coef := c.Clip(norm, 1)
		after := c.Norm()
		if after > bound || math.Abs(after-norm*coef) > 1e-12*norm || (coef == 1) != (norm+clipEps <= bound) {
			t.Errorf("bound %v: norm %v, factor %v, then %v", bound, norm, coef, after)
		}
	}
}

func TestNormIsFiniteExactlyWhenTheGradientsAre(t *testing.T) {
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
		for i := range sizes {
			ps := randomParams[float32](7)
			c := NewClipper(ps, ClipOptions{})
			// The largest float32 squared fits a float64 many times over.
			ps[0].Grad[0] = math.MaxFloat32
			if n := c.Norm(); n-n != 0 {
				t.Fatalf("norm %v of finite gradients", n)
			}
			ps[i].Grad[sizes[i]-1] = bad
			if n := c.Norm(); n-n == 0 {
				t.Errorf("%v in parameter %d: norm %v", bad, i, n)
			}
		}
	}
}

func TestAdaptiveClippingFollowsTheAverage(t *testing.T) {
	ps := params[float64](tensors{"a": {Shape: []int{1}, Data: []float64{0}}, "b": {Shape: []int{1}, Data: []float64{0}}})
	c := NewClipper(ps, ClipOptions{MaxNormRatio: 2, AverageBeta: 0.5, MaxNorm: 1e-3, WarmupSteps: 1, WarmupFactor: 10})
	set := func(a, b float64) {
		ps[0].Grad[0], ps[1].Grad[0] = a, b
	}
	set(1, 4)
	if f := c.Clip(c.Norm(), 1); f != 1 {
		t.Errorf("the first step was clipped by %v", f)
	}
	set(10, -4) // ten times a's average, as many as b's
	f := c.Clip(c.Norm(), 2)
	want := 2 / (10 + clipEps)
	if math.Abs(f-want) > 1e-15 || math.Abs(ps[0].Grad[0]-10*want) > 1e-15 || ps[1].Grad[0] != -4 {
		t.Errorf("factor %v, want %v; gradients %v and %v", f, want, ps[0].Grad[0], ps[1].Grad[0])
	}
	if avg := c.Sections()[0].F64; math.Abs(avg[0]-(1+0.5*(10*want-1))) > 1e-15 || avg[1] != 4 {
		t.Errorf("averages %v", avg)
	}
}

// TestSkipRuleMatchesItsDefinition keeps the whole history and decides from it.
func TestSkipRuleMatchesItsDefinition(t *testing.T) {
	const seed = 8
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, window := range []int{2, 4, 7, 16} {
		rule := NewSkipRule(SkipOptions{Window: window, Sigma: 2})
		var ls, ns []float64
		skipped := 0
		for step := range 200 {
			l, n := 3+0.1*rng.NormFloat64(), 1+0.1*rng.NormFloat64()
			if rng.IntN(10) == 0 {
				l += 5 * rng.Float64()
			}
			ls, ns = append(ls, l), append(ns, n)
			ls, ns = ls[max(0, len(ls)-window-1):], ns[max(0, len(ns)-window-1):]
			want := len(ls) < max(2, window/2) || below(ls, 2) && below(ns, 2)
			if got := rule.Accept(l, n); got != want {
				t.Fatalf("window %d, step %d (seed %d): accepted %v, want %v", window, step, seed, got, want)
			}
			if !want {
				skipped++
			}
		}
		if skipped == 0 {
			t.Errorf("window %d: nothing was skipped, the test is empty", window)
		}
	}
}

func below(h []float64, sigma float64) bool {
	n := len(h) - 1
	m := 0.0
	for _, v := range h[:n] {
		m += v
	}
	m /= float64(n)
	s := 0.0
	for _, v := range h[:n] {
		s += (v - m) * (v - m)
	}
	return h[n]-m <= sigma*math.Sqrt(s/float64(n-1))
}

func TestSkipRuleContinuesFromItsSections(t *testing.T) {
	a := NewSkipRule(SkipOptions{Window: 8, Sigma: 1})
	b := NewSkipRule(SkipOptions{Window: 8, Sigma: 1})
	r := rand.New(rand.NewPCG(9, 0))
	for range 20 {
		a.Accept(r.NormFloat64(), r.NormFloat64())
	}
	for i, s := range b.Sections() {
		copy(s.F64, a.Sections()[i].F64)
		copy(s.I64, a.Sections()[i].I64)
	}
	for step := range 50 {
		l, n := r.NormFloat64(), r.NormFloat64()
		if a.Accept(l, n) != b.Accept(l, n) {
			t.Fatalf("step %d: the restored rule decides otherwise", step)
		}
	}
}

func TestFloat32ScalarsAreNearTheExactOnes(t *testing.T) {
	exact, rounded := randomParams[float64](10), randomParams[float64](10)
	a := NewAdamW(exact, AdamWOptions{})
	b := NewAdamW(rounded, AdamWOptions{Float32Scalars: true})
	for k := int64(1); k <= 5; k++ {
		regrad(exact, uint64(k))
		regrad(rounded, uint64(k))
		if a.Step(k, 1e-2) != nil || b.Step(k, 1e-2) != nil {
			t.Fatal("a step failed")
		}
	}
	for i := range exact {
		// Five updates of about lr, each off by a few float32 roundings.
		compare(t, exact[i].Name, rounded[i].Value, exact[i].Value, 5*1e-2*8*0x1p-24*4)
	}
}

// TestCurvesHaveTheirShape holds every curve to what its name promises.
func TestCurvesHaveTheirShape(t *testing.T) {
	const peak, end = 2.0, 1000
	decay := int64(100)
	for _, name := range CurveNames() {
		o := CurveOptions{Warmup: 50, Decay: &decay, Periods: []int64{400, 600}}
		c, err := NewCurve(name, o)
		if err != nil {
			t.Fatal(err)
		}
		b := Bound{Curve: c, Peak: peak, End: end}
		for step := int64(0); step <= end+200; step++ {
			lr := b.LR(step)
			if !(lr >= 0 && lr <= peak*(1+1e-15)) {
				t.Errorf("%s: lr(%d) = %v", name, step, lr)
				break
			}
		}
		if name == "constant" || name == "exponential" {
			continue
		}
		top := peak
		if name == "half_cosine" {
			top = peak * 0.55 // the middle between the peak and a tenth of it
		}
		if got := b.LR(50); math.Abs(got-top) > 1e-12 {
			t.Errorf("%s: lr at the end of the warm-up is %v, want %v", name, got, top)
		}
		if got := b.LR(25); math.Abs(got-top/2) > 1e-12 {
			t.Errorf("%s: lr in the middle of the warm-up is %v, want %v", name, got, top/2)
		}
	}
}

func TestTokenUnitsAreStepUnits(t *testing.T) {
	steps := Bound{Curve: Cosine{Warmup: Warmup{Span: Span{Count: 10}}, AlphaF: 0.1}, Peak: 1, End: 100}
	tokens := Bound{Curve: Cosine{Warmup: Warmup{Span: Span{Count: 40960}}, AlphaF: 0.1}, Peak: 1, End: 409600, PerStep: 4096}
	for step := int64(1); step <= 120; step++ {
		if a, b := steps.LR(step), tokens.LR(step); math.Abs(a-b) > 1e-15 {
			t.Fatalf("step %d: %v in steps, %v in tokens", step, a, b)
		}
	}
}

func TestSequentialIsContinuous(t *testing.T) {
	c := Sequential{
		Curves: []Curve{Linear{Warmup: Warmup{Span: Span{Count: 10}}, AlphaF: 0.5}, Cosine{AlphaF: 0.1}, Constant{}},
		Ends:   []int64{100, 200},
	}
	if got := c.At(1, 100, 1000); got != 0.5 {
		t.Errorf("the first part ends at %v, want 0.5", got)
	}
	if got := c.At(1, 101, 1000); !(got <= 0.5 && got > 0.499) {
		t.Errorf("the second part begins at %v", got)
	}
	if a, b := c.At(1, 300, 1000), c.At(1, 900, 1000); math.Abs(a-0.05) > 1e-15 || a != b {
		t.Errorf("the last part has %v and %v, want 0.05", a, b)
	}
}

func TestCurveNamesAndErrors(t *testing.T) {
	for name, want := range map[string]Curve{
		"cosine_with_warmup": Cosine{AlphaF: 0.1}, "CosWithWarmup": Cosine{AlphaF: 0.1},
		"inverse_sqrt_with_warmup": InvSqrt{AlphaF: 0.1}, "linear_with_warmup": Linear{AlphaF: 0.1}, "constant": Constant{},
	} {
		got, err := NewCurve(name, CurveOptions{})
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if _, err := NewCurve("cosinus", CurveOptions{}); err == nil || !strings.Contains(err.Error(), "half_cosine") {
		t.Errorf("an unknown name gave %v; the error should list the names", err)
	}
	if _, err := NewCurve("wsds", CurveOptions{}); err == nil {
		t.Error("wsds without periods was accepted")
	}
	if _, err := NewCurve("cosine", CurveOptions{Warmup: -1}); err == nil {
		t.Error("a negative warm-up was accepted")
	}
}

func ExampleNewCurve() {
	c, err := NewCurve("cosine", CurveOptions{Warmup: 100})
	if err != nil {
		fmt.Println(err)
		return
	}
	sched := Bound{Curve: c, Peak: 4e-4, End: 1000}
	for _, step := range []int64{1, 100, 500, 1000} {
		fmt.Printf("step %4d: %.6f\n", step, sched.LR(step))
	}
	// Output:
	// step    1: 0.000004
	// step  100: 0.000400
	// step  500: 0.000251
	// step 1000: 0.000040
}

func BenchmarkAdamW(b *testing.B) {
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			eng := gemm.New(threads)
			defer eng.Close()
			const n = 1 << 22
			p := []param.Param[float32]{{Name: "w", Shape: []int{n}, Value: make([]float32, n), Grad: make([]float32, n)}}
			regradTiny(p)
			opt := NewAdamW(p, AdamWOptions{WeightDecay: 0.1, Engine: eng})
			b.ReportAllocs()
			b.SetBytes(n * 4 * 7) // reads p, g, m, v and writes p, m, v
			for b.Loop() {
				if err := opt.Step(1, 1e-3); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkGlobalNorm(b *testing.B) {
	eng := gemm.New(1)
	defer eng.Close()
	const n = 1 << 22
	p := []param.Param[float32]{{Name: "w", Shape: []int{n}, Value: make([]float32, n), Grad: make([]float32, n)}}
	c := NewClipper(p, ClipOptions{Engine: eng})
	b.ReportAllocs()
	b.SetBytes(n * 4)
	for b.Loop() {
		_ = c.Norm()
	}
}
