package train

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/trainer-olmo/asteria"
	"github.com/asteria-runtime/asteria/trainer-olmo/checkpoint"
)

// faultyBlock is the block whose solver is broken.
const faultyBlock = "layers.0.mlp.up_proj"

var _ asteria.Solvers = (*faulty)(nil)

// faulty is a solver that breaks for one block, from its after-th refresh on, for
// ever.
type faulty struct {
	how   string // fail, panic, NaN or hang
	after int64
	count atomic.Int64
	told  func() // of the first hang
}

// Solver32 implements [asteria.Solvers].
func (f *faulty) Solver32(block string, next kron.Refresher[float32]) kron.Refresher[float32] {
	if !strings.Contains(block, faultyBlock) || f.count.Add(1) <= f.after {
		return next
	}
	return brokenSolver{f}
}

// Solver64 implements [asteria.Solvers].
func (f *faulty) Solver64(_ string, next kron.Refresher[float64]) kron.Refresher[float64] {
	return next
}

type brokenSolver struct{ by *faulty }

func (s brokenSolver) fault(out []float32) error {
	switch s.by.how {
	case "panic":
		panic("a solver that panics")
	case "NaN":
		out[0] = float32(math.NaN())
		return nil
	case "hang":
		if s.by.told != nil {
			s.by.told()
		}
		select {}
	}
	return fmt.Errorf("a solver that fails")
}

func (s brokenSolver) Root(_ context.Context, dst, _ gemm.Matrix[float32], _ float64) error {
	return s.fault(dst.Data)
}

func (s brokenSolver) Eigen(_ context.Context, q gemm.Matrix[float32], _ []float32, _ gemm.Matrix[float32], _ bool) error {
	return s.fault(q.Data)
}

func (s brokenSolver) Iterate(_ context.Context, q, _ gemm.Matrix[float32], _ []int) error {
	return s.fault(q.Data)
}

func (s brokenSolver) Diagonalize(_ context.Context, q gemm.Matrix[float32], _ []float32, _ gemm.Matrix[float32], _ int, _ float64) error {
	return s.fault(q.Data)
}

// Field failures A2 and A6 in a run: a solver that fails, panics, returns NaN or
// hangs for one block for ever. The others go on, and after the configured failures
// the run ends with the block's name, and says so in health.json.
func TestA06_ABlockThatNeverRefreshesEndsTheRunByItsName(t *testing.T) {
	for _, mode := range []string{"native", "asteria"} {
		for _, how := range []string{"fail", "panic", "NaN", "hang"} {
			t.Run(mode+" "+how, func(t *testing.T) {
				t.Parallel()
				folder := t.TempDir()
				c := testConfig(t, folder, asteriaRun("soap", "runtime.mode="+mode, "runtime.job_timeout=200ms", "optimizer.max_failures=2",
					"checkpoint.interval=5", "train.steps=60")...)
				_, err := runOn[float32](context.Background(), c, Options{Solvers: &faulty{how: how, after: 2}}, openText)
				if err == nil || !strings.Contains(err.Error(), faultyBlock) || !strings.Contains(err.Error(), "3 consecutive refreshes failed") {
					t.Fatalf("%v", err)
				}
				text := string(mustRead(t, filepath.Join(folder, healthName)))
				if !strings.Contains(text, "the last 3 refreshes failed") || strings.Contains(text, "NaN") {
					t.Errorf("health.json: %s", text)
				}
				if c, err := checkpoint.Load(folder); err != nil || len(c.PassedOver) > 0 {
					t.Errorf("the last checkpoint: %v", err)
				}
			})
		}
	}
}

const (
	hangFolder = "ASTERIA_TEST_HANG_FOLDER"
	hangKind   = "ASTERIA_TEST_HANG_KIND"
)

// hangKinds are runs in which a refresh hangs for ever, with the default of no
// timeout; the number is that of the refreshes of the block that still work.
var hangKinds = map[string]struct {
	after int64
	set   []string
}{
	"beside training":           {8, []string{"runtime.lag_start=6"}},
	"before lag_start":          {3, nil},
	"in the first step":         {0, nil},
	"native":                    {3, []string{"runtime.mode=native"}},
	"native, threads":           {3, []string{"runtime.mode=native", "train.threads=2"}},
	"ready, beside training":    {8, []string{"runtime.lag_start=6", "runtime.adopt=ready"}},
	"in tiers, beside training": {8, []string{"runtime.lag_start=6", "tiers={host: 96KiB, nvme: {path: \"DRIVE\"}}"}},
	"in tiers, inside the step": {3, []string{"tiers={host: 96KiB, nvme: {path: \"DRIVE\"}}"}},
}

// hangOverrides make the run of a kind.
func hangOverrides(kind, folder string) []string {
	o := []string{"optimizer.name=soap", "checkpoint.interval=3", "train.steps=100000", "runtime.staleness=4"}
	for _, s := range hangKinds[kind].set {
		o = append(o, strings.ReplaceAll(s, "DRIVE", filepath.Join(folder, "drive")))
	}
	return o
}

// TestHelperHang is no test: it is the child of the next one, which trains until a
// signal ends it, as the command does.
func TestHelperHang(t *testing.T) {
	folder, kind := os.Getenv(hangFolder), os.Getenv(hangKind)
	if folder == "" {
		t.Skip("runs only as the child of TestA06_SIGTERMSavesWhileARefreshHangs")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	f := &faulty{how: "hang", after: hangKinds[kind].after, told: func() { fmt.Println("hangs") }}
	res, err := runOn[float32](ctx, testConfig(t, folder, hangOverrides(kind, folder)...), Options{Solvers: f}, openText)
	if err != nil || !res.Interrupted {
		t.Fatalf("%+v, %v", res, err)
	}
}

// Field failure A6, the watchdog, in a process: whichever way a refresh hangs, a
// run that is told to end saves within 10 seconds and ends with success, and the
// next process continues it.
func TestA06_SIGTERMSavesWhileARefreshHangs(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes that wait for seconds")
	}
	for kind := range hangKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			cmd, in := startChild(t, "TestHelperHang", "hangs", hangFolder+"="+folder, hangKind+"="+kind)
			time.Sleep(100 * time.Millisecond) // the step may wait for it now
			start := time.Now()
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			rest, _ := io.ReadAll(in)
			if err := cmd.Wait(); err != nil {
				t.Fatalf("the child: %v\n%s", err, rest)
			}
			if d := time.Since(start); d > 10*time.Second {
				t.Errorf("saved after %v", d)
			}
			c, err := checkpoint.Load(folder)
			if err != nil {
				t.Fatal(err)
			}
			pos, err := c.Position()
			if err != nil {
				t.Fatal(err)
			}
			at := pos.Step
			more := testConfig(t, folder, append(hangOverrides(kind, folder), fmt.Sprintf("train.stop_at=%d", at+20))...)
			if res := mustRun(t, more, Options{}); res.Resumed != at || res.Steps != at+20 {
				t.Errorf("resumed from %d, want %d: %+v", res.Resumed, at, res)
			}
		})
	}
}
