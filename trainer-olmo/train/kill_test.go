package train

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/asteria-runtime/asteria/trainer-olmo/checkpoint"
)

const (
	killFolder    = "ASTERIA_TEST_TRAIN_FOLDER"
	killOptimizer = "ASTERIA_TEST_TRAIN_OPTIMIZER"
	killNVMe      = "ASTERIA_TEST_TRAIN_NVME" // folder of the NVMe tier
	inTiers       = " in tiers"               // ends the name of a method that has one
)

// killOverrides make a run that saves often and lasts long enough to be killed.
// method is an optimizer, alone for the native mode, or followed by " asteria" for
// refreshes in the background, and then by inTiers for a state in tiers, too.
func killOverrides(method string) []string {
	if method, ok := strings.CutSuffix(method, inTiers); ok {
		tiers := fmt.Sprintf("tiers={host: 96KiB, nvme: {path: %q}}", os.Getenv(killNVMe))
		return append(killOverrides(method), tiers)
	}
	optimizer, mode, _ := strings.Cut(method, " ")
	o := []string{"runtime.mode=native"}
	if mode != "" {
		o = []string{"runtime.mode=" + mode, "runtime.lag_start=0", "runtime.workers=2", "optimizer.precondition_frequency=4"}
	}
	return append(o, "optimizer.name="+optimizer, "train.steps=90", "checkpoint.interval=2", "train.micro_batch_size=64", "train.threads=2")
}

// TestHelperTrain is no test: it is the child that the next one kills.
func TestHelperTrain(t *testing.T) {
	folder := os.Getenv(killFolder)
	if folder == "" {
		t.Skip("runs only as the child of TestKilledRunsContinue")
	}
	fmt.Println("ready")
	mustRun(t, testConfig(t, folder, killOverrides(os.Getenv(killOptimizer))...), Options{})
}

// TestKilledRunsContinue kills a process that trains and saves at random times.
// Every next process starts or resumes, and the last one ends with the digest of
// a run that was left alone. ASTERIA_LONG=1 makes it 50 kills a method.
func TestKilledRunsContinue(t *testing.T) {
	kills := 4
	methods := []string{"adamw", "soap", "soap asteria", "kl-shampoo asteria", "soap asteria" + inTiers}
	if os.Getenv("ASTERIA_LONG") == "1" {
		kills = 50
		methods = append(methods, "shampoo asteria"+inTiers, "kl-shampoo asteria"+inTiers)
	}
	t.Setenv(killNVMe, t.TempDir())
	for _, optimizer := range methods {
		t.Run(optimizer, func(t *testing.T) {
			const seed = 7
			r := rand.New(rand.NewPCG(seed, 0))
			folder, whole := t.TempDir(), t.TempDir()
			mustRun(t, testConfig(t, whole, killOverrides(optimizer)...), Options{})
			done := 0
			for kill := range kills {
				ended := killOnce(t, folder, optimizer, within(r, optimizer))
				if ended {
					done++
					if err := os.RemoveAll(folder); err != nil { // it got to the end: begin again
						t.Fatal(err)
					}
				}
				if c, err := checkpoint.Load(folder); err == nil {
					if _, err := c.Digest(); err != nil || len(c.PassedOver) > 0 {
						t.Fatalf("kill %d (seed %d): %v, passed over %v", kill, seed, err, c.PassedOver)
					}
				}
			}
			res, err := runOn[float32](context.Background(), testConfig(t, folder, killOverrides(optimizer)...), Options{}, openText)
			if err != nil {
				t.Fatal(err)
			}
			if a, b := digestOf(t, folder), digestOf(t, whole); a != b {
				t.Errorf("after %d kills\n%v\nwithout\n%v", kills, a, b)
			}
			if left, _ := filepath.Glob(filepath.Join(os.Getenv(killNVMe), "*")); len(left) > 0 {
				t.Errorf("left on NVMe: %v", left)
			}
			if got := losses(t, folder); len(got) != 90 {
				t.Errorf("%d lines of metrics, want 90", len(got))
			}
			t.Logf("%d kills, %d of them after the end; the last process took over at step %d", kills, done, res.Resumed)
		})
	}
}

// within is a random time to kill after; tiers take longer to begin.
func within(r *rand.Rand, optimizer string) time.Duration {
	most := 250
	if strings.HasSuffix(optimizer, inTiers) {
		most = 1500
	}
	return time.Duration(10+r.IntN(most)) * time.Millisecond
}

// killOnce starts a child and kills it; it reports whether the child had ended by
// itself, which it may only with success.
func killOnce(t *testing.T, folder, optimizer string, after time.Duration) bool {
	t.Helper()
	cmd, in := startChild(t, "TestHelperTrain", "ready", killFolder+"="+folder, killOptimizer+"="+optimizer)
	var rest bytes.Buffer
	time.Sleep(after)
	killErr := cmd.Process.Kill()
	if _, err := rest.ReadFrom(in); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	if cmd.ProcessState.Exited() {
		if err != nil {
			t.Fatalf("the child failed: %v\n%s", err, &rest)
		}
		return true
	}
	if killErr != nil && !errors.Is(killErr, os.ErrProcessDone) {
		t.Fatal(killErr)
	}
	return false
}

// startChild runs one test of this binary in a process of its own, with more of an
// environment, and returns when it has said that it is where it is wanted. What it
// says afterwards is to be read.
func startChild(t *testing.T, test, says string, env ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+test+"$")
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(out)
	if line, err := in.ReadString('\n'); line != says+"\n" {
		rest, _ := io.ReadAll(in)
		t.Fatalf("the child says %q, %v\n%s", line, err, rest)
	}
	return cmd, in
}
