package train

import (
	"fmt"
	"math"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/gemm/vec"
	"github.com/asteria-runtime/asteria/hooks"
	"github.com/asteria-runtime/asteria/trainer-olmo/checkpoint"
	"github.com/asteria-runtime/asteria/trainer-olmo/data"
	"github.com/asteria-runtime/asteria/trainer-olmo/model"
	"github.com/asteria-runtime/asteria/trainer-olmo/optim"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// stepOptions are what a step needs to know of the configuration.
type stepOptions struct {
	legacy       bool    // divisor of the legacy trainer
	zLoss        float64 // multiplier of the squared log-sum-exp
	microRows    int     // instances of a micro-batch
	groups       int     // of a batch's instances, whose gradients are summed as a tree
	maxNonFinite int64   // consecutive non-finite steps that end the run
}

// stepper takes optimizer steps. One goroutine.
type stepper[T gemm.Float] struct {
	opts     stepOptions
	model    *model.Model[T]
	params   []param.Param[T]
	opt      param.Optimizer
	clip     *optim.Clipper[T]
	skip     *optim.SkipRule // nil: no such rule
	sched    optim.Schedule
	firing   *firing      // nil: no hooks
	ranks    *ranks[T]    // nil: the only rank
	sharding *sharding[T] // nil: every rank has all of the optimizer's state
	rowCE    []float64    // losses of this rank's rows
	rowZ     []float64
	pos      checkpoint.Position
}

// stepStats is what one step showed.
type stepStats struct {
	CE, Z      float64 // sums over labels, divided by the divisor of the batch
	Loss       float64 // CE + zLoss*Z
	Labels     int
	Tokens     int
	Masked     int // masked instances
	Rows       int
	GradNorm   float64 // before clipping
	ClipCoef   float64
	LR         float64
	Skipped    bool // by the skip-step rule
	NonFinite  bool
	MicroCount int // of one rank alone, so that the position is that of any number
}

// step trains on one global batch and moves the position past it.
func (s *stepper[T]) step(b *data.Batch) (stepStats, error) {
	st := stepStats{Rows: b.Rows, Tokens: b.Rows * b.Seq, ClipCoef: 1}
	step := s.pos.Step + 1
	if s.firing != nil {
		s.firing.begin(step)
	}
	if err := s.firing.fire(hooks.StepBegin); err != nil {
		return st, err
	}
	s.ranks.begin()
	if err := s.gradients(b, &st); err != nil {
		return st, err
	}
	if err := s.ranks.finish(); err != nil {
		return st, fmt.Errorf("train: step %d: gradients: %w", step, err)
	}
	s.model.JoinGrads()
	if err := s.firing.fire(hooks.GradReady); err != nil {
		return st, err
	}
	st.GradNorm = s.clip.Norm()
	st.LR = s.sched.LR(step)
	if err := s.update(step, &st); err != nil {
		return st, err
	}
	s.advance(b, &st)
	if err := s.ranks.compare(s.pos.Step); err != nil {
		return st, fmt.Errorf("train: %w", err)
	}
	if err := s.firing.fire(hooks.StepEnd); err != nil {
		return st, err
	}
	if s.opts.maxNonFinite > 0 && s.pos.NonFiniteRun >= s.opts.maxNonFinite {
		return st, s.nonFiniteError(&st)
	}
	return st, nil
}

// gradients adds up the gradients of all micro-batches.
func (s *stepper[T]) gradients(b *data.Batch, st *stepStats) error {
	whole := modelBatch(b, 0, b.Rows)
	divisor := whole.Divisor(s.opts.legacy)
	st.Masked = whole.MaskedInstances()
	o := model.LossOptions{Legacy: s.opts.legacy, ZLoss: s.opts.zLoss, Divisor: divisor}
	if err := s.passes(b, o, st); err != nil {
		return err
	}
	if divisor > 0 {
		st.CE, st.Z = st.CE/divisor, st.Z/divisor
	}
	st.Loss = st.CE + s.opts.zLoss*st.Z
	return nil
}

// passes runs the micro-batches of this rank's rows and adds up the losses of all.
func (s *stepper[T]) passes(b *data.Batch, o model.LossOptions, st *stepStats) error {
	s.rowCE, s.rowZ = s.rowCE[:0], s.rowZ[:0]
	labels := 0
	lo, hi := s.ranks.rows(b.Rows)
	if lo >= hi {
		s.model.ZeroGrad()
	}
	o.Share = model.Share{Groups: s.opts.groups, Rows: b.Rows, First: lo, Last: hi}
	for o.Fresh = true; lo < hi; lo += s.opts.microRows {
		end := min(lo+s.opts.microRows, hi)
		o.Share.At = lo
		ls, err := s.model.LossGrad(modelBatch(b, lo, end), o, s.watch(end == hi))
		if err != nil {
			return fmt.Errorf("train: step %d: %w", s.pos.Step+1, err)
		}
		o.Fresh = false
		s.rowCE, s.rowZ = append(s.rowCE, ls.RowCE...), append(s.rowZ, ls.RowZ...)
		labels += ls.Labels
	}
	// Also on a rank without rows, whose sums nothing has started yet: the order of
	// operations must be that of the others.
	s.ranks.startAll()
	ces, zs, labels, err := s.ranks.share(b.Rows, s.rowCE, s.rowZ, labels)
	if err != nil {
		return fmt.Errorf("train: step %d: losses: %w", s.pos.Step+1, err)
	}
	// Row by row, so that the sum depends neither on micro-batches nor on ranks.
	for i, ce := range ces {
		st.CE += ce
		st.Z += zs[i]
	}
	st.Labels = labels
	st.MicroCount = (b.Rows + s.opts.microRows - 1) / s.opts.microRows
	return nil
}

// update changes weights and optimizer, or nothing.
func (s *stepper[T]) update(step int64, st *stepStats) error {
	if !finite(st.Loss) || !finite(st.GradNorm) {
		st.NonFinite = true
		return nil
	}
	if s.skip != nil && !s.skip.Accept(st.Loss, st.GradNorm) {
		st.Skipped = true
		return nil
	}
	if err := s.firing.fire(hooks.PreUpdate); err != nil {
		return err
	}
	if err := s.sharding.exchange(s.clipAndStep(step, st)); err != nil {
		return fmt.Errorf("train: step %d: %w", step, err)
	}
	s.ranks.updated(s.opt)
	return s.firing.fire(hooks.PostUpdate)
}

// scaler is an optimizer that scales gradients as it reads them.
type scaler interface {
	StepScaled(step int64, lr, scale float64) error
}

// clipAndStep clips in the optimizer's pass over the gradients where it can, and
// before it otherwise; the bits are the same.
func (s *stepper[T]) clipAndStep(step int64, st *stepStats) error {
	coef, uniform := s.clip.Factor(st.GradNorm, step)
	if o, ok := s.opt.(scaler); ok && uniform {
		st.ClipCoef = coef
		return o.StepScaled(step, st.LR, coef)
	}
	st.ClipCoef = s.clip.Clip(st.GradNorm, step)
	return s.opt.Step(step, st.LR)
}

// advance moves the position past a batch, whether it was used or not.
func (s *stepper[T]) advance(b *data.Batch, st *stepStats) {
	s.pos.Step++
	s.pos.Batch++
	s.pos.MicroBatches += int64(st.MicroCount)
	s.pos.Tokens += int64(st.Tokens)
	s.pos.Epoch = b.Epoch
	if st.Skipped {
		s.pos.Skipped++
	}
	if st.NonFinite {
		s.pos.NonFinite++
		s.pos.NonFiniteRun++
	} else {
		s.pos.NonFiniteRun = 0
	}
}

// nonFiniteError says where the numbers went bad.
func (s *stepper[T]) nonFiniteError(st *stepStats) error {
	what := "the loss is " + fmt.Sprint(st.Loss)
	for _, p := range s.params {
		if !vec.Finite(p.Value) {
			what = fmt.Sprintf("weight %s is not finite", p.Name)
			break
		}
		if !vec.Finite(p.Grad) {
			what = fmt.Sprintf("the gradient of %s is not finite (loss %v)", p.Name, st.Loss)
			break
		}
	}
	return fmt.Errorf("train: stopped at step %d: %w in %d steps in a row, which were not applied: %s; try a lower learning rate, a longer warm-up or z-loss",
		s.pos.Step, ErrNonFinite, s.pos.NonFiniteRun, what)
}

// sections lists the state that decides later steps, the optimizer's first.
func (s *stepper[T]) sections() []param.Section {
	own := []param.Section(nil)
	if s.sharding != nil {
		own = append(own, s.sharding.parts[0].whole...) // of all ranks, on rank 0 while a checkpoint is made or read
	} else {
		own = s.opt.Sections()
	}
	all := append(own, s.clip.Sections()...)
	if s.skip != nil {
		all = append(all, s.skip.Sections()...)
	}
	return all
}

// modelBatch is rows [lo, hi) of a batch, as the model takes it; nothing is
// copied.
func modelBatch(b *data.Batch, lo, hi int) model.Batch {
	m := model.Batch{Tokens: b.Tokens[lo*b.Seq : hi*b.Seq], Rows: hi - lo, Seq: b.Seq}
	if b.LabelMask != nil {
		m.LabelMask = b.LabelMask[lo*b.Seq : hi*b.Seq]
	}
	if b.InstanceMask != nil {
		m.InstanceMask = b.InstanceMask[lo:hi]
	}
	if b.DocLens != nil {
		m.DocLens = b.DocLens[lo:hi]
	}
	return m
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
