package optim

import (
	"errors"
	"fmt"
	"math"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// SkipOptions configure [SkipRule].
type SkipOptions struct {
	// Window is the number of earlier steps that form the statistics. Default
	// 128.
	Window int
	// Sigma is the number of standard deviations above the mean that is still
	// accepted. Default 6.
	Sigma float64
}

// Validate reports all faults together.
func (o SkipOptions) Validate() error {
	var errs []error
	if o.Window < 0 {
		errs = append(errs, fmt.Errorf("optim: skip-step window is %d, allowed is >= 0", o.Window))
	}
	if !(o.Sigma >= 0) {
		errs = append(errs, fmt.Errorf("optim: skip-step sigma is %v, allowed is >= 0", o.Sigma))
	}
	return errors.Join(errs...)
}

// SkipRule decides whether a step is taken, from the history of losses and
// gradient norms, as OLMo-core's skip-step optimizers do: a step is refused when
// its loss or its norm lies more than Sigma unbiased standard deviations above
// the mean of the Window steps before it. Until max(2, Window/2) losses are
// known every step is accepted. With a single earlier step the deviation is
// undefined and the step is refused. It never allocates.
//
// Unlike OLMo-core's, the history is part of the state: a resumed run decides as
// an uninterrupted one. One goroutine.
type SkipRule struct {
	opts SkipOptions
	// history holds the losses, then the norms, of the last Window+1 steps,
	// newest last; count[0] is the number of steps held.
	history []float64
	count   []int64
}

// NewSkipRule returns a rule with an empty history. It panics on options that
// Validate refuses.
func NewSkipRule(opts SkipOptions) *SkipRule {
	if opts.Validate() != nil {
		panic("optim: bad skip-step options")
	}
	if opts.Window == 0 {
		opts.Window = 128
	}
	if opts.Sigma == 0 {
		opts.Sigma = 6
	}
	return &SkipRule{opts: opts, history: make([]float64, 2*(opts.Window+1)), count: make([]int64, 1)}
}

// Accept adds a step to the history, refused ones too, and reports whether it
// should be taken.
func (r *SkipRule) Accept(loss, gradNorm float64) bool {
	n := r.push(loss, gradNorm)
	if !r.active() {
		return true
	}
	half := len(r.history) / 2
	return r.within(r.history[:n]) && r.within(r.history[half:half+n])
}

// active reports whether enough steps are known to judge the newest one.
func (r *SkipRule) active() bool { return r.count[0] >= int64(max(2, r.opts.Window/2)) }

// push appends to both histories and returns their length.
func (r *SkipRule) push(loss, gradNorm float64) int {
	half := len(r.history) / 2
	n := int(r.count[0])
	if n == half {
		copy(r.history[:half], r.history[1:half])
		copy(r.history[half:], r.history[half+1:])
		n--
	}
	r.history[n], r.history[half+n] = loss, gradNorm
	r.count[0] = int64(n + 1)
	return n + 1
}

// within reports whether the last value is at most Sigma deviations above the
// mean of those before it. Comparisons with NaN are false.
func (r *SkipRule) within(h []float64) bool {
	last := len(h) - 1
	mean, std := meanStd(h[:last])
	return h[last]-mean <= r.opts.Sigma*std
}

// meanStd returns the mean and the unbiased standard deviation.
func meanStd(x []float64) (mean, std float64) {
	for _, v := range x {
		mean += v
	}
	mean /= float64(len(x))
	for _, v := range x {
		std += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(std / float64(len(x)-1))
}

// Sections lists the history.
func (r *SkipRule) Sections() []param.Section {
	return []param.Section{
		{Name: "skip_step/count", I64: r.count},
		{Name: "skip_step/history", F64: r.history},
	}
}

// SkipStepAdamW is AdamW that leaves everything untouched in a step that its
// [SkipRule] refuses: parameters, moments, weight decay and step counter. One
// goroutine.
type SkipStepAdamW[T gemm.Float] struct {
	*AdamW[T]
	Rule *SkipRule
}

// NewSkipStepAdamW returns the pair. AdamWOptions.FrozenStep reproduces the
// counter that never moved, Float32Scalars the reference's rounding.
func NewSkipStepAdamW[T gemm.Float](params []param.Param[T], opts AdamWOptions, skip SkipOptions) *SkipStepAdamW[T] {
	return &SkipStepAdamW[T]{AdamW: NewAdamW(params, opts), Rule: NewSkipRule(skip)}
}

// StepIf applies one update unless the rule refuses the step's loss and gradient
// norm, and reports whether it did.
func (s *SkipStepAdamW[T]) StepIf(step int64, lr, loss, gradNorm float64) (bool, error) {
	if !s.Rule.Accept(loss, gradNorm) {
		return false, nil
	}
	s.judged = s.opts.Float32Scalars && s.Rule.active()
	return true, s.Step(step, lr)
}

// Sections lists the state of AdamW and of the rule.
func (s *SkipStepAdamW[T]) Sections() []param.Section {
	return append(s.AdamW.Sections(), s.Rule.Sections()...)
}
