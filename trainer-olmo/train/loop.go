package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/asteria-runtime/asteria/hooks"
	"github.com/asteria-runtime/asteria/trainer-olmo/config"
)

// loop trains until the run or the context ends.
func (r *run[T]) loop(ctx context.Context) error {
	defer r.meter.done()
	defer r.hurry(ctx)()
	h := r.opts.Hooks
	if r.trace != nil {
		if h == nil {
			h = new(hooks.Schedule)
		}
		defer r.trace.watch(h)()
	}
	if h == nil && r.nvme != nil {
		h = new(hooks.Schedule)
	}
	if h != nil {
		defer r.anticipate(h)()
		r.stepper.firing = &firing{ctx: ctx, hooks: h}
	}
	if err := r.atStart(ctx); err != nil {
		return err
	}
	for r.stepper.pos.Step < r.stop {
		end, err := r.stepper.ranks.any(ctx.Err() != nil)
		if err != nil {
			return err
		}
		if end {
			r.interrupted = true
			break
		}
		if err := r.one(ctx); err != nil {
			// What is known of the blocks helps most when a run fails.
			return errors.Join(err, r.health())
		}
	}
	if err := r.meet(); err != nil {
		return err
	}
	return r.together(r.finish())
}

// atStart checks the first batch, and evaluates if asked to.
func (r *run[T]) atStart(ctx context.Context) error {
	pos := &r.stepper.pos
	if pos.Step >= r.stop {
		r.log.Info("train: nothing to do, the run is complete", "step", pos.Step)
		return nil
	}
	if err := r.data.Batch(pos.Batch, &r.batch); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	warnings, err := checkFirstBatch(&r.batch, r.model.Config().VocabSize)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		r.log.Warn("train: " + w)
	}
	if !r.cfg.Eval.AtStart || pos.Step > 0 || r.heldOut == nil {
		return nil
	}
	r.metrics.begin(0, r.batch.Epoch)
	if err := r.evaluate(ctx); err != nil {
		return ignoreCancel(err)
	}
	return r.metrics.end()
}

