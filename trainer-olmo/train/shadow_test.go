package train

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/asteria-runtime/asteria/trainer-olmo/asteria"
	"github.com/asteria-runtime/asteria/trainer-olmo/checkpoint"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// asteriaRun are the overrides of a run whose refreshes are late from step 6 on.
func asteriaRun(optimizer string, more ...string) []string {
	return append([]string{"optimizer.name=" + optimizer, "runtime={mode: asteria, staleness: 4, lag: 3, lag_start: 6, workers: 1}"}, more...)
}

var shadowed3 = []string{"shampoo", "soap", "kl-shampoo"}

// The digest of a run with scheduled adoption depends neither on workers nor
// threads nor on how often it was interrupted; with nothing late it is that of the
// native optimizer.
func TestScheduledRunsKeepTheDigest(t *testing.T) {
	for _, name := range shadowed3 {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			digest := func(overrides ...string) string {
				folder := t.TempDir()
				mustRun(t, testConfig(t, folder, overrides...), Options{})
				return digestOf(t, folder).Total
			}
			want := digest(asteriaRun(name)...)
			for _, workers := range []int{2, 8} {
				if got := digest(asteriaRun(name, fmt.Sprintf("runtime.workers=%d", workers), "train.threads=2")...); got != want {
					t.Errorf("%d workers: digest %s, want %s", workers, got, want)
				}
			}
			native := digest("optimizer.name="+name, "runtime.mode=native")
			if native == want {
				t.Error("late adoption changed nothing: the test is void")
			}
			if got := digest(asteriaRun(name, "runtime={staleness: 0, lag: -1}")...); got != native {
				t.Errorf("staleness 0: digest %s, want that of native mode, %s", got, native)
			}
			folder := t.TempDir()
			for i, stop := range []int{13, 27, 0} {
				more := []string{fmt.Sprintf("train.stop_at=%d", stop), fmt.Sprintf("train.threads=%d", 1+i%2), fmt.Sprintf("runtime.workers=%d", 1+i)}
				mustRun(t, testConfig(t, folder, asteriaRun(name, more...)...), Options{})
			}
			if got := digestOf(t, folder).Total; got != want {
				t.Errorf("after two resumes: digest %s, want %s", got, want)
			}
			compareLosses(t, 1, losses(t, folder), lossesOf(t, asteriaRun(name)), 0)
		})
	}
}

func lossesOf(t *testing.T, overrides []string) []float64 {
	t.Helper()
	folder := t.TempDir()
	mustRun(t, testConfig(t, folder, overrides...), Options{})
	return losses(t, folder)
}

