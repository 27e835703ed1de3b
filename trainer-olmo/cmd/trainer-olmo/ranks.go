package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"time"

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
	told := e.err
	if comm.Rank() > 0 {
		e.out, e.err = io.Discard, io.Discard
	}
	shareThreads(c, comm)
	returned := make(chan struct{})
	defer close(returned)
	go leave(comm, returned, grace, func(err error) {
		fmt.Fprintf(told, "trainer-olmo: rank %d: %v; this rank leaves what it was computing\n", comm.Rank(), err)
		os.Exit(exitRun)
	})
	if err := f(comm); err != nil {
		return fmt.Errorf("rank %d: %w", comm.Rank(), errors.Join(err, comm.Close()))
	}
	return comm.Close()
}

// grace is how long a rank may go on with what it does after it has heard that
// another one is lost: a long refresh or the rest of a backward pass, which must
// not hold up the end of the run. Heartbeats name a silent rank within the deadline
// and two seconds, so that the whole stays below the deadline and 5 s.
const grace = 2 * time.Second

// leave ends this process when the world has failed because of another rank and
// what was computed here has not returned after the grace. Checkpoints stand it:
// one that is being written was not complete and is passed over.
func leave(comm *hiersync.Comm, returned <-chan struct{}, grace time.Duration, exit func(error)) {
	select {
	case <-returned:
		return
	case <-comm.Failed():
	}
	var lost *hiersync.RankError
	if errors.As(comm.Err(), &lost) && lost.Rank == comm.Rank() {
		return // its own failure, which it is about to report itself
	}
	select {
	case <-returned:
	case <-time.After(grace):
		exit(comm.Err())
	}
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
