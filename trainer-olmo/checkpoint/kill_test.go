package checkpoint

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"
)

const killEnv = "ASTERIA_TEST_CHECKPOINT_DIR"

// TestHelperSaver is no test: it is the child that the next one kills. It saves
// one checkpoint after the other until it dies.
func TestHelperSaver(t *testing.T) {
	dir := os.Getenv(killEnv)
	if dir == "" {
		t.Skip("runs only as the child of TestA27_KilledProcess")
	}
	s, err := Open(dir, Options{Keep: 2})
	if err != nil {
		t.Fatal(err)
	}
	next := int64(1)
	if c, err := s.Latest(); err == nil {
		next = c.Meta.Position.Step + 1
	} else if !errors.Is(err, ErrNone) {
		t.Fatal(err)
	}
	fmt.Println("ready")
	for step := next; ; step++ {
		if err := s.Wait(); err != nil {
			t.Fatal(err)
		}
		if err := s.SaveAsync(state(1, step)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestA27_KilledProcess kills a process that saves without pause, at 20 random
// times. Each time the newest checkpoint is whole, and no step that was once
// complete is lost.
func TestA27_KilledProcess(t *testing.T) {
	const seed = 27
	r := rand.New(rand.NewPCG(seed, 0))
	dir, last := t.TempDir(), int64(0)
	for kill := range 20 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestHelperSaver$")
		cmd.Env = append(os.Environ(), killEnv+"="+dir)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
			t.Fatalf("kill %d (seed %d): the child says %q, %v", kill, seed, line, err)
		}
		time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil && cmd.ProcessState.Exited() {
			t.Fatalf("kill %d (seed %d): the child ended by itself: %v", kill, seed, err)
		}
		c, err := Latest(dir)
		if errors.Is(err, ErrNone) && last == 0 {
			continue
		}
		if err != nil || len(c.PassedOver) > 0 {
			t.Fatalf("kill %d (seed %d): %v, passed over %v", kill, seed, err, c)
		}
		step := c.Meta.Position.Step
		if d, err := c.Digest(); err != nil || d != DigestState(state(1, step)) || step < last {
			t.Fatalf("kill %d (seed %d): step %d after %d: %v", kill, seed, step, last, err)
		}
		last = step
	}
	if last == 0 {
		t.Skip("no checkpoint was ever completed: this machine is too slow for the test")
	}
}
