package train

import (
	"fmt"
	"log/slog"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/asteria"
	"github.com/asteria-runtime/asteria/trainer-olmo/config"
	"github.com/asteria-runtime/asteria/trainer-olmo/optim"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// newOptimizer builds the optimizer that the configuration names; prepare adds to
// the options of a second-order one what the run has.
func newOptimizer[T gemm.Float](c *config.Config, params []param.Param[T], eng *gemm.Engine, prepare func(*asteria.Options) error, log *slog.Logger) (param.Optimizer, error) {
	o := &c.Optimizer
	switch o.Name {
	case "adamw":
		opts := optim.AdamWOptions{Betas: o.Betas, Eps: o.Eps, WeightDecay: o.WeightDecay, Decay: o.DecayRule(), Engine: eng}
		if err := opts.Validate(); err != nil {
			return nil, err
		}
		return optim.NewAdamW(params, opts), nil
	case "lionw":
		opts := optim.LionWOptions{Betas: o.Betas, WeightDecay: o.WeightDecay, Decay: o.DecayRule(), Engine: eng}
		if err := opts.Validate(); err != nil {
			return nil, err
		}
		return optim.NewLionW(params, opts), nil
	}
	return newSecondOrder(c, params, eng, prepare, log)
}

// clipOptions are the bounds of the gradient norm.
func clipOptions(c *config.Config, eng *gemm.Engine) optim.ClipOptions {
	return optim.ClipOptions{
		MaxNorm:      c.Train.MaxGradNorm,
		MaxNormRatio: c.Train.MaxGradNormRatio,
		AverageBeta:  max(c.Optimizer.Betas[0], c.Optimizer.Betas[1]),
		WarmupSteps:  int64(c.Scheduler.GradClipWarmupSteps),
		WarmupFactor: c.Scheduler.GradClipWarmup,
		Engine:       eng,
	}
}

// newSkipRule is nil unless the configuration asks for one.
func newSkipRule(c *config.Config) (*optim.SkipRule, error) {
	if !c.Train.SkipStep {
		return nil, nil
	}
	o := optim.SkipOptions{Window: c.Train.SkipStepWindow, Sigma: c.Train.SkipStepSigma}
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("train: %w", err)
	}
	return optim.NewSkipRule(o), nil
}
