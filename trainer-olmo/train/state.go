package train

import (
	"errors"

	"github.com/asteria-runtime/asteria/trainer-olmo/checkpoint"
)

// state is what a checkpoint of the stepper holds, in place.
func (s *stepper[T]) state() checkpoint.State {
	return checkpoint.State{
		Position: s.pos, Weights: checkpoint.Weights(s.params), Optimizer: s.sections(),
	}
}

// restore fills weights, optimizer and position. A fault in any of them is
// reported with the others, and the run cannot go on.
func (s *stepper[T]) restore(c *checkpoint.Checkpoint) error {
	pos, err := c.Position()
	err = errors.Join(err, c.Weights(checkpoint.Weights(s.params)), c.Optimizer(s.sections()))
	if err == nil {
		s.pos = pos
	}
	return err
}
