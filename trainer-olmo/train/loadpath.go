package train

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/asteria-runtime/asteria/trainer-olmo/checkpoint"
	"github.com/asteria-runtime/asteria/trainer-olmo/checkpoint/safetensors"
)

// loadPath starts from checkpoint.load_path, if it is set: a checkpoint, a run
// folder, or a folder with a model in Hugging Face's format, which has weights
// only.
func (r *run[T]) loadPath() error {
	path := r.cfg.Checkpoint.LoadPath
	if path == "" {
		return nil
	}
	c, err := checkpoint.Load(path)
	if err != nil {
		if !isModelFolder(path) {
			return fmt.Errorf("train: checkpoint.load_path: %w", err)
		}
		r.log.Info("train: starting from a model without optimizer state", "path", path)
		return safetensors.Load(path, r.stepper.params)
	}
	return r.loadCheckpoint(c)
}

// isModelFolder reports whether a folder holds a model and no checkpoint.
func isModelFolder(path string) bool {
	_, cerr := os.Stat(filepath.Join(path, "config.json"))
	_, merr := os.Stat(filepath.Join(path, "metadata.json"))
	return cerr == nil && merr != nil
}

// loadCheckpoint takes from another run what the configuration asks for.
func (r *run[T]) loadCheckpoint(c *checkpoint.Checkpoint) error {
	o := &r.cfg.Checkpoint
	if err := c.Weights(checkpoint.Weights(r.stepper.params)); err != nil {
		return err
	}
	if o.LoadOptimizer {
		if was := c.Meta.Origin.Optimizer; was != r.origin.Optimizer {
			return fmt.Errorf("train: checkpoint.load_path %s was trained with optimizer.name %s, the run has %s: set checkpoint.load_optimizer=false to take the weights only", c.Path(), was, r.origin.Optimizer)
		}
		if err := c.Optimizer(r.stepper.sections()); err != nil {
			return err
		}
		counted := r.failedSaves[0] // of this run, not of the other one
		if err := r.restoreRuntime(c); err != nil {
			return err
		}
		r.failedSaves[0] = counted
	}
	if o.LoadTrainer {
		if err := r.compatible(c); err != nil {
			return fmt.Errorf("%w; set checkpoint.load_trainer=false to start at step 0 of this run's data", err)
		}
		pos, err := c.Position()
		if err != nil {
			return err
		}
		r.stepper.pos = pos
		r.rebase(c.Meta.Origin)
	}
	r.log.Info("train: loaded", "path", c.Path(), "optimizer", o.LoadOptimizer, "trainer", o.LoadTrainer)
	return nil
}
