//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/asteria-runtime/asteria/hiersync"
	"github.com/asteria-runtime/asteria/trainer-olmo/checkpoint"
)

// Times of the runs that lose a rank.
const (
	lostDeadline = 4 * time.Second
	lostGrace    = 5 * time.Second // survivors must have ended a deadline and this later
	lostSteps    = 120
	lostInterval = 5 // steps between two checkpoints
)

// worldEnv marks the processes of one world, so that the test finds them.
const worldEnv = "ASTERIA_TEST_WORLD"

// lostCase is a rank that dies or stops, and what it was doing.
type lostCase struct {
	name     string
	set      []string // overrides: the method
	victim   int
	signal   syscall.Signal
	inside   bool // while it waits in a collective, else while it computes
	nodes    bool // ranks 0, 1 and ranks 2, 3 are nodes
	recovery bool // mpirun --enable-recovery
	ranks    int  // 0 means 4
}

// Methods of the runs: refreshes in every step, so that a rank that computes
// computes a refresh nearly all the time.
var (
	nativeShampoo  = []string{"optimizer.name=shampoo", "runtime.mode=native", "optimizer.precondition_frequency=1"}
	asteriaSOAP    = []string{"optimizer.name=soap", "runtime.mode=asteria", "runtime.lag_start=0", "optimizer.precondition_frequency=3"}
	asteriaShampoo = []string{"optimizer.name=shampoo", "runtime.mode=asteria", "runtime.lag_start=0", "optimizer.precondition_frequency=2"}
	shardedSOAP    = []string{"optimizer.name=soap", "runtime.mode=native", "optimizer.precondition_frequency=1", "parallel.shard=true"}
)

// lostCases are those of field failure A19 by how the rank is lost, where it is, and
// whether mpirun ends the survivors or leaves that to them.
func lostCases() []lostCase {
	return []lostCase{
		{name: "killed while it computes a root", set: nativeShampoo, victim: 3, signal: syscall.SIGKILL, recovery: true},
		{name: "stopped while it computes a root", set: nativeShampoo, victim: 2, signal: syscall.SIGSTOP, recovery: true},
		{name: "killed inside a collective", set: asteriaSOAP, victim: 3, signal: syscall.SIGKILL, inside: true, recovery: true},
		{name: "stopped inside a collective", set: asteriaShampoo, victim: 3, signal: syscall.SIGSTOP, inside: true, recovery: true},
		{name: "killed as leader of the second node", set: asteriaSOAP, victim: 2, signal: syscall.SIGKILL, nodes: true, recovery: true},
		{name: "stopped as leader of the first node", set: asteriaShampoo, victim: 0, signal: syscall.SIGSTOP, nodes: true, recovery: true},
		{name: "killed with sharded state", set: shardedSOAP, victim: 1, signal: syscall.SIGKILL, recovery: true},
		{name: "stopped with sharded state", set: shardedSOAP, victim: 0, signal: syscall.SIGSTOP, recovery: true},
		{name: "killed under a plain mpirun", set: asteriaSOAP, victim: 3, signal: syscall.SIGKILL},
		{name: "killed as leader under a plain mpirun", set: nativeShampoo, victim: 0, signal: syscall.SIGKILL},
		{name: "stopped under a plain mpirun", set: asteriaSOAP, victim: 1, signal: syscall.SIGSTOP},
	}
}

// TestA19ALostRankEndsTheRun is field failure A19 with the command under mpirun:
// the others end within the deadline and 5 s, name the rank, exit with a failure and
// save nothing; the last checkpoint goes on with 1, 2, 3 and 4 ranks, and with 4
// ends with the digest of the run that was left alone. ASTERIA_LONG=1 runs all
// cases, otherwise it is one of them, on two ranks.
func TestA19ALostRankEndsTheRun(t *testing.T) {
	needMPIRun(t)
	cases := lostCases()
	if os.Getenv("ASTERIA_LONG") == "" {
		cases = []lostCase{{name: "killed while it computes", set: nativeShampoo, victim: 1, signal: syscall.SIGKILL, recovery: true, ranks: 2}}
	}
	whole := map[string]checkpoint.Digest{} // by method and ranks
	for _, c := range cases {
		if c.ranks == 0 {
			c.ranks = 4
		}
		t.Run(c.name, func(t *testing.T) {
			key := fmt.Sprint(c.ranks, c.set)
			want, ok := whole[key]
			if !ok {
				file, folder := lostConfig(t)
				must(t, append([]string{"train", file, fmt.Sprintf("parallel.ranks=%d", c.ranks)}, c.set...)...)
				want = mustDigest(t, folder)
				whole[key] = want
			}
			loseRank(t, c, want)
		})
	}
}

