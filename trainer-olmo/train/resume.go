package train

import (
	"errors"
	"fmt"

	"github.com/asteria-runtime/asteria/trainer-olmo/checkpoint"
)

// resume continues from the newest checkpoint of the run's folder, or starts from
// checkpoint.load_path, or from the beginning.
func (r *run[T]) resume() error {
	c, err := r.store.Latest()
	mode := r.cfg.Checkpoint.Resume
	switch {
	case errors.Is(err, checkpoint.ErrNone):
		if mode == "always" {
			return fmt.Errorf("train: checkpoint.resume is always, but there is nothing to resume: %w", err)
		}
		return r.loadPath()
	case mode == "never":
		return fmt.Errorf("train: %s holds checkpoints and checkpoint.resume is never: use another save_folder or remove them", r.cfg.SaveFolder)
	case err != nil:
		return err
	}
	for _, p := range c.PassedOver {
		r.log.Warn("train: passing over a checkpoint that is not complete", "err", p)
	}
	if err := r.compatible(c); err != nil {
		return err
	}
	if err := r.stepper.restore(c); err != nil {
		return err
	}
	if err := r.restoreRuntime(c); err != nil {
		return err
	}
	r.rebase(c.Meta.Origin)
	r.saved = r.stepper.pos.Step
	r.log.Info("train: resumed", "step", r.saved, "path", c.Path())
	return nil
}

// compatible refuses a checkpoint that the run cannot continue, and warns of one
// that it continues with other bits.
func (r *run[T]) compatible(c *checkpoint.Checkpoint) error {
	was, now := c.Meta.Origin, r.origin
	pos := c.Meta.Position
	switch {
	case was.Precision != now.Precision:
		return fmt.Errorf("train: %s holds %s, the run computes in %s", c.Path(), was.Precision, now.Precision)
	case was.Optimizer != now.Optimizer:
		return fmt.Errorf("train: %s was trained with optimizer.name %s, the run has %s", c.Path(), was.Optimizer, now.Optimizer)
	case was.Fingerprint != now.Fingerprint:
		return fmt.Errorf("%w: %s has the fingerprint %s, the run's data %s", ErrDifferentData, c.Path(), was.Fingerprint, now.Fingerprint)
	case pos.DataSeed != r.cfg.Data.Seed:
		return fmt.Errorf("%w: %s was trained with data.seed %d, the run has %d", ErrDifferentData, c.Path(), pos.DataSeed, r.cfg.Data.Seed)
	}
	warn := func(what, was, now string) {
		if was != now {
			r.log.Warn("train: resuming under another "+what+"; later steps may differ in their last bits", "was", was, "now", now)
		}
	}
	warn("kernel set", was.Kernel, now.Kernel)
	warn("build", was.Build, now.Build)
	warn("global batch", fmt.Sprint(was.BatchTokens), fmt.Sprint(now.BatchTokens))
	warn("micro-batch", fmt.Sprint(was.MicroTokens), fmt.Sprint(now.MicroTokens))
	if pos.Seed != r.cfg.Seed {
		r.log.Warn("train: seed only chooses the initial weights; it is without effect on a resumed run", "was", pos.Seed, "now", r.cfg.Seed)
	}
	return nil
}

// rebase keeps the place in the data when the size of the global batch changed:
// what counts is the number of tokens consumed, as in OLMo-core.
func (r *run[T]) rebase(was checkpoint.Origin) {
	pos := &r.stepper.pos
	size := r.origin.BatchTokens
	if was.BatchTokens == size || size == 0 {
		return
	}
	pos.Batch = pos.Tokens / size
	if pos.Tokens%size != 0 {
		r.log.Warn("train: the new global batch does not divide the tokens consumed; some are read again", "tokens", pos.Tokens%size)
	}
}
