package gemm

import (
	"runtime"
	"testing"
	"time"
)

// The thread must be somewhere else afterwards, but free to come back; the system may
// move it on at once, so that one change in many tries has to do.
func TestStepAsideMovesTheThreadAndKeepsItFree(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after processors
	if _, ok := thisProcessor(); !ok || !before.get() {
		t.Skip("the system does not tell where a thread runs")
	}
	moved := false
	for range 50 {
		old, _ := thisProcessor()
		stepAside()
		now, _ := thisProcessor()
		moved = moved || old != now
	}
	if !after.get() || before != after {
		t.Errorf("the thread may run on %x, before on %x", after, before)
	}
	if runtime.NumCPU() > 1 && !moved {
		t.Error("50 calls did not move the thread")
	}
	if n := testing.AllocsPerRun(10, stepAside); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A caller looks out for a worker until it is here, or until its patience ends.
func TestLookOutEnds(t *testing.T) {
	p := newPool(1)
	defer p.close()
	w := p.workers[0]
	for _, c := range []struct {
		name   string
		absent bool
		woken  time.Time
		stays  bool
	}{
		{"nobody was woken", false, time.Time{}, false},
		{"the worker is here", false, time.Now(), false},
		{"the worker may still come", true, time.Now().Add(time.Hour), true},
		{"the worker is late", true, time.Now().Add(-time.Hour), false},
	} {
		w.absent.Store(c.absent)
		p.woken = c.woken
		p.lookOut()
		if !p.woken.IsZero() != c.stays {
			t.Errorf("%s: looks out for longer: %v", c.name, !c.stays)
		}
	}
}