// needMPIRun skips the test where ranks cannot be started.
func needMPIRun(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes; not with -short")
	}
	if _, err := exec.LookPath("mpirun"); err != nil {
		t.Skip("no mpirun on this machine (Debian: openmpi-bin)")
	}
	if _, err := hiersync.MPIVersion(); err != nil {
		t.Skip(err)
	}
}

// lostConfig is a run whose steps are mostly refreshes and that saves often.
func lostConfig(t *testing.T) (file, folder string) {
	t.Helper()
	dir := t.TempDir()
	text := strings.Repeat("a text that says the same again and again, and again, 0123456789\n", 300)
	folder = filepath.Join(dir, "run")
	return write(t, filepath.Join(dir, "lost.yaml"), fmt.Sprintf(`
run_name: lost
save_folder: %s
model: {d_model: 64, n_layers: 2, n_heads: 2, hidden_size: 64}
data: {paths: [%s], cache_folder: %s, sequence_length: 16}
train: {steps: %d, global_batch_size: 128, micro_batch_size: 16, threads: 1}
optimizer: {lr: 1e-3}
runtime: {workers: 1}
scheduler: {warmup: 2}
checkpoint: {interval: %d, keep: 3}
eval: {disabled: true}
parallel: {deadline: %s, hash_every: 10}
`, folder, write(t, filepath.Join(dir, "text.txt"), text), filepath.Join(dir, "cache"), lostSteps, lostInterval, lostDeadline)), folder
}

