package train

import (
	"fmt"

	"github.com/asteria-runtime/asteria/trainer-olmo/asteria"
)

// health writes health.json: the state of the optimizer's blocks, and whether the
// run lacks something that it was given. It is written with every checkpoint and
// when the run ends, also by an error.
func (r *run[T]) health() error {
	if !r.lead() {
		return nil
	}
	h := health{Step: r.stepper.pos.Step, Optimizer: r.cfg.Optimizer.Name, Blocks: []asteria.BlockHealth{}, Reasons: []string{}}
	if o, ok := r.stepper.opt.(interface{ Health() []asteria.BlockHealth }); ok {
		blocks := o.Health()
		h.Blocks, h.Reasons = blocks, failingBlocks(blocks)
	}
	h.Reasons = append(h.Reasons, degradedTiers(r.stepper.opt)...)
	if n := r.failedSaves[0]; n > 0 {
		h.Reasons = append(h.Reasons, fmt.Sprintf("%d checkpoints could not be saved", n))
	}
	h.Degraded = len(h.Reasons) > 0
	return writeHealth(r.cfg.SaveFolder, h)
}

// failingBlocks names the blocks whose last refresh failed: they go on with an
// older result. It is never nil.
func failingBlocks(blocks []asteria.BlockHealth) []string {
	out := []string{}
	for _, b := range blocks {
		if b.Consecutive > 0 {
			out = append(out, fmt.Sprintf("block %s: the last %d refreshes failed; the result in use is %d steps old", b.Block, b.Consecutive, b.Age))
		}
	}
	return out
}
