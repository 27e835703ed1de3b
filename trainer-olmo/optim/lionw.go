package optim

import (
	"errors"
	"fmt"
	"math"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// LionWOptions configure [LionW].
type LionWOptions struct {
	// Betas are the interpolation of the update and the decay of the moment,
	// each in [0, 1). Default 0.9, 0.99 when both are zero.
	Betas [2]float64
	// WeightDecay is multiplied by the learning rate. Default 0.
	WeightDecay float64
	// Decay excludes parameters from weight decay. Default: none excluded.
	Decay DecayRule
	// Engine supplies the workers; nil means the calling goroutine.
	Engine *gemm.Engine
}

// Validate reports all faults together.
func (o LionWOptions) Validate() error {
	errs := []error{o.Decay.Validate()}
	for i, b := range o.Betas {
		if !(b >= 0 && b < 1) {
			errs = append(errs, fmt.Errorf("optim: beta%d is %v, allowed is [0, 1)", i+1, b))
		}
	}
	if !(o.WeightDecay >= 0) || math.IsInf(o.WeightDecay, 0) {
		errs = append(errs, fmt.Errorf("optim: weight decay is %v, allowed are finite values >= 0", o.WeightDecay))
	}
	return errors.Join(errs...)
}

// LionW is Lion with decoupled weight decay as in OLMo's first trainer:
//
//	p = p * (1 - lr*wd)
//	p = p - lr * sign(b1*m + (1-b1)*g)
//	m = b2*m + (1-b2)*g
//
// It implements [param.Optimizer]. One goroutine.
type LionW[T gemm.Float] struct {
	opts   LionWOptions
	params []param.Param[T]
	m      [][]T
	decay  []float64
	count  []int64
	chunks []chunk
	lr     float64
}

// NewLionW allocates the moment, once the parameters' size. It panics on options
// that Validate refuses.
func NewLionW[T gemm.Float](params []param.Param[T], opts LionWOptions) *LionW[T] {
	if opts.Validate() != nil {
		panic("optim: bad LionW options")
	}
	if opts.Betas == [2]float64{} {
		opts.Betas = [2]float64{0.9, 0.99}
	}
	return &LionW[T]{
		opts: opts, params: params,
		m:      split(params, gemm.OnHugePages(make([]T, total(params)))),
		decay:  decays(params, opts.Decay, opts.WeightDecay),
		count:  make([]int64, 1),
		chunks: chunks(params),
	}
}

// Step applies one update at learning rate lr.
func (l *LionW[T]) Step(_ int64, lr float64) error {
	l.count[0]++
	l.lr = lr
	run(l.opts.Engine, len(l.chunks), l)
	return nil
}

// Do updates one chunk; it is the engine's view of Step and not for callers.
func (l *LionW[T]) Do(c, _ int) {
	k := l.chunks[c]
	p, g, m := l.params[k.index].Value[k.lo:k.hi], l.params[k.index].Grad[k.lo:k.hi], l.m[k.index][k.lo:k.hi]
	decay, lr := T(1-l.lr*l.decay[k.index]), T(l.lr)
	b1, b2 := T(l.opts.Betas[0]), T(l.opts.Betas[1])
	for i, x := range g {
		u := b1*m[i] + (1-b1)*x
		p[i] = p[i]*decay - lr*sign(u)
		m[i] = b2*m[i] + (1-b2)*x
	}
}

// sign is -1, 0 or 1; the sign of NaN is NaN.
func sign[T gemm.Float](x T) T {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return x
}

// Sections lists the counter, then the moment of every parameter.
func (l *LionW[T]) Sections() []param.Section {
	return moments("lionw", l.count, l.params, []string{"exp_avg"}, l.m)
}
