package optim

import (
	"errors"
	"fmt"
	"math"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/gemm/vec"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// clipEps keeps the coefficient finite at norm zero; the value of
// torch.nn.utils.clip_grad_norm_.
const clipEps = 1e-6

// ClipOptions configure [Clipper]. The zero value measures and never clips.
type ClipOptions struct {
	// MaxNorm bounds the L2 norm over all gradients. Default 0: no bound.
	MaxNorm float64
	// MaxNormRatio bounds each parameter's gradient norm by this multiple of its
	// own moving average instead (OLMo's adaptive clipping); it wins over
	// MaxNorm. Default 0: off.
	MaxNormRatio float64
	// AverageBeta is the decay of those averages: the larger of the optimizer's
	// betas. Default 0.95. Only with MaxNormRatio.
	AverageBeta float64
	// WarmupSteps is the number of first steps in which both bounds are
	// multiplied by WarmupFactor. Default 0.
	WarmupSteps int64
	// WarmupFactor is that factor. Default 1.
	WarmupFactor float64
	// Engine supplies the workers; nil means the calling goroutine.
	Engine *gemm.Engine
}

// Validate reports all faults together.
func (o ClipOptions) Validate() error {
	var errs []error
	check := func(name string, v float64) {
		if !(v >= 0) || math.IsInf(v, 0) {
			errs = append(errs, fmt.Errorf("optim: %s is %v, allowed are finite values >= 0", name, v))
		}
	}
	check("max grad norm", o.MaxNorm)
	check("max grad norm ratio", o.MaxNormRatio)
	check("clip warm-up factor", o.WarmupFactor)
	if !(o.AverageBeta >= 0 && o.AverageBeta < 1) {
		errs = append(errs, fmt.Errorf("optim: average beta is %v, allowed is [0, 1)", o.AverageBeta))
	}
	if o.WarmupSteps < 0 {
		errs = append(errs, fmt.Errorf("optim: clip warm-up is %d steps, allowed is >= 0", o.WarmupSteps))
	}
	return errors.Join(errs...)
}

// Bound is a bound at a step (1-based): times WarmupFactor up to and including
// step WarmupSteps.
func (o ClipOptions) Bound(bound float64, step int64) float64 {
	if step <= o.WarmupSteps && o.WarmupSteps > 0 && o.WarmupFactor > 0 {
		return bound * o.WarmupFactor
	}
	return bound
}

// ClipCoef is the factor that brings a norm down to maxNorm:
// min(1, maxNorm/(norm+1e-6)).
func ClipCoef(norm, maxNorm float64) float64 {
	return min(1, maxNorm/(norm+clipEps))
}

// Clipper measures, scales and clears the gradients of a fixed list of
// parameters. It allocates nothing after construction. One goroutine.
type Clipper[T gemm.Float] struct {
	opts   ClipOptions
	params []param.Param[T]
	chunks []chunk
	sums   []float64 // sum of squares of each chunk
	norms  []float64 // L2 norm of each parameter's gradient, of the last Norm
	avg    []float64 // moving averages of norms; nil without MaxNormRatio
	coef   []T       // factor of each parameter in the scaling that runs
	job    clipJob
}

type clipJob uint8

const (
	jobSums clipJob = iota
	jobScale
	jobZero
)

// NewClipper returns a clipper. It panics on options that Validate refuses.
func NewClipper[T gemm.Float](params []param.Param[T], opts ClipOptions) *Clipper[T] {
	if opts.Validate() != nil {
		panic("optim: bad clip options")
	}
	if opts.AverageBeta == 0 {
		opts.AverageBeta = 0.95
	}
	c := &Clipper[T]{opts: opts, params: params, chunks: chunks(params)}
	c.sums = make([]float64, len(c.chunks))
	c.norms, c.coef = make([]float64, len(params)), make([]T, len(params))
	if opts.MaxNormRatio > 0 {
		c.avg = make([]float64, len(params))
	}
	return c
}

// Do works on one chunk; it is the engine's view of the methods and not for
// callers.
func (c *Clipper[T]) Do(i, _ int) {
	k := c.chunks[i]
	g := c.params[k.index].Grad[k.lo:k.hi]
	switch c.job {
	case jobSums:
		c.sums[i] = vec.SumSquares(g)
	case jobScale:
		if f := c.coef[k.index]; f != 1 {
			vec.Scale(f, g)
		}
	case jobZero:
		clear(g)
	}
}

func (c *Clipper[T]) run(j clipJob) {
	c.job = j
	run(c.opts.Engine, len(c.chunks), c)
}

// Norm is the L2 norm over all gradients, in float64: squares are summed inside
// a chunk, chunks in order inside a parameter, parameters in order. It is not
// finite when, and apart from overflow only when, a gradient is not.
func (c *Clipper[T]) Norm() float64 {
	c.run(jobSums)
	all, i := 0.0, 0
	for p := range c.params {
		s := 0.0
		for ; i < len(c.chunks) && c.chunks[i].index == p; i++ {
			s += c.sums[i]
		}
		c.norms[p] = math.Sqrt(s)
		all += s
	}
	return math.Sqrt(all)
}

// Factor is what Clip would multiply all gradients by, whose norm the last call of
// Norm returned, at the given step (1-based). It touches nothing; an optimizer
// that scales as it reads saves a pass over memory. uniform is false with adaptive
// clipping, where each parameter has a factor of its own and only Clip will do.
func (c *Clipper[T]) Factor(norm float64, step int64) (coef float64, uniform bool) {
	if c.avg != nil {
		return 1, false
	}
	if c.opts.MaxNorm == 0 {
		return 1, true
	}
	return ClipCoef(norm, c.opts.Bound(c.opts.MaxNorm, step)), true
}

// Clip scales the gradients whose norm the last call of Norm returned, as the
// options say for the given step (1-based), and returns the factor: the smallest
// one with adaptive clipping, 1 when nothing was scaled.
func (c *Clipper[T]) Clip(norm float64, step int64) float64 {
	least, uniform := c.Factor(norm, step)
	if uniform {
		for i := range c.coef {
			c.coef[i] = T(least)
		}
	} else {
		least = c.adaptive(c.opts.Bound(c.opts.MaxNormRatio, step))
	}
	if least < 1 {
		c.run(jobScale)
	}
	return least
}

// adaptive sets the factor of each parameter from its moving average, which
// starts at the first norm and then follows the clipped ones.
func (c *Clipper[T]) adaptive(ratio float64) float64 {
	least := 1.0
	for i, n := range c.norms {
		if c.avg[i] == 0 {
			c.avg[i] = n
		}
		f := ClipCoef(n, ratio*c.avg[i])
		c.avg[i] += (1 - c.opts.AverageBeta) * (n*f - c.avg[i])
		c.coef[i] = T(f)
		least = min(least, f)
	}
	return least
}

// Zero clears all gradients.
func (c *Clipper[T]) Zero() { c.run(jobZero) }

// Sections lists the moving averages of adaptive clipping, if any.
func (c *Clipper[T]) Sections() []param.Section {
	if c.avg == nil {
		return nil
	}
	return []param.Section{{Name: "clip/grad_norm_avg", F64: c.avg}}
}

// GlobalNorm is [Clipper.Norm] without workers, for occasional use: it
// allocates.
func GlobalNorm[T gemm.Float](params []param.Param[T]) float64 {
	return NewClipper(params, ClipOptions{}).Norm()
}

// Clip scales the gradients of params so that their global norm is at most
// maxNorm, and returns the norm before and the factor. It allocates; a training
// loop keeps a [Clipper].
func Clip[T gemm.Float](params []param.Param[T], maxNorm float64) (norm, coef float64) {
	c := NewClipper(params, ClipOptions{MaxNorm: maxNorm})
	norm = c.Norm()
	return norm, c.Clip(norm, 1)
}
