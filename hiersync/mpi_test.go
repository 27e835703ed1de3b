package hiersync_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/asteria-runtime/asteria/hiersync"
	"github.com/asteria-runtime/asteria/hiersync/hiersynctest"
)

// The parent test runs this binary under mpirun; these variables tell a child
// what to do. Layouts other than one node are made with Options.Node.
const (
	envRole  = "HIERSYNC_TEST_ROLE"
	envNodes = "HIERSYNC_TEST_NODES" // node of each rank, comma-separated
)

// roles are what a child under mpirun can do.
var roles = map[string]func(ctx context.Context, c *hiersync.Comm) error{
	"conform":  conform,
	"mismatch": mismatch,
	"wait":     waitForTheDead,
	"go on":    goOn,
}

// TestMPIRank is one rank under mpirun; otherwise it does nothing.
func TestMPIRank(t *testing.T) {
	role, ok := roles[os.Getenv(envRole)]
	if !ok {
		t.Skip("a rank of the MPI tests, started by them")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	rank, _ := strconv.Atoi(os.Getenv("OMPI_COMM_WORLD_RANK"))
	o := hiersync.Options{Segment: 2048, Deadline: 20 * time.Second}
	if nodes := os.Getenv(envNodes); nodes != "" {
		o.Node = strings.Split(nodes, ",")[rank]
	}
	if os.Getenv(envRole) == "wait" || os.Getenv(envRole) == "go on" {
		o.Deadline = 4 * time.Second
	}
	c, err := hiersync.OpenMPI(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := role(ctx, c); err != nil {
		t.Errorf("rank %d: %v", c.Rank(), err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("rank %d: %v", c.Rank(), err)
	}
}

func conform(ctx context.Context, c *hiersync.Comm) error {
	var errs []error
	for _, check := range hiersynctest.Checks() {
		if err := check.Run(ctx, c); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", check.Name, err))
		}
		if c.Err() != nil {
			break
		}
	}
	return errors.Join(append(errs, goStillCatchesFaults())...)
}

// goStillCatchesFaults makes sure that the library has not taken the signals that
// Go turns into panics.
func goStillCatchesFaults() (err error) {
	defer func() {
		if recover() == nil {
			err = errors.New("a nil dereference was no panic")
		}
	}()
	var p *hiersync.Options
	_ = p.Segment
	return nil
}

// mismatch calls different operations and wants to hear so.
func mismatch(ctx context.Context, c *hiersync.Comm) error {
	x := make([]float32, 100+c.Rank())
	err := hiersync.Allreduce(ctx, c, hiersync.Sum, x)
	if !errors.Is(err, hiersync.ErrMismatch) {
		return fmt.Errorf("sums of different sizes: %v, want %v", err, hiersync.ErrMismatch)
	}
	return nil
}

// waitForTheDead: rank 1 disappears (by SIGKILL or SIGSTOP, from outside); the
// others wait in a barrier and must hear who it was.
func waitForTheDead(ctx context.Context, c *hiersync.Comm) error {
	fmt.Printf("pid of rank %d: %d\n", c.Rank(), os.Getpid())
	if c.Rank() == 1 {
		select {}
	}
	err := c.Barrier(ctx)
	var e *hiersync.RankError
	if !errors.As(err, &e) || e.Rank != 1 {
		return fmt.Errorf("got %v, want an error that names rank 1", err)
	}
	fmt.Printf("rank %d heard: %v\n", c.Rank(), err)
	if again := c.Barrier(ctx); again != err {
		return fmt.Errorf("a later call: %v, want the same error %v", again, err)
	}
	return nil
}

// goOn takes part in barriers for five seconds of its own time.
func goOn(ctx context.Context, c *hiersync.Comm) error {
	fmt.Printf("pid of rank %d: %d\n", c.Rank(), os.Getpid())
	for range 50 {
		time.Sleep(100 * time.Millisecond)
		if err := c.Barrier(ctx); err != nil {
			return err
		}
	}
	return nil
}

// needMPI skips the test where there is no MPI.
func needMPI(t *testing.T) string {
	t.Helper()
	mpirun, err := exec.LookPath("mpirun")
	if err != nil {
		t.Skip("no mpirun on this machine (Debian: openmpi-bin)")
	}
	if _, err := hiersync.MPIVersion(); err != nil {
		t.Skip(err)
	}
	if testing.Short() {
		t.Skip("starts processes; not with -short")
	}
	return mpirun
}

// underMPI prepares this test binary as the ranks of a world.
func underMPI(ctx context.Context, t *testing.T, ranks int, role, nodes string, extra ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	args := append([]string{
		"--allow-run-as-root", "--oversubscribe", "--mca", "btl_vader_single_copy_mechanism", "none", "-n", strconv.Itoa(ranks),
	}, extra...)
	args = append(args, os.Args[0], "-test.run", "^TestMPIRank$", "-test.v")
	cmd := exec.CommandContext(ctx, needMPI(t), args...)
	cmd.Env = append(os.Environ(), envRole+"="+role, envNodes+"="+nodes)
	out := new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = 5 * time.Second
	return cmd, out
}

func TestMPIConforms(t *testing.T) {
	for _, nodes := range []string{"0,1", "0,0,0,0", "0,1,0,1", ""} {
		t.Run("nodes "+nodes, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			ranks := 2
			if nodes != "" {
				ranks = len(strings.Split(nodes, ","))
			}
			cmd, out := underMPI(ctx, t, ranks, "conform", nodes)
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if n := strings.Count(out.String(), "--- PASS: TestMPIRank"); n != ranks {
				t.Errorf("%d of %d ranks passed\n%s", n, ranks, out)
			}
		})
	}
}
