package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"

	"github.com/asteria-runtime/asteria/hiersync"
	"github.com/asteria-runtime/asteria/trainer-olmo/config"
	"github.com/asteria-runtime/asteria/trainer-olmo/train"
)

// underMPI runs f as one rank of the world that mpirun started, or alone with a nil
// communicator when mpirun did not start this process. Only rank 0 writes to the
// terminal; an error says on which rank it arose.
func underMPI(ctx context.Context, e *env, c *config.Config, f func(*hiersync.Comm) error) error {
	if _, ok := hiersync.LaunchedByMPI(); !ok {
		return f(nil)
	}
	log := slog.New(slog.NewTextHandler(e.err, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: dropTime}))
	start, cancel := context.WithTimeout(ctx, c.Parallel.Deadline)
	defer cancel()
	comm, err := hiersync.OpenMPI(start, train.CommOptions(c, log))
	if err != nil {
		return fmt.Errorf("this process was started by mpirun: %w", err)
	}
	if comm.Rank() > 0 {
		e.out, e.err = io.Discard, io.Discard
	}
	shareThreads(c, comm)
	if err := f(comm); err != nil {
		return fmt.Errorf("rank %d: %w", comm.Rank(), errors.Join(err, comm.Close()))
	}
	return comm.Close()
}

// shareThreads divides the processors among the ranks of a node, unless the
// configuration says how many threads a rank has. Where mpirun binds ranks to
// processors, a rank sees only its own.
func shareThreads(c *config.Config, comm *hiersync.Comm) {
	if c.Train.Threads > 0 {
		return
	}
	t := comm.Topology()
	neighbours := len(t.Nodes[t.NodeOf[comm.Rank()]])
	c.Train.Threads = max(1, runtime.NumCPU()/neighbours)
}