// Field failure A26 beside training: every section, so every counter, version,
// age and pending refresh, is what it is without the resume.
func TestA26_ResumeKeepsPendingRefreshes(t *testing.T) {
	for _, name := range shadowed3 {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := func(folder string, stop int) *run[float32] {
				c := testConfig(t, folder, asteriaRun(name, "train.steps=80", fmt.Sprintf("train.stop_at=%d", stop))...)
				r := &run[float32]{cfg: c, opts: Options{}.withDefaults()}
				if err := r.open(openText); err != nil {
					t.Fatal(err)
				}
				if err := r.loop(context.Background()); err != nil {
					t.Fatal(err)
				}
				return r
			}
			folder := t.TempDir()
			whole := at(t.TempDir(), 57)
			first := at(folder, 56)
			inFlight := first.stepper.opt.(totaler).Totals().InFlight
			if err := first.close(); err != nil {
				t.Fatal(err)
			}
			if inFlight == 0 {
				t.Fatal("nothing is in flight at the stop: the test is void")
			}
			resumed := at(folder, 57)
			compareSections(t, resumed, whole)
			a, b := resumed.state().Runtime, whole.state().Runtime
			for i := range a {
				if strings.HasSuffix(a[i].Name, "/meta") && fmt.Sprint(a[i].I64) != fmt.Sprint(b[i].I64) {
					t.Errorf("%s is %v, want %v", a[i].Name, a[i].I64, b[i].I64)
				}
			}
			for _, r := range []*run[float32]{whole, resumed} {
				if err := r.close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// slowDisk is a file system whose files are written slowly.
type slowDisk struct{ checkpoint.OS }

func (f slowDisk) Create(path string) (checkpoint.File, error) {
	time.Sleep(3 * time.Millisecond)
	return f.OS.Create(path)
}

// Field failure A25: with refreshes on their way and a slow writer beside
// training, each checkpoint is of one step, through and through: a run that goes on
// from it ends with the bits of the others.
func TestA25_CheckpointsBesideTrainingAreOfOneStep(t *testing.T) {
	for _, name := range shadowed3 {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			mustRun(t, testConfig(t, folder, asteriaRun(name, "checkpoint={interval: 7, keep: 0}")...), Options{FS: slowDisk{}})
			want := digestOf(t, folder).Total
			for _, step := range []int{7, 14, 21, 28} {
				dir := filepath.Join(folder, "checkpoints", fmt.Sprintf("step%d", step))
				again := t.TempDir()
				mustRun(t, testConfig(t, again, asteriaRun(name, "checkpoint.load_path="+dir)...), Options{})
				if got := digestOf(t, again).Total; got != want {
					t.Errorf("from step %d: digest %s, want %s", step, got, want)
				}
			}
		})
	}
}

// A run that adopts when ready repeats by its log.
func TestReadyRunReplaysItsLog(t *testing.T) {
	ready := asteriaRun("soap", "runtime={adopt: ready, lag: -1}", "optimizer.precondition_frequency=1")
	folder, again := t.TempDir(), t.TempDir()
	for _, stop := range []int{17, 0} {
		mustRun(t, testConfig(t, folder, append(ready, fmt.Sprintf("train.stop_at=%d", stop))...), Options{})
	}
	log := filepath.Join(folder, adoptionsName)
	if n := strings.Count(string(mustRead(t, log)), "\n"); n < 10 {
		t.Fatalf("%d adoptions", n)
	}
	mustRun(t, testConfig(t, again, append(ready, "runtime.replay="+log, "runtime.workers=3")...), Options{})
	if got, want := digestOf(t, again).Total, digestOf(t, folder).Total; got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
	if got, want := mustRead(t, filepath.Join(again, adoptionsName)), mustRead(t, log); string(got) != string(want) {
		t.Error("the replay has another log than what it replays")
	}
	c := testConfig(t, t.TempDir(), append(ready, "runtime.replay="+filepath.Join(folder, "none"))...)
	if _, err := runOn[float32](context.Background(), c, Options{}, openText); err == nil || !strings.Contains(err.Error(), "runtime.replay") {
		t.Errorf("without a log: %v", err)
	}
	c = testConfig(t, t.TempDir(), append(ready, "runtime.replay="+filepath.Join(folder, configName))...)
	if _, err := runOn[float32](context.Background(), c, Options{}, openText); err == nil || !strings.Contains(err.Error(), configName+":1:") {
		t.Errorf("with another file: %v", err)
	}
}

// A resume in native mode drops what is pending and says so; one in asteria mode
// from a native checkpoint has nothing pending.
func TestModeMayChangeAtAResume(t *testing.T) {
	for _, modes := range [][2]string{{"asteria", "native"}, {"native", "asteria"}} {
		folder := t.TempDir()
		var warned strings.Builder
		for i, mode := range modes {
			c := testConfig(t, folder, asteriaRun("soap", "runtime.mode="+mode, fmt.Sprintf("train.stop_at=%d", 17+10*i))...)
			mustRun(t, c, Options{Logger: textLogger(&warned)})
		}
		if got := strings.Contains(warned.String(), "refreshes in flight"); got != (modes[0] == "asteria") {
			t.Errorf("%v: %s", modes, warned.String())
		}
	}
}

func TestMetricsAndTraceOfARunBesideTraining(t *testing.T) {
	folder := t.TempDir()
	mustRun(t, testConfig(t, folder, asteriaRun("shampoo", "trace=true")...), Options{})
	recs, err := ReadMetrics(folder)
	if err != nil {
		t.Fatal(err)
	}
	last, busy, flying := recs[len(recs)-1], 0.0, 0.0
	for _, r := range recs {
		busy += r[mWorkers]
		flying = max(flying, r[mInFlight])
	}
	if last[mLateMax] != 3 || busy <= 0 || flying < 1 || last[mAbandoned] != 0 || last[mAge] < 4 {
		t.Errorf("busy %g, in flight %g, last %v", busy, flying, last)
	}
	for _, key := range []string{mBacklog, mBarrier, mCoalesced} {
		if _, ok := last[key]; !ok {
			t.Errorf("no %s", key)
		}
	}
	var events []struct {
		Phase string   `json:"ph"`
		Name  string   `json:"name"`
		Row   int      `json:"tid"`
		At    *float64 `json:"ts"`
		Dur   float64  `json:"dur"`
	}
	if err := json.Unmarshal(mustRead(t, filepath.Join(folder, traceName)), &events); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, e := range events {
		kind, _, _ := strings.Cut(e.Name, " ")
		if e.Phase == "X" {
			count[fmt.Sprint(kind, " ", e.Row)]++
			if e.At == nil || e.Dur < 0 || math.IsNaN(e.Dur) {
				t.Errorf("%+v", e)
			}
		}
	}
	if count["step 1"] != 40 || count["forward 2"] != 80 || count["backward 2"] != 80 || count["update 2"] != 40 ||
		count["refresh 1"] == 0 || count["refresh 11"] == 0 {
		t.Errorf("%v", count)
	}
}

// A run that is told to end while a refresh hangs gives it up and saves.
func TestHungRefreshDoesNotKeepARunFromSaving(t *testing.T) {
	t.Parallel()
	c := testConfig(t, t.TempDir(), asteriaRun("shampoo")...)
	r := &run[float32]{cfg: c, opts: Options{}.withDefaults()}
	if err := r.open(openText); err != nil {
		t.Fatal(err)
	}
	hung := &hungOptimizer{Optimizer: r.stepper.opt, free: make(chan struct{})}
	r.stepper.opt = hung
	ctx, cancel := context.WithCancel(context.Background())
	hung.onStep = func(step int64) {
		if step == 3 {
			cancel()
		}
	}
	start := time.Now()
	if err := r.loop(ctx); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d < hurryAfter || d > 2*hurryAfter {
		t.Errorf("saved after %v", d)
	}
	if !r.interrupted || hung.hurried == 0 {
		t.Errorf("interrupted %v, hurried %d", r.interrupted, hung.hurried)
	}
	r.stepper.opt = hung.Optimizer
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.Latest(filepath.Join(c.SaveFolder, storeName)); err != nil {
		t.Error(err)
	}
}

// hungOptimizer waits in Settle until it is hurried.
type hungOptimizer struct {
	param.Optimizer
	onStep  func(step int64)
	free    chan struct{}
	hurried int
}

func (h *hungOptimizer) Step(step int64, lr float64) error {
	h.onStep(step)
	return h.Optimizer.Step(step, lr)
}

func (h *hungOptimizer) inner() shadowed { return h.Optimizer.(shadowed) }

func (h *hungOptimizer) Settle(ctx context.Context) error {
	<-h.free
	return h.inner().Settle(ctx)
}

func (h *hungOptimizer) Hurry() int {
	if h.hurried++; h.hurried == 1 {
		close(h.free)
	}
	return h.inner().Hurry()
}

func (h *hungOptimizer) PendingSections() []param.Section { return h.inner().PendingSections() }
func (h *hungOptimizer) Restored() error                  { return h.inner().Restored() }
func (h *hungOptimizer) Load() (asteria.Load, bool)       { return h.inner().Load() }

func textLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }
