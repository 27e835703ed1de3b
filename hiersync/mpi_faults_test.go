//go:build unix

package hiersync_test

import (
	"bytes"
	"context"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// locked is a buffer that is read while a process writes to it.
type locked struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

var pidLine = regexp.MustCompile(`pid of rank (\d+): (\d+)`)

// pids waits until every rank has told its process id.
func pids(t *testing.T, out *locked, ranks int) map[int]int {
	t.Helper()
	for range 600 {
		found := map[int]int{}
		for _, m := range pidLine.FindAllStringSubmatch(out.String(), -1) {
			rank, _ := strconv.Atoi(m[1])
			found[rank], _ = strconv.Atoi(m[2])
		}
		if len(found) == ranks {
			return found
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("the ranks do not start:\n%s", out)
	return nil
}

// TestA19SurvivorsNameTheLostRank is field failure A19 with processes: a rank is
// killed or stopped while the others wait for it. mpirun would end the survivors
// itself; --enable-recovery leaves that to them.
func TestA19SurvivorsNameTheLostRank(t *testing.T) {
	const ranks = 4
	for name, c := range map[string]struct {
		signal syscall.Signal
		cause  string
	}{
		"killed":  {syscall.SIGKILL, "the process is gone"},
		"stopped": {syscall.SIGSTOP, "no heartbeat within the deadline"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd, _ := underMPI(ctx, t, ranks, "wait", "0,1,0,1", "--enable-recovery")
			out := new(locked)
			cmd.Stdout, cmd.Stderr = out, out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lost := pids(t, out, ranks)[1]
			time.Sleep(200 * time.Millisecond)
			if err := syscall.Kill(lost, c.signal); err != nil {
				t.Error(err)
			}
			start := time.Now()
			for strings.Count(out.String(), "heard: hiersync: rank 1: ") < ranks-1 && time.Since(start) < 20*time.Second {
				time.Sleep(50 * time.Millisecond)
			}
			took := time.Since(start)
			syscall.Kill(lost, syscall.SIGKILL) // a stopped one would be waited for
			cmd.Wait()                          // mpirun is unhappy about the lost rank, as it should be
			if n := strings.Count(out.String(), c.cause); n < ranks-1 {
				t.Errorf("%d of %d survivors name the cause %q\n%s", n, ranks-1, c.cause, out)
			}
			if took > 9*time.Second { // deadline 4 s and 5 s
				t.Errorf("the survivors needed %v", took)
			}
		})
	}
}

// TestASuspendedJobGoesOn stops all ranks for longer than the deadline, as a
// scheduler that needs the machine does, and wakes them one after the other: nobody is
// blamed for the time in which nobody ran.
func TestASuspendedJobGoesOn(t *testing.T) {
	const ranks = 3
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd, _ := underMPI(ctx, t, ranks, "go on", "", "--enable-recovery")
	out := new(locked)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ids := pids(t, out, ranks)
	time.Sleep(500 * time.Millisecond)
	for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		for rank, pid := range ids {
			if err := syscall.Kill(pid, s); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
		if s == syscall.SIGSTOP {
			time.Sleep(6 * time.Second) // the deadline is 4 s
		}
	}
	if err := cmd.Wait(); err != nil || strings.Count(out.String(), "--- PASS: TestMPIRank") != ranks {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestMPIDifferentCallsAreFound(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd, out := underMPI(ctx, t, 3, "mismatch", "", "--enable-recovery")
	cmd.Run() // the ranks leave without MPI_Finalize: mpirun complains
	if n := strings.Count(out.String(), "--- PASS: TestMPIRank"); n != 3 {
		t.Errorf("%d of 3 ranks heard of it\n%s", n, out)
	}
}