// ignoreCancel drops the error of a context that ended: the loop sees it.
func ignoreCancel(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// one takes a step and does what is due after it.
func (r *run[T]) one(ctx context.Context) error {
	s := r.stepper
	start := time.Now()
	if err := r.data.Batch(s.pos.Batch, &r.batch); err != nil {
		return fmt.Errorf("train: step %d: %w", s.pos.Step+1, err)
	}
	r.clock.load = time.Since(start).Seconds()
	st, err := s.step(&r.batch)
	r.clock.compute = time.Since(start).Seconds() - r.clock.load
	if err != nil && !errors.Is(err, ErrNonFinite) {
		return err
	}
	first := s.pos.Step == r.started+1
	if first && r.started == 0 {
		if w := checkFirstLoss(st.CE, r.model.Config().VocabSize); w != "" && !st.NonFinite {
			r.log.Warn("train: " + w)
		}
	}
	return errors.Join(err, r.after(ctx, &st, first))
}

// after records a step, evaluates and saves.
func (r *run[T]) after(ctx context.Context, st *stepStats, first bool) error {
	pos := &r.stepper.pos
	r.pollSave()
	r.record(st, first)
	if err := r.recordWire(); err != nil {
		return err
	}
	due := r.cfg.Eval.Interval > 0 && pos.Step%int64(r.cfg.Eval.Interval) == 0 || pos.Step == r.total
	if r.heldOut != nil && due {
		if err := ignoreCancel(r.evaluate(ctx)); err != nil {
			return err
		}
	}
	if err := r.metrics.end(); err != nil {
		return err
	}
	if err := r.adoptions.flush(); err != nil {
		return err
	}
	r.warnOfLoad()
	r.judgePrefetch()
	r.show(st, first)
	return r.saveIfDue()
}

// saveIfDue begins a checkpoint after the steps that are to have one; the last
// step's is not begun here.
func (r *run[T]) saveIfDue() error {
	step := r.stepper.pos.Step
	due := func(every config.Count) bool { return every > 0 && step%int64(every) == 0 }
	switch {
	case step >= r.stop:
		return nil
	case due(r.cfg.Checkpoint.Interval):
		return r.save(false)
	case due(r.cfg.Checkpoint.Ephemeral):
		return r.save(true)
	}
	return nil
}

// record writes a step's metrics into the line that is open until after the
// evaluation.
func (r *run[T]) record(st *stepStats, first bool) {
	pos, m, c := &r.stepper.pos, r.metrics, &r.clock
	seconds := c.load + c.compute
	if !first {
		c.steps++
		c.seconds += seconds
		c.tokens += int64(st.Tokens)
	}
	m.begin(pos.Step, pos.Epoch)
	m.num(mCE, st.CE)
	if st.CE < 10 {
		m.num(mPPL, math.Exp(st.CE))
	}
	m.num(mZ, r.stepper.opts.zLoss*st.Z)
	m.num(mZRaw, st.Z)
	m.num(mMaskedLab, 100*(1-float64(st.Labels)/float64(st.Rows*(r.batch.Seq-1))))
	m.num(mMaskedIns, 100*float64(st.Masked)/float64(st.Rows))
	m.int(mBatch, int64(st.Tokens))
	m.num(mNorm, st.GradNorm)
	m.num(mClip, st.ClipCoef)
	m.num(mLR, st.LR)
	m.int(mSkipped, oneIf(st.Skipped))
	m.int(mNonFinite, oneIf(st.NonFinite))
	r.recordSpeed(st, seconds, first)
}

func oneIf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// recordSpeed writes times and throughput; a process's first step has no speed.
func (r *run[T]) recordSpeed(st *stepStats, seconds float64, first bool) {
	pos, m, c := &r.stepper.pos, r.metrics, &r.clock
	m.num(mTime, seconds)
	if first {
		m.int(mFirst, 1)
	} else {
		tps := float64(st.Tokens) / seconds
		m.num(mTPS, tps)
		m.num(mTPSAvg, float64(c.tokens)/c.seconds)
		m.num(mBPS, 1/seconds)
		m.num(mBPSAvg, float64(c.steps)/c.seconds)
		m.num(mFlops, tps*r.flops)
	}
	m.num(mLoad, c.load)
	m.num(mLoadPct, 100*c.load/seconds)
	m.int(mTokens, pos.Tokens)
	m.num(mPetaflops, float64(pos.Tokens)*r.flops/1e15)
	m.num(mChin, float64(pos.Tokens)/(20*r.nonEmb))
	if r.saveSeconds > 0 {
		m.num(mSave, r.saveSeconds)
		m.num(mSnapshot, r.snapSeconds)
		r.saveSeconds = 0
	}
	if r.failedSaves[0] > 0 {
		m.int(mSaveFail, r.failedSaves[0])
	}
	r.recordBlocks()
	if r.gauges != nil { // rank 0 reads them
		r.gauges.record(m)
		r.gauges.tiers.record(m, r.stepper.opt)
		r.gauges.device.record(m, r.stepper.opt)
	}
	if r.pressure != nil {
		r.pressure.look()
		m.num(mPressure, r.pressure.wanted())
	}
}

// recordBlocks writes the totals over the blocks of a second-order method.
func (r *run[T]) recordBlocks() {
	o, ok := r.stepper.opt.(totaler)
	if !ok {
		return
	}
	t, m := o.Totals(), r.metrics
	m.int(mAge, t.AgeMax)
	m.int(mRefreshed, t.Refreshes)
	m.int(mRefFailed, t.Failed)
	if r.cfg.Runtime.Mode == "asteria" {
		m.int(mInFlight, t.InFlight)
		m.int(mBacklog, int64(t.Backlog))
		m.int(mLateMax, t.AdoptedAfter)
		m.int(mCoalesced, t.Coalesced)
		m.int(mSpared, t.Spared)
		m.int(mAbandoned, t.Abandoned)
		m.num(mBarrier, (t.Waited - r.waited).Seconds())
		m.num(mWorkers, (t.WorkersBusy - r.busy).Seconds())
		r.waited, r.busy = t.Waited, t.WorkersBusy
	}
	if aux := r.cfg.Optimizer.AuxLR; aux > 0 {
		m.num(mAuxLR, r.stepper.sched.LR(r.stepper.pos.Step)*aux/r.cfg.Optimizer.LR)
	}
}

// evaluate adds the held-out loss to the open line.
func (r *run[T]) evaluate(ctx context.Context) error {
	start := time.Now()
	res, err := evaluate(ctx, r.model, r.heldOut, r.cfg.Eval.Metric == "legacy", &r.evalBatch)
	if err != nil {
		return err
	}
	r.metrics.num(mEvalCE, res.CE)
	r.metrics.num(mEvalPPL, res.PPL)
	r.metrics.num(mEvalTime, time.Since(start).Seconds())
	r.meter.say("step %d  held-out loss %.4f  perplexity %.2f", r.stepper.pos.Step, res.CE, res.PPL)
	return nil
}

// show writes the progress.
func (r *run[T]) show(st *stepStats, first bool) {
	c := &r.clock
	p := progress{step: r.stepper.pos.Step, loss: st.CE}
	if c.steps > 0 {
		p.tps = float64(c.tokens) / c.seconds
		p.perStep = time.Duration(c.seconds / float64(c.steps) * float64(time.Second))
	}
	switch {
	case st.NonFinite:
		p.extra = "not finite, step given up"
	case st.Skipped:
		p.extra = "outlier, step given up"
	}
	r.meter.show(p, first, time.Now())
}

// save begins a checkpoint of the present step. It waits for the one before; the
// failure of a save is told and counted, and training goes on: the checkpoints
// before it are whole.
func (r *run[T]) save(ephemeral bool) error {
	defer r.stepper.sharding.release()
	r.waitForSave()
	start := time.Now()
	if err := r.together(r.settle()); err != nil {
		return err
	}
	if err := r.meet(); err != nil {
		return err
	}
	if err := r.stepper.sharding.gather(); err != nil || !r.lead() {
		return err
	}
	r.patience(true)
	defer r.patience(false)
	r.saveStart = start
	st := r.state()
	st.Ephemeral = ephemeral
	if err := r.store.SaveAsync(st); err != nil {
		return err
	}
	if err := r.health(); err != nil {
		return err
	}
	r.saved, r.temporary = r.stepper.pos.Step, ephemeral
	r.snapSeconds = time.Since(start).Seconds()
	if r.cfg.Checkpoint.Sync {
		r.endSave(r.store.Wait())
	}
	return nil
}

// waitForSave waits on rank 0 until the save that runs has ended.
func (r *run[T]) waitForSave() {
	if r.lead() {
		r.patience(true)
		r.endSave(r.store.Wait())
		r.patience(false)
	}
}

// pollSave notices the end of a save that runs beside training.
func (r *run[T]) pollSave() {
	if !r.lead() {
		return
	}
	if ended, err := r.store.Poll(); ended {
		r.endSave(err)
	}
}

// endSave takes note of how a save ended.
func (r *run[T]) endSave(err error) {
	if err != nil {
		r.failedSaves[0]++
		r.saved = -1
		r.log.Warn("train: a checkpoint could not be saved; the ones before it are kept", "err", err)
		r.meter.say("a checkpoint could not be saved: %v", err)
	}
	if !r.saveStart.IsZero() {
		r.saveSeconds = time.Since(r.saveStart).Seconds()
		r.saveStart = time.Time{}
	}
}

// finish saves the last step. Here a failure is an error: nothing comes after it.
func (r *run[T]) finish() error {
	defer r.stepper.sharding.release()
	r.waitForSave()
	if r.opts.Comm != nil { // together, whether a save follows or not
		if err := r.together(r.settle()); err != nil {
			return err
		}
	}
	if err := r.stepper.sharding.gather(); err != nil {
		return err
	}
	if !r.lead() {
		return nil
	}
	r.patience(true)
	r.logTiers()
	pos := &r.stepper.pos
	if pos.Step > r.started || pos.Step == 0 {
		if err := r.health(); err != nil {
			return err
		}
	}
	kept := pos.Step == r.saved && !r.temporary
	if r.cfg.Checkpoint.NoFinal && !r.interrupted && pos.Step == r.total || kept || pos.Step == r.started {
		return nil
	}
	if r.opts.Comm == nil {
		if err := r.settle(); err != nil {
			return err
		}
	}
	if err := r.store.SaveAsync(r.state()); err != nil {
		return err
	}
	return r.store.Wait()
}
