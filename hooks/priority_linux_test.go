package hooks

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Workers run at their own priority, and no other thread of the process does.
func TestWorkersHaveTheirOwnPriority(t *testing.T) {
	// Not the process's first thread: a worker of an earlier test may have had it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	base := niceOf(t, syscall.Gettid())
	if base > 12 {
		t.Skipf("the process runs at nice %d already", base)
	}
	p := newPool(t, PoolOptions[int]{Workers: 2, Nice: 5})
	defer mustClose(t, p)
	var got int
	p.Submit(&task{run: func(context.Context, int) error { got = niceOf(t, syscall.Gettid()); return nil }})
	if err := p.Drain(background); err != nil {
		t.Fatal(err)
	}
	if got != base+5 {
		t.Errorf("the worker runs at nice %d, want %d", got, base+5)
	}
	if now := niceOf(t, syscall.Gettid()); now != base {
		t.Errorf("another thread went from nice %d to %d", base, now)
	}
}

// niceOf reads a thread's nice value, field 19 of its stat file (proc(5)).
func niceOf(t *testing.T, tid int) int {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/task/" + strconv.Itoa(tid) + "/stat")
	if err != nil {
		t.Skipf("no /proc: %v", err)
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	n, err := strconv.Atoi(strings.Fields(rest)[16])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
