package uvm

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestRaceInABufferIsReported runs itself in a child process under the race
// detector: without the Go heap underneath, a race in a buffer would go unseen.
func TestRaceInABufferIsReported(t *testing.T) {
	if os.Getenv("UVM_SEED_RACE") != "" {
		seedRace(t)
		return
	}
	if !raceEnabled {
		t.Skip("needs -race: the detector is not in this binary")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run", "^TestRaceInABufferIsReported$")
	cmd.Env = append(os.Environ(), "UVM_SEED_RACE=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "DATA RACE") {
		t.Fatalf("the seeded race was not reported: %v\n%s", err, out)
	}
}

func seedRace(t *testing.T) {
	b := alloc(t, Host{}, 64)
	done := make(chan struct{})
	go func() {
		b.Bytes()[0]++
		close(done)
	}()
	b.Bytes()[0]++
	<-done
}
