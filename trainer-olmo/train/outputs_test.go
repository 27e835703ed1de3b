package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/checkpoint"
	"github.com/asteria-runtime/asteria/trainer-olmo/checkpoint/safetensors"
	"github.com/asteria-runtime/asteria/trainer-olmo/config"
	"github.com/asteria-runtime/asteria/trainer-olmo/data"
	"github.com/asteria-runtime/asteria/trainer-olmo/model"
)

func TestRunFolderHoldsWhatItShould(t *testing.T) {
	folder := t.TempDir()
	res := mustRun(t, testConfig(t, folder, "optimizer.name=soap", "eval.disabled=false", "eval.interval=10", "checkpoint.interval=15", "checkpoint.keep=2"), Options{})
	for _, name := range []string{configName, metricsName, healthName, "checkpoints/step30/metadata.json", "checkpoints/step40/model.safetensors", "checkpoints/latest"} {
		if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(folder, "checkpoints/step15")); !os.IsNotExist(err) {
		t.Errorf("step15 is still there with keep 2: %v", err)
	}
	recs, err := ReadMetrics(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []int{10, 20, 30, 40} {
		if _, ok := recs[step-1][mEvalCE]; !ok {
			t.Errorf("step %d has no evaluation", step)
		}
	}
	if recs[0][mFirst] != 1 || recs[1][mFirst] != 0 {
		t.Error("the first step of the process is not marked, or another is")
	}
	if _, ok := recs[0][mTPS]; ok {
		t.Error("the first step has a speed")
	}
	last := recs[39]
	for _, name := range []string{mCE, mPPL, mZ, mNorm, mLR, mAuxLR, mTPS, mTPSAvg, mTime, mTokens, mFlops, mChin, mAge, mRefreshed} {
		if v, ok := last[name]; !ok || !finite(v) {
			t.Errorf("the last step has no %q", name)
		}
	}
	if res.HeldOut != last[mEvalCE] || res.Loss != last[mCE] || res.Tokens != int64(last[mTokens]) || res.Steps != 40 {
		t.Errorf("the result %+v is not that of the last line %v", res, last)
	}
	if last[mRefreshed] == 0 {
		t.Error("soap made no refresh")
	}
	// The resolved configuration is a configuration, of the same run.
	again, err := config.Load(filepath.Join(folder, configName), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again.YAML(), mustRead(t, filepath.Join(folder, configName))) {
		t.Error("config.yaml does not resolve to itself")
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fullDisk lets no checkpoint of some steps through.
type fullDisk struct {
	checkpoint.OS
	steps []string
}

func (f fullDisk) MkdirAll(path string) error {
	for _, s := range f.steps {
		if strings.HasSuffix(path, s+".tmp") {
			return &os.PathError{Op: "mkdir", Path: path, Err: syscall.ENOSPC}
		}
	}
	return f.OS.MkdirAll(path)
}

func TestFullDiskDoesNotStopTraining(t *testing.T) {
	folder := t.TempDir()
	var log, out bytes.Buffer
	o := Options{FS: fullDisk{steps: []string{"step20"}}, Logger: slog.New(slog.NewTextHandler(&log, nil)), Out: &out}
	res := mustRun(t, testConfig(t, folder, "checkpoint.interval=10", "checkpoint.keep=0"), o)
	if res.Steps != 40 {
		t.Errorf("the run ended at step %d", res.Steps)
	}
	if !strings.Contains(log.String(), "could not be saved") || !strings.Contains(out.String(), "could not be saved") {
		t.Errorf("nobody was told:\n%s\n%s", &log, &out)
	}
	recs, _ := ReadMetrics(folder)
	if recs[39][mSaveFail] != 1 {
		t.Errorf("%v failed saves in the metrics, want 1", recs[39][mSaveFail])
	}
	whole := t.TempDir()
	mustRun(t, testConfig(t, whole), Options{})
	if digestOf(t, folder).Total != digestOf(t, whole).Total {
		t.Error("a failed save changed the run")
	}
	// The last checkpoint is what the run was for: without it the run has failed.
	_, err := runOn[float32](context.Background(), testConfig(t, t.TempDir()), Options{FS: fullDisk{steps: []string{"step40"}}}, openText)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a last save on a full disk gave %v", err)
	}
}

func TestLoadPathTakesWhatItIsAsked(t *testing.T) {
	from := t.TempDir()
	mustRun(t, testConfig(t, from, "train.stop_at=6"), Options{})
	at := func(overrides ...string) *run[float32] {
		t.Helper()
		r := &run[float32]{cfg: testConfig(t, t.TempDir(), append(overrides, "checkpoint.load_path="+from)...), opts: Options{}.withDefaults()}
		if err := r.open(openText); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.close() })
		return r
	}
	was := digestOf(t, from)
	all := checkpoint.DigestState(at().state())
	if all != was {
		t.Errorf("with optimizer and trainer\n%v\nwant\n%v", all, was)
	}
	anneal := at("checkpoint.load_trainer=false", "data.seed=9")
	if d := checkpoint.DigestState(anneal.state()); d.Weights != was.Weights || d.Optimizer != was.Optimizer || anneal.stepper.pos.Step != 0 {
		t.Errorf("without the trainer: step %d, digest\n%v", anneal.stepper.pos.Step, d)
	}
	weights := checkpoint.DigestState(at("checkpoint.load_trainer=false", "checkpoint.load_optimizer=false", "optimizer.name=soap").state())
	if weights.Weights != was.Weights || weights.Optimizer == was.Optimizer {
		t.Errorf("weights only\n%v", weights)
	}
	r := &run[float32]{cfg: testConfig(t, t.TempDir(), "optimizer.name=soap", "checkpoint.load_path="+from), opts: Options{}.withDefaults()}
	err := r.open(openText)
	if err == nil || !strings.Contains(err.Error(), "checkpoint.load_optimizer=false") {
		t.Errorf("another optimizer: the error does not say what to do: %v", err)
	}
	r.close()
}

func TestLoadPathTakesAModelFolder(t *testing.T) {
	c := testConfig(t, t.TempDir())
	eng := gemm.New(1)
	defer eng.Close()
	m, err := model.New[float32](c.ModelConfig(), eng)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	m.Init(99)
	dir := filepath.Join(t.TempDir(), "hf")
	if err := safetensors.Export(dir, c.ModelConfig(), m.Params(), safetensors.ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	r := &run[float32]{cfg: testConfig(t, t.TempDir(), "checkpoint.load_path="+dir), opts: Options{}.withDefaults()}
	if err := r.open(openText); err != nil {
		t.Fatal(err)
	}
	defer r.close()
	for i, p := range m.Params() {
		if !sameBits(p.Value, r.stepper.params[i].Value) {
			t.Errorf("weight %s was not taken", p.Name)
		}
	}
	res, err := evalOn(context.Background(), c, dir, &text{seed: 1, rows: 4})
	if err != nil || !(res.CE > 0) || res.Tokens != 11*4*testSeq {
		t.Errorf("evaluation %+v, %v", res, err)
	}
}

func TestEvalOfACheckpointIsThatOfTheRun(t *testing.T) {
	folder := t.TempDir()
	c := testConfig(t, folder, "eval.disabled=false", "train.steps=8")
	res := mustRun(t, c, Options{})
	_, held, err := openText(c)
	if err != nil {
		t.Fatal(err)
	}
	got, err := evalOn(context.Background(), c, folder, held)
	if err != nil {
		t.Fatal(err)
	}
	if got.CE != res.HeldOut || got.PPL != res.HeldOutPPL {
		t.Errorf("evaluation %v, the run's last one %v", got.CE, res.HeldOut)
	}
	legacy := testConfig(t, folder, "eval.metric=legacy")
	old, err := evalOn(context.Background(), legacy, folder, held)
	// Without masks the mean of means is the mean.
	if err != nil || math.Abs(old.CE-got.CE) > 1e-12 {
		t.Errorf("legacy metric %v, core %v, %v", old.CE, got.CE, err)
	}
	if _, err := Eval(context.Background(), testConfig(t, folder, "data.held_out=0"), folder); !errors.Is(err, errNoHeldOut) {
		t.Errorf("without held-out data: %v", err)
	}
}

func TestComparisonRunsAllAndGoesOn(t *testing.T) {
	parent := t.TempDir()
	runs := func() *config.Comparison {
		c := &config.Comparison{Folder: parent}
		for _, name := range []string{"adamw", "soap", "lionw"} {
			rc := testConfig(t, filepath.Join(parent, name), "optimizer.name="+name, "train.steps=6")
			if name == "soap" {
				rc.Model.NHeads = 3 // does not divide the width: this run fails
			}
			c.Runs = append(c.Runs, config.ComparedRun{Group: name, Config: rc})
		}
		return c
	}
	var begun []int
	out, err := compareOn(context.Background(), runs(), Options{}, func(i int) { begun = append(begun, i) }, openText)
	if err == nil || !strings.Contains(err.Error(), "run soap") {
		t.Errorf("error %v", err)
	}
	if len(out) != 3 || out[0].Result.Steps != 6 || out[1].Err == nil || out[2].Result.Steps != 6 {
		t.Errorf("outcomes %+v", out)
	}
	if diff := cmp.Diff([]int{0, 1, 2}, begun); diff != "" {
		t.Error(diff)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if out, err := compareOn(ctx, runs(), Options{}, nil, openText); err != nil || len(out) != 0 {
		t.Errorf("a cancelled comparison began: %v, %v", out, err)
	}
}

func TestProgressLines(t *testing.T) {
	now := time.Unix(0, 0)
	var out bytes.Buffer
	m := newMeter(&out, false, 40)
	for step := int64(1); step <= 40; step++ {
		m.show(progress{step: step, loss: 2.5, tps: 12345, perStep: 2 * time.Second}, step == 1, now)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 21 {
		t.Errorf("%d plain lines, want 21: one for the first step and one for every second", len(lines))
	}
	if want := "step 20/40  loss 2.5000  12.3k tok/s  eta 40s"; lines[10] != want {
		t.Errorf("line %q, want %q", lines[10], want)
	}
	out.Reset()
	m = newMeter(&out, true, 40)
	m.show(progress{step: 1, loss: 2.5, extra: "a longer line"}, true, now.Add(time.Second))
	m.show(progress{step: 2}, false, now.Add(time.Second+liveEvery/2)) // too soon
	m.show(progress{step: 3, loss: 2.5}, false, now.Add(2*time.Second))
	m.say("a line of its own")
	m.done()
	got := out.String()
	if strings.Contains(got, "step 2/") {
		t.Errorf("drawn too often: %q", got)
	}
	first, rest, _ := strings.Cut(strings.TrimPrefix(got, "\r"), "\r")
	second, _, _ := strings.Cut(rest, "\r")
	if len(second) < len(first) {
		t.Errorf("%q does not cover %q", second, first)
	}
	if !strings.HasSuffix(got, "\ra line of its own\n") {
		t.Errorf("output %q", got)
	}
}

func TestUnitsAreShort(t *testing.T) {
	for v, want := range map[float64]string{0: "-", 950: "950", 9999: "9999", 12345: "12.3k", 4.56e6: "4.56M", 2e9: "2.00G", math.NaN(): "-"} {
		if got := count(v); got != want {
			t.Errorf("count(%v) = %q, want %q", v, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		45 * time.Second: "45s", 200 * time.Second: "3m20s", 2*time.Hour + 5*time.Minute + 3*time.Second: "2h05m", 400 * time.Millisecond: "0s",
	} {
		if got := short(d); got != want {
			t.Errorf("short(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestFirstBatchIsChecked(t *testing.T) {
	good := func() *data.Batch {
		b := &data.Batch{Rows: 2, Seq: 4}
		for i := range 8 {
			b.Tokens = append(b.Tokens, int32(i))
		}
		return b
	}
	for name, tc := range map[string]struct {
		change func(*data.Batch)
		warns  string
		fails  string
	}{
		"good":           {func(*data.Batch) {}, "", ""},
		"masked":         {func(b *data.Batch) { b.InstanceMask = make([]bool, 2) }, "", "no label"},
		"out of range":   {func(b *data.Batch) { b.Tokens[3] = 100 }, "", "token 3 of the first batch is 100"},
		"negative":       {func(b *data.Batch) { b.Tokens[3] = -1 }, "", "is -1"},
		"one token":      {func(b *data.Batch) { clear(b.Tokens) }, "100% of the first batch is token 0", ""},
		"few labels":     {func(b *data.Batch) { b.LabelMask = []bool{true, true, false, false, true, false, false, false} }, "only 1 of 6 targets", ""},
		"half is masked": {func(b *data.Batch) { b.InstanceMask = []bool{true, false} }, "", ""},
	} {
		b := good()
		tc.change(b)
		warnings, err := checkFirstBatch(b, 50)
		if (err != nil) != (tc.fails != "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
			t.Errorf("%s: error %v, want %q", name, err, tc.fails)
		}
		if got := strings.Join(warnings, "; "); !strings.Contains(got, tc.warns) || tc.warns == "" && got != "" {
			t.Errorf("%s: warnings %q, want %q", name, got, tc.warns)
		}
	}
}

func TestFirstLossIsChecked(t *testing.T) {
	for ce, warns := range map[float64]bool{math.Log(256): false, 0.01: true, 30: true, 7: false} {
		if got := checkFirstLoss(ce, 256); (got != "") != warns {
			t.Errorf("first loss %v: warning %q", ce, got)
		}
	}
}

func TestMetricsAreJSONWhateverTheNumbers(t *testing.T) {
	folder := t.TempDir()
	m, err := openMetrics(folder, 0)
	if err != nil {
		t.Fatal(err)
	}
	m.begin(1, 1)
	for i, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, -1.5, 1e-300, 1e300} {
		m.num(fmt.Sprint("v", i), v)
	}
	if err := errors.Join(m.end(), m.close()); err != nil {
		t.Fatal(err)
	}
	recs, err := ReadMetrics(folder)
	if err != nil {
		t.Fatal(err)
	}
	want := []Record{{"step": 1, "epoch": 1, "v3": 0, "v4": -1.5, "v5": 1e-300, "v6": 1e300}}
	if diff := cmp.Diff(want, recs); diff != "" {
		t.Error(diff)
	}
}

func TestSummaryOfAnEmptyFolder(t *testing.T) {
	if _, err := Summarize(t.TempDir()); err == nil || !strings.Contains(err.Error(), "not a run folder") {
		t.Errorf("error %v", err)
	}
}

func TestFlopsFollowOLMoCore(t *testing.T) {
	c := model.Config{DModel: 8, NLayers: 4, NHeads: 2, HiddenSize: 16, VocabSize: 10, SlidingWindow: []int{4, 4, 4, -1}}
	// Per layer: q, k, v, o 4*64, q and k norm 16, two norms 16, MLP 3*128.
	layer := 4*64 + 16 + 16 + 3*128
	want := float64(6*(4*layer+8+80) + 12*8*(4+4+4+32))
	if got := flopsPerToken(c, 32); got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestEphemeralCheckpointsGo(t *testing.T) {
	folder := t.TempDir()
	c := testConfig(t, folder, "train.stop_at=35", "checkpoint.interval=20", "checkpoint.ephemeral_interval=10", "checkpoint.keep=0")
	mustRun(t, c, Options{})
	steps, err := filepath.Glob(filepath.Join(folder, "checkpoints", "step*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range steps {
		steps[i] = filepath.Base(steps[i])
	}
	// 10 and 30 were ephemeral; 35 is the last one of this process.
	if diff := cmp.Diff([]string{"step20", "step35"}, steps); diff != "" {
		t.Error(diff)
	}
}

func TestAdaptiveClippingSurvivesAResume(t *testing.T) {
	folder, whole := t.TempDir(), t.TempDir()
	mustRun(t, testConfig(t, whole, "train.max_grad_norm_ratio=1.1"), Options{})
	for _, stop := range []string{"train.stop_at=9", "train.stop_at=40"} {
		mustRun(t, testConfig(t, folder, "train.max_grad_norm_ratio=1.1", stop), Options{})
	}
	if digestOf(t, folder) != digestOf(t, whole) {
		t.Error("another digest after a resume")
	}
	recs, err := ReadMetrics(folder)
	if err != nil {
		t.Fatal(err)
	}
	clipped := 0
	for _, r := range recs {
		if r[mClip] < 1 {
			clipped++
		}
	}
	if clipped == 0 {
		t.Error("nothing was clipped, the test is empty")
	}
}
