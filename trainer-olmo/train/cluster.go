package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/hiersync"
	"github.com/asteria-runtime/asteria/trainer-olmo/config"
)

// CommOptions are what the configuration says about the communicator of a run.
func CommOptions(c *config.Config, log *slog.Logger) hiersync.Options {
	return hiersync.Options{Deadline: c.Parallel.Deadline, Flat: c.Parallel.Flat, Node: c.Parallel.Node, Logger: log}
}

// runHere trains on parallel.ranks ranks inside this process: each is a goroutine
// with a model and an optimizer of its own and its share of the threads.
func runHere[T gemm.Float](ctx context.Context, c *config.Config, o Options, open sources) (Result, error) {
	n := c.Parallel.Ranks
	o = o.withDefaults()
	w, err := hiersync.NewTwin(ctx, hiersync.TwinOptions{Ranks: n, Options: CommOptions(c, o.Logger)})
	if err != nil {
		return Result{}, err
	}
	results, errs := make([]Result, n), make([]error, n)
	var wg sync.WaitGroup
	for rank, comm := range w.Comms() {
		wg.Go(func() {
			results[rank], errs[rank] = runOn[T](ctx, forRank(c, n), o.forRank(comm), open)
			errs[rank] = errors.Join(errs[rank], comm.Close())
		})
	}
	wg.Wait()
	return results[0], firstCause(errs)
}

// forRank is the configuration of one of n ranks that share a machine.
func forRank(c *config.Config, n int) *config.Config {
	own := *c
	own.Train.Threads = max(1, c.ComputeThreads()/n)
	return &own
}

// forRank are the options of one rank: only rank 0 tells of the progress.
func (o Options) forRank(c *hiersync.Comm) Options {
	o.Comm = c
	if c.Rank() > 0 {
		o.Out, o.Live, o.Hooks = io.Discard, false, nil
	}
	o.Logger = o.Logger.With("rank", c.Rank())
	return o
}

// firstCause prefers the error of the rank where it began over those of ranks that
// only heard of it.
func firstCause(errs []error) error {
	var heard error
	for _, err := range errs {
		var other *hiersync.RankError
		switch {
		case err == nil:
		case errors.Is(err, ErrOtherRank) || errors.As(err, &other):
			if heard == nil {
				heard = err
			}
		default:
			return err
		}
	}
	return heard
}

// alone refuses what cannot be divided among ranks yet.
func alone(c *config.Config, ranks int) error {
	o, err := c.AsteriaOptions()
	switch {
	case ranks < 2 || !c.Optimizer.SecondOrder():
		return nil
	case err != nil:
		return err
	case o.Tiers != nil:
		return fmt.Errorf("train: tiers.* with %d ranks: %w: leave tiers.device, tiers.host and tiers.nvme unset", ranks, errors.ErrUnsupported)
	}
	return nil
}
