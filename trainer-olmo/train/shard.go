package train

import (
	"context"
	"errors"
	"fmt"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/hiersync"
	"github.com/asteria-runtime/asteria/trainer-olmo/asteria"
	"github.com/asteria-runtime/asteria/trainer-olmo/config"
	"github.com/asteria-runtime/asteria/trainer-olmo/parallel"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
	"github.com/asteria-runtime/asteria/trainer-olmo/plan"
)

// sharding is a stepper's part of an optimizer whose state is spread over the
// ranks. A nil *sharding is an optimizer whose state every rank has.
//
// Note: owners compute. The owner of a parameter has all of its state, so it alone
// updates and refreshes it, with the arithmetic of a run that is not sharded, and
// the values go to the others: same gradients, same bits, whoever computes them.
type sharding[T gemm.Float] struct {
	comm  *hiersync.Comm
	shard *parallel.Shard[T]
	parts [2]shardPart // the optimizer's state; refreshes in flight
}

// shardPart is a part of the state of all ranks together.
type shardPart struct {
	state *parallel.Sections
	list  func() []param.Section // of this rank
	whole []param.Section        // on rank 0 between gather and release
}

// newSharding cuts the parameters; nil unless the configuration asks for it and
// there are ranks to share with.
func newSharding[T gemm.Float](c *config.Config, comm *hiersync.Comm, params []param.Param[T]) (*sharding[T], error) {
	if comm == nil || comm.Size() < 2 || !c.Parallel.Shard {
		return nil, nil
	}
	switch {
	case c.Optimizer.SecondOrder() && c.Runtime.Mode == "asteria" && c.Runtime.Adopt == "ready":
		return nil, fmt.Errorf("train: parallel.shard with runtime.adopt ready: %w: owners adopt on their own, and no log of all of them is kept; use scheduled", errors.ErrUnsupported)
	case c.Runtime.Replay != "":
		return nil, fmt.Errorf("train: parallel.shard with runtime.replay: %w: no log of all owners is kept", errors.ErrUnsupported)
	case c.Optimizer.Stagger:
		return nil, fmt.Errorf("train: parallel.shard with optimizer.stagger: %w: phases depend on all blocks", errors.ErrUnsupported)
	}
	units, err := shardUnits(c, params)
	if err != nil {
		return nil, err
	}
	return &sharding[T]{comm: comm, shard: parallel.NewShard(comm, params, units)}, nil
}

// shardUnits describes the parameters to the cut, as the plan does.
func shardUnits[T gemm.Float](c *config.Config, params []param.Param[T]) ([]parallel.Unit, error) {
	return plan.Units[T](c, asteria.Shapes(params))
}

// mine lists what this rank's optimizer updates.
func (s *sharding[T]) mine(all []param.Param[T]) []param.Param[T] {
	if s == nil {
		return all
	}
	return s.shard.Mine()
}

// describe finds out what the optimizers of all ranks hold together.
func (s *sharding[T]) describe(c *config.Config, opt param.Optimizer) (err error) {
	if s == nil {
		return nil
	}
	s.parts[0].list = opt.Sections
	s.parts[1].list = func() []param.Section { return nil }
	if o, ok := opt.(shadowed); ok {
		s.parts[1].list = o.PendingSections
	}
	for i := range s.parts {
		p := &s.parts[i]
		if p.state, err = s.shard.Sections(context.Background(), p.list(), c.Optimizer.SecondOrder()); err != nil {
			return err
		}
	}
	return nil
}

// exchange follows an update: when it succeeded on all ranks, every rank gets the
// values that the others have computed.
func (s *sharding[T]) exchange(err error) error {
	if s == nil {
		return err
	}
	failed := oneIf(err != nil)
	if aerr := s.comm.Agree(context.Background(), hiersync.Max, &failed); aerr != nil {
		return errors.Join(err, aerr)
	}
	if failed != 0 {
		if err == nil {
			err = fmt.Errorf("%w to update its share", ErrOtherRank)
		}
		return err
	}
	return s.shard.Exchange(context.Background())
}

// gather makes the whole state on rank 0, for a checkpoint. All ranks call it.
func (s *sharding[T]) gather() (err error) {
	if s == nil {
		return nil
	}
	for i := range s.parts {
		p := &s.parts[i]
		p.state.Renew(p.list())
		if p.whole, err = p.state.Gather(context.Background()); err != nil {
			return err
		}
	}
	return nil
}

// scatter gives every rank its part of the whole state of rank 0.
func (s *sharding[T]) scatter() error {
	if s == nil {
		return nil
	}
	defer s.release()
	for i := range s.parts {
		p := &s.parts[i]
		// Not renewed: nothing has moved since gather, and to list refreshes in flight
		// again would forget what was read of them.
		if err := p.state.Scatter(context.Background(), p.whole); err != nil {
			return err
		}
	}
	return nil
}

// release drops the whole state.
func (s *sharding[T]) release() {
	if s != nil {
		s.parts[0].whole, s.parts[1].whole = nil, nil
	}
}