func mustDigest(t *testing.T, folder string) checkpoint.Digest {
	t.Helper()
	d, err := checkpoint.DigestDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// loseRank starts a world, takes a rank away and looks at what is left.
func loseRank(t *testing.T, c lostCase, want checkpoint.Digest) {
	file, folder := lostConfig(t)
	w := startWorld(t, c, file)
	w.await(t, folder, 2*lostInterval)
	at := w.lose(t, c)
	w.survivorsEnd(t, c, at)
	w.end(t, c)
	w.check(t, c, folder)
	for ranks := 1; ranks <= c.ranks; ranks++ {
		dir := filepath.Join(t.TempDir(), strconv.Itoa(ranks))
		if err := os.CopyFS(dir, os.DirFS(folder)); err != nil {
			t.Fatal(err)
		}
		must(t, append([]string{"train", file, "save_folder=" + dir, fmt.Sprintf("parallel.ranks=%d", ranks)}, c.set...)...)
		got, err := checkpoint.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got.Meta.Position.Step != lostSteps {
			t.Errorf("on %d ranks the run goes on to step %d, want %d", ranks, got.Meta.Position.Step, lostSteps)
		}
		if d := mustDigest(t, dir); ranks == c.ranks && d.Total != want.Total {
			t.Errorf("the run that lost a rank ends with\n%v\nthe one left alone with\n%v", d, want)
		}
	}
}

// world is the command on several ranks under mpirun.
type world struct {
	cmd  *exec.Cmd
	out  *output
	pids []int // by rank
	done chan error
}

// output is a buffer that is read while processes write.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// startWorld starts mpirun and finds the processes of the ranks.
func startWorld(t *testing.T, c lostCase, file string) *world {
	t.Helper()
	w := launch(t, c, file)
	t.Cleanup(func() {
		for _, pid := range w.pids {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	if w.pids = findRanks(file, c.ranks); w.pids == nil {
		t.Fatalf("the ranks do not start:\n%s", w.out)
	}
	return w
}

// launch starts mpirun. With recovery each rank runs under a shell that tells how it
// ended: mpirun does not.
func launch(t *testing.T, c lostCase, file string) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	args := []string{"--allow-run-as-root", "--oversubscribe", "--mca", "btl_vader_single_copy_mechanism", "none"}
	rank := append([]string{os.Args[0], "train", file}, c.set...)
	if c.recovery {
		args = append(args, "--enable-recovery")
		rank = append([]string{"sh", "-c", `"$0" "$@"; s=$?; echo "rank $OMPI_COMM_WORLD_RANK ended with $s."; exit $s`}, rank...)
	}
	if c.nodes {
		args = append(args, "-n", "2")
		args = append(append(args, rank...), "parallel.node=first", ":", "-n", "2")
		args = append(append(args, rank...), "parallel.node=second")
	} else {
		args = append(append(args, "-n", strconv.Itoa(c.ranks)), rank...)
	}
	w := &world{cmd: exec.CommandContext(ctx, "mpirun", args...), out: new(output), done: make(chan error, 1)}
	w.cmd.Env = append(os.Environ(), runEnv+"=1", worldEnv+"="+file)
	w.cmd.Stdout, w.cmd.Stderr = w.out, w.out
	w.cmd.WaitDelay = 5 * time.Second
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { w.done <- w.cmd.Wait() }()
	return w
}

// findRanks waits for the processes of a world and returns their ids by rank.
func findRanks(file string, ranks int) []int {
	self, _ := os.Executable()
	for range 600 {
		pids, found := make([]int, ranks), 0
		dirs, _ := filepath.Glob("/proc/[0-9]*")
		for _, dir := range dirs {
			env, _ := os.ReadFile(filepath.Join(dir, "environ"))
			exe, _ := os.Readlink(filepath.Join(dir, "exe"))
			vars := strings.Split(string(env), "\x00")
			if exe != self || !slices.Contains(vars, worldEnv+"="+file) {
				continue
			}
			for r := range ranks {
				if slices.Contains(vars, fmt.Sprintf("OMPI_COMM_WORLD_RANK=%d", r)) {
					pids[r], _ = strconv.Atoi(filepath.Base(dir))
					found++
				}
			}
		}
		if found == ranks {
			return pids
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

// await waits for a checkpoint of a step or a later one.
func (w *world) await(t *testing.T, folder string, step int64) {
	t.Helper()
	for range 1500 {
		if c, err := checkpoint.Load(folder); err == nil && c.Meta.Position.Step >= step {
			return
		}
		select {
		case err := <-w.done:
			t.Fatalf("the run ended before it lost a rank: %v\n%s", err, w.out)
		case <-time.After(20 * time.Millisecond):
		}
	}
	t.Fatalf("no checkpoint of step %d:\n%s", step, w.out)
}

// lose takes the rank away. To have it inside a collective, another rank is stopped
// for a while, for which all others have to wait there.
func (w *world) lose(t *testing.T, c lostCase) time.Time {
	t.Helper()
	keep := (c.victim + 1) % c.ranks
	if c.inside {
		w.kill(t, keep, syscall.SIGSTOP)
		time.Sleep(lostDeadline / 4)
	}
	w.kill(t, c.victim, c.signal)
	at := time.Now()
	if c.inside {
		w.kill(t, keep, syscall.SIGCONT)
	}
	return at
}

func (w *world) kill(t *testing.T, rank int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(w.pids[rank], s); err != nil {
		t.Fatalf("signal %v to rank %d: %v\n%s", s, rank, err, w.out)
	}
}

// survivorsEnd waits for the end of the other processes.
func (w *world) survivorsEnd(t *testing.T, c lostCase, at time.Time) {
	t.Helper()
	limit := lostDeadline + lostGrace
	for time.Since(at) < 3*limit {
		left := 0
		for rank, pid := range w.pids {
			if rank != c.victim && alive(pid) {
				left++
			}
		}
		if left == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if took := time.Since(at); took > limit {
		t.Errorf("the survivors needed %v, want at most %v\n%s", took, limit, w.out)
	}
}

// alive reports whether a process runs or is stopped; one that nobody has waited
// for yet does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// end lets mpirun end, which with recovery waits for a stopped rank.
func (w *world) end(t *testing.T, c lostCase) {
	t.Helper()
	if c.recovery {
		syscall.Kill(w.pids[c.victim], syscall.SIGKILL)
	}
	select {
	case err := <-w.done:
		if err == nil && !c.recovery { // with recovery its status is that of no rank in particular
			t.Errorf("mpirun ended without an error:\n%s", w.out)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("mpirun does not end:\n%s", w.out)
	}
}

// check looks at the messages and at the checkpoints.
func (w *world) check(t *testing.T, c lostCase, folder string) {
	t.Helper()
	out := w.out.String()
	cause := "connection lost, the process is gone"
	if c.signal == syscall.SIGSTOP {
		cause = "no heartbeat within the deadline"
	}
	for rank := range c.ranks {
		named := regexp.MustCompile(fmt.Sprintf(`rank %d: .*hiersync: rank %d: %s`, rank, c.victim, cause)).MatchString(out)
		failed := strings.Contains(out, fmt.Sprintf("rank %d ended with 1.", rank))
		if rank != c.victim && c.recovery && !(named && failed) {
			t.Errorf("rank %d: names rank %d: %v, ends with status 1: %v", rank, c.victim, named, failed)
		}
	}
	if !c.recovery && !regexp.MustCompile(fmt.Sprintf(`hiersync: rank %d: %s|process rank %d .* exited on signal 9`, c.victim, cause, c.victim)).MatchString(out) {
		t.Errorf("nobody names rank %d", c.victim)
	}
	dirs, err := filepath.Glob(filepath.Join(folder, "checkpoints", "step*"))
	if err != nil || len(dirs) == 0 {
		t.Errorf("checkpoints: %v, %v", dirs, err)
	}
	for _, dir := range dirs {
		if step, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(dir), "step"), ".tmp")); err != nil || step%lostInterval != 0 {
			t.Errorf("a checkpoint was begun after a rank was lost: %s", dir)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}
