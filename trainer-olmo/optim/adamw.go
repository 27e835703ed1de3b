package optim

import (
	"errors"
	"fmt"
	"math"
	"path"
	"slices"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/gemm/vec"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// DecayRule says which parameters weight decay leaves alone. The zero value
// decays all of them, as OLMo-core does by default.
type DecayRule struct {
	// NoDecayRoles are roles without weight decay; OLMo excludes
	// [param.Embedding], its older trainer also [param.Norm].
	NoDecayRoles []param.Role
	// NoDecayNames are patterns of [path.Match] on parameter names without
	// weight decay, such as "*.bias" or "model.embed_tokens.weight".
	NoDecayNames []string
}

// Validate reports every pattern that is malformed.
func (r DecayRule) Validate() error {
	var errs []error
	for _, pat := range r.NoDecayNames {
		if _, err := path.Match(pat, ""); err != nil {
			errs = append(errs, fmt.Errorf("optim: no-decay pattern %q: %w", pat, err))
		}
	}
	return errors.Join(errs...)
}

// Decays reports whether weight decay applies to a parameter.
func (r DecayRule) Decays(name string, role param.Role) bool {
	if slices.Contains(r.NoDecayRoles, role) {
		return false
	}
	for _, pat := range r.NoDecayNames {
		if ok, err := path.Match(pat, name); ok && err == nil {
			return false
		}
	}
	return true
}

// AdamWOptions configure [AdamW]. The zero value is AdamW without weight decay.
type AdamWOptions struct {
	// Betas are the decays of both moments, each in [0, 1). Default 0.9, 0.95
	// when both are zero.
	Betas [2]float64
	// Eps is added to the root of the second moment. Default 1e-8.
	Eps float64
	// WeightDecay is multiplied by the learning rate and applied before the
	// update. Default 0.
	WeightDecay float64
	// Decay excludes parameters from weight decay. Default: none excluded.
	Decay DecayRule
	// Engine supplies the workers; nil means the calling goroutine.
	Engine *gemm.Engine
	// Lent keeps no moments: the caller lends their memory for the time of each
	// update, with [AdamW.Begin] and [AdamW.StepParam].
	Lent bool
	// Prefix begins the name of every section of state. Default "adamw".
	Prefix string
	// Float32Scalars rounds scalars to float32 also in float64 mode, where the
	// reference SkipStepAdamW of OLMo-core has float32 tensors: the bias
	// corrections always (its counter is one), and from the step on at which the
	// skip rule judges also the decay factor and 1-beta (its step factor is then
	// a boolean, which torch multiplies in float32). The difference is 1e-7
	// relative; in float32 mode the option changes nothing of that size.
	Float32Scalars bool
	// FrozenStep leaves the step counter at zero, so that every update has the
	// bias corrections of the first one: SkipStepAdamW as it was when OLMo-2 32B
	// was trained (an effective learning rate about 2.2 times as high).
	FrozenStep bool
}

// Validate reports all faults together.
func (o AdamWOptions) Validate() error {
	errs := []error{o.Decay.Validate()}
	for i, b := range o.Betas {
		if !(b >= 0 && b < 1) {
			errs = append(errs, fmt.Errorf("optim: beta%d is %v, allowed is [0, 1)", i+1, b))
		}
	}
	if !(o.Eps >= 0) || math.IsInf(o.Eps, 0) {
		errs = append(errs, fmt.Errorf("optim: eps is %v, allowed are finite values >= 0", o.Eps))
	}
	if !(o.WeightDecay >= 0) || math.IsInf(o.WeightDecay, 0) {
		errs = append(errs, fmt.Errorf("optim: weight decay is %v, allowed are finite values >= 0", o.WeightDecay))
	}
	return errors.Join(errs...)
}

func (o AdamWOptions) withDefaults() AdamWOptions {
	if o.Betas == [2]float64{} {
		o.Betas = [2]float64{0.9, 0.95}
	}
	if o.Eps == 0 {
		o.Eps = 1e-8
	}
	if o.Prefix == "" {
		o.Prefix = "adamw"
	}
	return o
}

// AdamW is Adam with decoupled weight decay in the order of torch.optim.AdamW:
// with t counting the updates from one,
//
//	p = p * (1 - lr*wd)
//	m = b1*m + (1-b1)*g,  v = b2*v + (1-b2)*g*g
//	p = p - lr/(1-b1^t) * m / (sqrt(v)/sqrt(1-b2^t) + eps)
//
// It implements [param.Optimizer]. One goroutine.
type AdamW[T gemm.Float] struct {
	opts   AdamWOptions
	params []param.Param[T]
	m, v   [][]T
	decay  []float64 // weight decay of each parameter
	count  []int64   // [0] is the number of updates so far
	chunks []chunk
	first  []int // of each parameter, its first chunk; then their number
	base   int   // chunk that a run's first one is
	step   adamwStep
	judged bool // the skip rule is active; only with Float32Scalars
}

// adamwStep holds the scalars of the update that runs.
type adamwStep struct {
	lr, beta1, beta2, scale, vscale float64
	gscale                          float64 // factor of the gradients
	rounded                         bool    // decay factor and 1-beta in float32
}

// NewAdamW allocates both moments, twice the parameters' size, unless they are
// lent. It panics on options that Validate refuses.
func NewAdamW[T gemm.Float](params []param.Param[T], opts AdamWOptions) *AdamW[T] {
	if opts.Validate() != nil {
		panic("optim: bad AdamW options")
	}
	a := &AdamW[T]{opts: opts.withDefaults(), params: params, count: make([]int64, 1)}
	if n := total(params); a.opts.Lent {
		a.m, a.v = make([][]T, len(params)), make([][]T, len(params))
	} else {
		a.m, a.v = split(params, gemm.OnHugePages(make([]T, n))), split(params, gemm.OnHugePages(make([]T, n)))
	}
	a.decay = decays(params, a.opts.Decay, a.opts.WeightDecay)
	a.chunks = chunks(params)
	a.first = firstChunks(a.chunks, len(params))
	return a
}

// decays is the weight decay of each parameter under the rule.
func decays[T gemm.Float](params []param.Param[T], rule DecayRule, wd float64) []float64 {
	d := make([]float64, len(params))
	for i, p := range params {
		if rule.Decays(p.Name, p.Role) {
			d[i] = wd
		}
	}
	return d
}

// Step applies one update at learning rate lr. The bias corrections follow the
// count of updates that were applied, not step: a skipped step does not count.
func (a *AdamW[T]) Step(step int64, lr float64) error { return a.StepScaled(step, lr, 1) }

// StepScaled is Step with every gradient multiplied by scale as it is read; the
// gradients themselves stay as they are. The bits are those of gradients that
// were scaled before.
func (a *AdamW[T]) StepScaled(_ int64, lr, scale float64) error {
	if a.opts.Lent {
		panic("optim: Step without moments")
	}
	a.Begin(lr, scale)
	a.base = 0
	run(a.opts.Engine, len(a.chunks), a)
	return nil
}

// Begin counts an update whose parameters follow one by one, in any order, with
// [AdamW.StepParam]. The bits are those of [AdamW.StepScaled].
func (a *AdamW[T]) Begin(lr, scale float64) {
	if !a.opts.FrozenStep {
		a.count[0]++
	}
	t := float64(max(1, a.count[0]))
	b1, b2 := a.opts.Betas[0], a.opts.Betas[1]
	a.step = adamwStep{
		lr: lr, beta1: b1, beta2: b2, gscale: scale,
		scale:  lr / (1 - math.Pow(b1, t)),
		vscale: 1 / math.Sqrt(1-math.Pow(b2, t)),

		rounded: a.judged,
	}
	if a.opts.Float32Scalars {
		a.step.round32(t)
	}
}

// StepParam applies the update that Begin counted to parameter i, on its moments m
// and v, which have its length. It keeps neither and allocates nothing.
func (a *AdamW[T]) StepParam(i int, m, v []T) {
	a.m[i], a.v[i], a.base = m, v, a.first[i]
	run(a.opts.Engine, a.first[i+1]-a.base, a)
	a.m[i], a.v[i] = nil, nil
}

// round32 replaces the bias corrections by those of a float32 counter.
func (s *adamwStep) round32(t float64) {
	correction := func(beta float64) float32 {
		return 1 - float32(math.Pow(float64(float32(beta)), t))
	}
	s.scale = float64(float32(s.lr / float64(correction(s.beta1))))
	s.vscale = 1 / float64(float32(math.Sqrt(float64(correction(s.beta2)))))
}

// Do updates one chunk; it is the engine's view of Step and not for callers.
func (a *AdamW[T]) Do(c, _ int) {
	k, s := a.chunks[a.base+c], &a.step
	p, g := a.params[k.index].Value[k.lo:k.hi], a.params[k.index].Grad[k.lo:k.hi]
	m, v := a.m[k.index][k.lo:k.hi], a.v[k.index][k.lo:k.hi]
	wd := a.decay[k.index]
	if s.rounded {
		adamw32(p, g, m, v, s, wd, a.opts.Eps)
		return
	}
	vec.AdamW(p, g, m, v, T(s.gscale), T(s.beta1), T(s.beta2), T(1-s.lr*wd), T(s.scale), T(s.vscale), T(a.opts.Eps))
}

// adamw32 is the update with float32 scalars, term by term as OLMo-core's
// SkipStepAdamW has it: the factor of the old second moment is rounded, that of
// the new one is not.
func adamw32[T gemm.Float](p, g, m, v []T, s *adamwStep, wd, eps float64) {
	decay := T(1 - float32(s.lr*wd))
	w := T(float32(1 - s.beta1))
	keep, take := T(1-float32(1-s.beta2)), T(1-s.beta2)
	gscale := T(s.gscale)
	for i, x := range g {
		x *= gscale
		p[i] *= decay
		m[i] += w * (x - m[i])
		v[i] = v[i]*keep + take*(x*x)
		den := T(math.Sqrt(float64(v[i])))*T(s.vscale) + T(eps)
		p[i] -= T(s.scale) * (m[i] / den)
	}
}

// Len is the number of elements of parameter i.
func (a *AdamW[T]) Len(i int) int { return len(a.params[i].Value) }

// Updates reports how many updates were applied.
func (a *AdamW[T]) Updates() int64 { return a.count[0] }

// Counter is the section of the number of updates, all that is left of Sections
// where the moments are lent.
func (a *AdamW[T]) Counter() param.Section {
	return param.Section{Name: a.opts.Prefix + "/updates", I64: a.count}
}

// MomentNames are the names of parameter i's sections of state, in the order of
// Sections and of StepParam's arguments.
func (a *AdamW[T]) MomentNames(i int) [2]string {
	prefix := a.opts.Prefix + "/" + a.params[i].Name
	return [2]string{prefix + "/exp_avg", prefix + "/exp_avg_sq"}
}

// Sections lists the counter, then the first and second moment of every
// parameter, in the order of the parameters; the counter alone where the moments
// are lent.
func (a *AdamW[T]) Sections() []param.Section {
	if a.opts.Lent {
		return []param.Section{a.Counter()}
	}
	return moments(a.opts.Prefix, a.count, a.params, []string{"exp_avg", "exp_avg_sq"}, a.m, a.v)
}

// moments lists count as "prefix/updates" and states[k][i] as
// "prefix/<parameter>/<names[k]>".
func moments[T gemm.Float](prefix string, count []int64, params []param.Param[T], names []string, states ...[][]T) []param.Section {
	s := []param.Section{{Name: prefix + "/updates", I64: count}}
	for i, p := range params {
		for k, name := range names {
			s = append(s, section(prefix+"/"+p.Name+"/"+name, states[k][i]))
		}
	}
	return s
}

// Bytes is the size of the state that [NewAdamW] allocates for n elements of
// size bytes each.
func (AdamWOptions) Bytes(n, size int64) int64 { return 2 * n * size }
