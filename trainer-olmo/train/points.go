package train

import (
	"context"
	"fmt"

	"github.com/asteria-runtime/asteria/hooks"
	"github.com/asteria-runtime/asteria/trainer-olmo/model"
)

// firing fires the hook points of a step. After the first failure it is silent,
// and the step ends at the next place where that is safe.
type firing struct {
	ctx   context.Context // of the run; hooks are functions of the run's step
	hooks *hooks.Schedule
	step  int64
	err   error
}

var _ model.Observer = (*firing)(nil)

// begin starts a step.
func (f *firing) begin(step int64) { f.step, f.err = step, nil }

// fire fires a point that is not about a layer and returns the step's first
// failure. A nil receiver has no hooks.
func (f *firing) fire(p hooks.Point) error {
	if f == nil {
		return nil
	}
	f.at(p, -1)
	if f.err != nil {
		return fmt.Errorf("train: step %d: %w", f.step, f.err)
	}
	return nil
}

func (f *firing) at(p hooks.Point, layer int) {
	if f.err == nil {
		f.err = f.hooks.Fire(f.ctx, hooks.Event{Point: p, Step: f.step, Layer: layer})
	}
}

// PreForward implements [model.Observer].
func (f *firing) PreForward(layer int) { f.at(hooks.PreForward, layer) }

// PostForward implements [model.Observer].
func (f *firing) PostForward(layer int) { f.at(hooks.PostForward, layer) }

// PreBackward implements [model.Observer].
func (f *firing) PreBackward(layer int) { f.at(hooks.PreBackward, layer) }

// PostBackward implements [model.Observer].
func (f *firing) PostBackward(layer int) { f.at(hooks.PostBackward, layer) }
