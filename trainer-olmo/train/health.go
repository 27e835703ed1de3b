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
	h := health{Step: r.stepper.pos.Step, Optimizer: r.cfg.Optimizer.Name}
	blocks, reasons := r.ownHealth()
	h.Ranks, h.Blocks, h.Reasons = r.met.merge(blocks, reasons)
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

// ownHealth is what this rank knows of its blocks and tiers. Neither list is nil.
func (r *run[T]) ownHealth() (blocks []asteria.BlockHealth, reasons []string) {
	blocks, reasons = []asteria.BlockHealth{}, []string{}
	if o, ok := r.stepper.opt.(interface{ Health() []asteria.BlockHealth }); ok {
		blocks = o.Health()
		reasons = failingBlocks(blocks)
	}
	return blocks, append(reasons, degradedTiers(r.stepper.opt)...)
}
