package optim

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// goldenFiles runs f on every file of a family: those bundled in
// testdata/golden, or those of the folder that env names instead.
func goldenFiles(t *testing.T, env, family string, f func(t *testing.T, raw []byte)) {
	t.Helper()
	dir := "testdata/golden"
	if d := os.Getenv(env); d != "" {
		dir = d
	}
	all, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(all) == 0 {
		t.Fatalf("%s: no golden file in %q (%v)", env, dir, err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, family+".json"))
	if len(files) == 0 {
		t.Skipf("%s: %q has no file of the family %s", env, dir, family)
	}
	slices.Sort(files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			f(t, raw)
		})
	}
}

func decode[V any](t *testing.T, raw []byte) V {
	t.Helper()
	var v V
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// tensor is a nested list of numbers, flattened.
type tensor struct {
	Shape []int
	Data  []float64
}

func (x *tensor) UnmarshalJSON(raw []byte) error {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	for w := v; ; {
		list, ok := w.([]any)
		if !ok || len(list) == 0 {
			break
		}
		x.Shape, w = append(x.Shape, len(list)), list[0]
	}
	return x.flatten(v)
}

func (x *tensor) flatten(v any) error {
	switch v := v.(type) {
	case float64:
		x.Data = append(x.Data, v)
	case []any:
		for _, e := range v {
			if err := x.flatten(e); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("unexpected %T in a tensor", v)
	}
	return nil
}

type tensors map[string]tensor

// params returns the tensors as parameters, sorted by name.
func params[T gemm.Float](x tensors) []param.Param[T] {
	var ps []param.Param[T]
	for name, v := range x {
		p := param.Param[T]{Name: name, Shape: v.Shape, Value: make([]T, len(v.Data)), Grad: make([]T, len(v.Data))}
		fill(p.Value, v.Data)
		ps = append(ps, p)
	}
	slices.SortFunc(ps, func(a, b param.Param[T]) int { return strings.Compare(a.Name, b.Name) })
	return ps
}

func fill[T gemm.Float](dst []T, src []float64) {
	for i, v := range src {
		dst[i] = T(v)
	}
}

func setGrads[T gemm.Float](ps []param.Param[T], x tensors) {
	for _, p := range ps {
		fill(p.Grad, x[p.Name].Data)
	}
}

// compare fails when got differs from want by more than tol anywhere.
func compare[T gemm.Float](t *testing.T, what string, got []T, want []float64, tol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	worst, at := 0.0, 0
	for i, w := range want {
		if d := math.Abs(float64(got[i]) - w); !(d <= worst) {
			worst, at = d, i
		}
	}
	if !(worst <= tol) {
		t.Errorf("%s[%d] = %.17g, want %.17g (off by %.3g, allowed %.3g)", what, at, got[at], want[at], worst, tol)
	}
}

func compareAll[T gemm.Float](t *testing.T, what string, ps []param.Param[T], want tensors, tol float64) {
	t.Helper()
	for _, p := range ps {
		compare(t, what+" "+p.Name, p.Value, want[p.Name].Data, tol)
	}
}

func names(x tensors) []string {
	var n []string
	for name := range x {
		n = append(n, name)
	}
	slices.Sort(n)
	return n
}

type adamwFile struct {
	Tolerance struct {
		F64 float64 `json:"float64_max_abs"`
		F32 float64 `json:"float32_max_abs"`
	} `json:"tolerance"`
	Cases []adamwCase `json:"cases"`
}

type adamwCase struct {
	Name     string `json:"name"`
	Shape    []int  `json:"shape"`
	Settings struct {
		LR          float64    `json:"lr"`
		Betas       [2]float64 `json:"betas"`
		Eps         float64    `json:"eps"`
		WeightDecay float64    `json:"weight_decay"`
		AMSGrad     bool       `json:"amsgrad"`
	} `json:"settings"`
	Param0 []float64   `json:"param0"`
	Grads  [][]float64 `json:"grads"`
	Params [][]float64 `json:"params_after_step"`
}

func TestGoldenAdamW(t *testing.T) {
	goldenFiles(t, "ASTERIA_GOLDEN_OPTIM", "adamw*", func(t *testing.T, raw []byte) {
		f := decode[adamwFile](t, raw)
		for _, c := range f.Cases {
			t.Run(c.Name, func(t *testing.T) {
				if c.Settings.AMSGrad {
					t.Skip("amsgrad is not offered")
				}
				runAdamWCase[float64](t, c, f.Tolerance.F64)
				runAdamWCase[float32](t, c, f.Tolerance.F32)
			})
		}
	})
}

func runAdamWCase[T gemm.Float](t *testing.T, c adamwCase, tol float64) {
	t.Helper()
	s := c.Settings
	p := params[T](tensors{"w": {Shape: c.Shape, Data: c.Param0}})
	opt := NewAdamW(p, AdamWOptions{Betas: s.Betas, Eps: s.Eps, WeightDecay: s.WeightDecay})
	for k, g := range c.Grads {
		fill(p[0].Grad, g)
		if err := opt.Step(int64(k+1), s.LR); err != nil {
			t.Fatal(err)
		}
		compare(t, fmt.Sprintf("%T step %d", T(0), k+1), p[0].Value, c.Params[k], tol)
	}
}

type optimFile struct {
	Tolerance struct {
		F64 float64 `json:"float64_abs"`
		F32 float64 `json:"float32_abs"`
	} `json:"tolerance"`
	AdamW struct {
		Betas       [2]float64         `json:"betas"`
		Eps         float64            `json:"eps"`
		WeightDecay map[string]float64 `json:"weight_decay"`
		Init        tensors            `json:"init"`
		Grads       []tensors          `json:"grads"`
		Steps       []struct {
			Step     int64   `json:"step"`
			LR       float64 `json:"lr"`
			Params   tensors `json:"params"`
			ExpAvg   tensors `json:"exp_avg"`
			ExpAvgSq tensors `json:"exp_avg_sq"`
		} `json:"steps"`
	} `json:"adamw"`
	SkipStep []struct {
		LR     float64 `json:"lr"`
		Window int     `json:"rolling_interval_length"`
		Sigma  float64 `json:"sigma_factor"`
		Bugfix bool    `json:"step_increment_bugfix"`
		Steps  []struct {
			Step     int64   `json:"step"`
			Loss     float64 `json:"loss"`
			GradNorm float64 `json:"grad_norm"`
			Factor   float64 `json:"step_factor"`
			State    float64 `json:"optimizer_step_state"`
			Params   tensors `json:"params"`
		} `json:"steps"`
	} `json:"skip_step_adamw"`
	LionW *struct {
		LR          float64    `json:"lr"`
		Betas       [2]float64 `json:"betas"`
		WeightDecay float64    `json:"weight_decay"`
		Init        tensors    `json:"init"`
		Params      []tensors  `json:"params_after_each_step"`
	} `json:"lionw_legacy"`
	GradClip *struct {
		Grads []tensor `json:"grads"`
		Cases []struct {
			MaxNorm   float64  `json:"max_norm"`
			TotalNorm float64  `json:"total_norm"`
			Coef      float64  `json:"coef"`
			Clipped   []tensor `json:"clipped"`
		} `json:"cases"`
	} `json:"grad_clip"`
}

// options turns the file's decay per tensor, of which all but one value must be
// zero, into ours.
func (f *optimFile) options(t *testing.T) AdamWOptions {
	t.Helper()
	o := AdamWOptions{Betas: f.AdamW.Betas, Eps: f.AdamW.Eps}
	for name, wd := range f.AdamW.WeightDecay {
		switch {
		case wd == 0:
			o.Decay.NoDecayNames = append(o.Decay.NoDecayNames, name)
		case o.WeightDecay != 0 && o.WeightDecay != wd:
			t.Fatalf("two weight decays, %v and %v", wd, o.WeightDecay)
		default:
			o.WeightDecay = wd
		}
	}
	return o
}

func TestGoldenOptim(t *testing.T) {
	goldenFiles(t, "ASTERIA_GOLDEN_OLMO", "optim*", func(t *testing.T, raw []byte) {
		f := decode[optimFile](t, raw)
		t.Run("float64", func(t *testing.T) { runOptimFile[float64](t, &f, f.Tolerance.F64) })
		t.Run("float32", func(t *testing.T) { runOptimFile[float32](t, &f, f.Tolerance.F32) })
	})
}

func runOptimFile[T gemm.Float](t *testing.T, f *optimFile, tol float64) {
	t.Run("adamw", func(t *testing.T) { runOptimAdamW[T](t, f, tol) })
	t.Run("skip_step", func(t *testing.T) { runOptimSkip[T](t, f, tol) })
	t.Run("lionw", func(t *testing.T) { runOptimLionW[T](t, f, tol) })
	t.Run("grad_clip", func(t *testing.T) { runOptimClip[T](t, f, tol) })
}

func runOptimAdamW[T gemm.Float](t *testing.T, f *optimFile, tol float64) {
	p := params[T](f.AdamW.Init)
	opt := NewAdamW(p, f.options(t))
	for k, s := range f.AdamW.Steps {
		setGrads(p, f.AdamW.Grads[k])
		if err := opt.Step(s.Step, s.LR); err != nil {
			t.Fatal(err)
		}
		compareAll(t, fmt.Sprintf("step %d", s.Step), p, s.Params, tol)
		for i, name := range names(f.AdamW.Init) {
			compare(t, "exp_avg "+name, opt.m[i], s.ExpAvg[name].Data, tol)
			compare(t, "exp_avg_sq "+name, opt.v[i], s.ExpAvgSq[name].Data, tol)
		}
	}
}

func runOptimSkip[T gemm.Float](t *testing.T, f *optimFile, tol float64) {
	for _, c := range f.SkipStep {
		o := f.options(t)
		o.Float32Scalars, o.FrozenStep = true, !c.Bugfix
		p := params[T](f.AdamW.Init)
		opt := NewSkipStepAdamW(p, o, SkipOptions{Window: c.Window, Sigma: c.Sigma})
		for k, s := range c.Steps {
			setGrads(p, f.AdamW.Grads[k])
			took, err := opt.StepIf(s.Step, c.LR, s.Loss, s.GradNorm)
			if err != nil {
				t.Fatal(err)
			}
			if took != (s.Factor == 1) || opt.Updates() != int64(s.State) {
				t.Fatalf("bugfix %v step %d: took %v with counter %d, want factor %v with %v", c.Bugfix, s.Step, took, opt.Updates(), s.Factor, s.State)
			}
			compareAll(t, fmt.Sprintf("bugfix %v step %d", c.Bugfix, s.Step), p, s.Params, tol)
		}
	}
}

func runOptimLionW[T gemm.Float](t *testing.T, f *optimFile, tol float64) {
	if f.LionW == nil {
		t.Skip("the file has no lionw_legacy")
	}
	p := params[T](f.LionW.Init)
	opt := NewLionW(p, LionWOptions{Betas: f.LionW.Betas, WeightDecay: f.LionW.WeightDecay})
	for k, want := range f.LionW.Params {
		setGrads(p, f.AdamW.Grads[k])
		if err := opt.Step(int64(k+1), f.LionW.LR); err != nil {
			t.Fatal(err)
		}
		compareAll(t, fmt.Sprintf("step %d", k+1), p, want, tol)
	}
}

func runOptimClip[T gemm.Float](t *testing.T, f *optimFile, tol float64) {
	if f.GradClip == nil {
		t.Skip("the file has no grad_clip")
	}
	for _, c := range f.GradClip.Cases {
		x := tensors{}
		for i, g := range f.GradClip.Grads {
			x[fmt.Sprintf("p%03d", i)] = g
		}
		p := params[T](x)
		setGrads(p, x)
		norm, coef := Clip(p, c.MaxNorm)
		compare(t, "norm", []float64{norm}, []float64{c.TotalNorm}, tol)
		compare(t, "coef", []float64{coef}, []float64{c.Coef}, tol)
		for i := range p {
			compare(t, p[i].Name, p[i].Grad, c.Clipped[i].Data, tol)
		}
	}
}

type lrFile struct {
	Tolerance struct {
		F64 float64 `json:"float64_abs"`
	} `json:"tolerance"`
	Schedules []struct {
		Framework string          `json:"framework"`
		Class     string          `json:"cls"`
		Args      json.RawMessage `json:"args"`
		Peak      float64         `json:"initial_lr"`
		TMax      float64         `json:"t_max"`
		Values    [][2]float64    `json:"values"`
	} `json:"schedules"`
	ClipWarmup *struct {
		MaxNorm float64      `json:"max_grad_norm"`
		Steps   int64        `json:"steps"`
		Factor  float64      `json:"factor"`
		Values  [][2]float64 `json:"values"`
	} `json:"grad_clip_warmup"`
}

func TestGoldenLR(t *testing.T) {
	goldenFiles(t, "ASTERIA_GOLDEN_OLMO", "lr_*", func(t *testing.T, raw []byte) {
		f := decode[lrFile](t, raw)
		for i, s := range f.Schedules {
			t.Run(fmt.Sprintf("%d %s %s", i, s.Framework, s.Class), func(t *testing.T) {
				c := goldenCurve(t, s.Class, s.Args, s.Framework == "olmo-legacy")
				for _, v := range s.Values {
					got := c.At(s.Peak, int64(v[0]), int64(s.TMax))
					compare(t, fmt.Sprintf("lr at %v", v[0]), []float64{got}, v[1:], f.Tolerance.F64)
				}
			})
		}
		if w := f.ClipWarmup; w != nil {
			o := ClipOptions{MaxNorm: w.MaxNorm, WarmupSteps: w.Steps, WarmupFactor: w.Factor}
			for _, v := range w.Values {
				compare(t, fmt.Sprintf("clip bound at %v", v[0]), []float64{o.Bound(o.MaxNorm, int64(v[0]))}, v[1:], 0)
			}
		}
	})
}

// goldenCurve builds the curve that the reference calls class with args.
func goldenCurve(t *testing.T, class string, args json.RawMessage, legacy bool) Curve {
	t.Helper()
	a := decode[struct {
		CurveOptions
		WarmupSteps   *int64          `json:"warmup_steps"`
		DecaySteps    *int64          `json:"decay_steps"`
		Start         int64           `json:"warmup_start"`
		Stop          int64           `json:"warmup_end"`
		Inner         json.RawMessage `json:"inner"`
		Schedulers    []goldenNested  `json:"schedulers"`
		SchedulersMax []int64         `json:"schedulers_max"`
		Sched1        *goldenNested   `json:"sched1"`
		Sched2        *goldenNested   `json:"sched2"`
	}](t, args)
	a.Legacy = legacy
	if a.WarmupSteps != nil {
		a.Warmup = *a.WarmupSteps
	}
	if a.DecaySteps != nil {
		a.Decay = a.DecaySteps
	}
	class, _, _ = strings.Cut(class, " ") // a remark follows
	if outer, inner, ok := strings.Cut(class, "("); ok {
		if !strings.HasPrefix(outer, "BoltOnWarmup") {
			t.Fatalf("unknown wrapper %q", outer)
		}
		return Rewarm{Inner: goldenCurve(t, strings.TrimSuffix(inner, ")"), a.Inner, legacy), Start: a.Start, Stop: a.Stop}
	}
	switch {
	case class == "SequentialScheduler":
		s := Sequential{Ends: a.SchedulersMax}
		for _, n := range a.Schedulers {
			s.Curves = append(s.Curves, n.curve(t, legacy))
		}
		return s
	case class == "MaxScheduler" && a.Sched1 != nil && a.Sched2 != nil:
		return Larger{A: a.Sched1.curve(t, legacy), B: a.Sched2.curve(t, legacy)}
	}
	c, err := NewCurve(class, a.CurveOptions)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

type goldenNested struct {
	Class string          `json:"cls"`
	Args  json.RawMessage `json:"args"`
}

func (n goldenNested) curve(t *testing.T, legacy bool) Curve {
	t.Helper()
	if len(n.Args) == 0 {
		n.Args = json.RawMessage("{}")
	}
	return goldenCurve(t, n.Class, n.Args, legacy)
}
