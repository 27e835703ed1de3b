package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/asteria-runtime/asteria/hooks"
	"github.com/asteria-runtime/asteria/trainer-olmo/checkpoint"
	"github.com/asteria-runtime/asteria/trainer-olmo/config"
	"github.com/asteria-runtime/asteria/trainer-olmo/data"
)

const (
	testSeq   = 16
	testVocab = 32
)

// text is a source of batches from a noisy cycle of tokens; batch k is a pure
// function of seed and k, as the loader's are.
type text struct {
	seed  uint64
	rows  int
	print string
	mask  bool // with label and instance masks
	docs  bool // with documents
	seq   int  // tokens of an instance, 0: testSeq
}

func (s *text) Batch(k int64, b *data.Batch) error {
	r := rand.New(rand.NewPCG(s.seed, uint64(k)))
	seq := max(s.seq, testSeq)
	n := s.rows * seq
	if len(b.Tokens) != n {
		*b = data.Batch{Tokens: make([]int32, n), Rows: s.rows, Seq: seq}
		if s.mask {
			b.LabelMask, b.InstanceMask = make([]bool, n), make([]bool, s.rows)
		}
	}
	b.Epoch = 1 + k/s.Batches()
	at := int32(0)
	for i := range b.Tokens {
		if at = (at + 3) % testVocab; r.IntN(4) == 0 {
			at = int32(r.IntN(testVocab))
		}
		b.Tokens[i] = at
		if s.mask {
			b.LabelMask[i] = r.IntN(5) > 0
		}
	}
	if s.docs && b.DocLens == nil {
		b.DocLens = make([][]int32, s.rows)
	}
	for i := range b.DocLens {
		n := 1 + r.IntN(seq-1)
		b.DocLens[i] = append(b.DocLens[i][:0], int32(n), int32(seq-n))
	}
	for i := range b.InstanceMask {
		b.InstanceMask[i] = r.IntN(6) > 0
	}
	return nil
}

func (s *text) Batches() int64      { return 11 }
func (s *text) Fingerprint() string { return "text-" + s.print }
func (s *text) Close() error        { return nil }

// openText is the test's [sources].
func openText(c *config.Config) (train, heldOut source, err error) {
	t := &text{seed: uint64(c.Data.Seed), rows: int(c.Train.GlobalBatchSize) / testSeq, mask: c.Data.InstanceFilter.Enabled, docs: c.Data.DocLengths}
	if c.Eval.Disabled {
		return t, nil, nil
	}
	return t, &text{seed: 1 << 40, rows: 4}, nil
}

// testConfig is a tiny run; overrides are key=value.
func testConfig(t testing.TB, folder string, overrides ...string) *config.Config {
	t.Helper()
	base := fmt.Sprintf(`
seed: 5
save_folder: %q
model: {d_model: 16, n_layers: 2, n_heads: 2, hidden_size: 24, vocab_size: %d}
data: {paths: [unused.npy], sequence_length: %d, seed: 3, dtype: uint16}
train: {steps: 40, global_batch_size: %d, threads: 1}
optimizer: {lr: 1e-3, precondition_frequency: 5}
scheduler: {warmup: 4}
checkpoint: {interval: 0, keep: 2}
eval: {disabled: true}
`, folder, testVocab, testSeq, 8*testSeq)
	c, err := config.Parse("test", []byte(base), overrides)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// mustRun trains on the test's text.
func mustRun(t testing.TB, c *config.Config, o Options) Result {
	t.Helper()
	res, err := runOn[float32](context.Background(), c, o, openText)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func digestOf(t testing.TB, folder string) checkpoint.Digest {
	t.Helper()
	d, err := checkpoint.DigestDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func losses(t testing.TB, folder string) []float64 {
	t.Helper()
	recs, err := ReadMetrics(folder)
	if err != nil {
		t.Fatal(err)
	}
	var out []float64
	for i, r := range recs {
		if r[mStep] != float64(i+1) {
			t.Fatalf("line %d of the metrics is of step %v", i+1, r[mStep])
		}
		out = append(out, r[mCE])
	}
	return out
}

var allOptimizers = []string{"adamw", "lionw", "soap", "shampoo", "kl-shampoo", "kl-soap", "eigen-shampoo"}

// TestResumeAndThreadsKeepEveryBit runs 40 steps at once, and 13 + 14 + 13 with
// two resumes, the latter on two threads, for several accumulations.
func TestResumeAndThreadsKeepEveryBit(t *testing.T) {
	for _, name := range allOptimizers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var first []float64
			for _, accumulation := range []int{1, 2, 4} {
				micro := fmt.Sprintf("train.micro_batch_size=%d", 8*testSeq/accumulation)
				opt := "optimizer.name=" + name
				whole, parts := t.TempDir(), t.TempDir()
				mustRun(t, testConfig(t, whole, opt, micro), Options{})
				for _, stop := range []int{13, 27, 40} {
					mustRun(t, testConfig(t, parts, opt, micro, fmt.Sprintf("train.stop_at=%d", stop), "train.threads=2"), Options{})
				}
				if a, b := digestOf(t, whole), digestOf(t, parts); a != b {
					t.Errorf("accumulation %d: with two resumes and two threads\n%v\nwithout\n%v", accumulation, b, a)
				}
				l := losses(t, whole)
				if !(l[len(l)-1] < l[0]-0.05) {
					t.Errorf("the loss went from %v to %v: nothing was learned", l[0], l[len(l)-1])
				}
				if first == nil {
					first = l
				}
				compareLosses(t, accumulation, l, first, 0)
			}
		})
	}
}

func compareLosses(t *testing.T, accumulation int, got, want []float64, tol float64) {
	t.Helper()
	for i := range got {
		if d := math.Abs(got[i] - want[i]); !(d <= tol) {
			t.Errorf("accumulation %d, step %d: the loss is off by %v, allowed %v", accumulation, i+1, d, tol)
			return
		}
	}
}

// TestAccumulationIsOneBatch compares micro-batches of several sizes, with label,
// instance and document masks, in float64.
func TestAccumulationIsOneBatch(t *testing.T) {
	for _, name := range allOptimizers {
		for _, divisor := range []string{"labels", "tokens"} {
			t.Run(name+" "+divisor, func(t *testing.T) {
				t.Parallel()
				var first []float64
				for _, accumulation := range []int{1, 2, 4, 8} {
					folder := t.TempDir()
					c := testConfig(t, folder, "optimizer.name="+name, "loss.divisor="+divisor, "data.instance_filter.enabled=true",
						"data.generate_doc_lengths=true", "train.steps=20", fmt.Sprintf("train.micro_batch_size=%d", 8*testSeq/accumulation))
					if _, err := runOn[float64](context.Background(), c, Options{}, openText); err != nil {
						t.Fatal(err)
					}
					l := losses(t, folder)
					if first == nil {
						first = l
					}
					compareLosses(t, accumulation, l, first, 0)
				}
			})
		}
	}
}

// TestAccumulationKeepsEveryBit: micro-batches of any size give the bits of the whole
// batch, with sequences of a whole number of the model's chunks and others.
func TestAccumulationKeepsEveryBit(t *testing.T) {
	for _, name := range []string{"adamw", "soap", "kl-shampoo", "shampoo"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seq := 64
			if name == "soap" {
				seq = 90
			}
			open := func(c *config.Config) (source, source, error) {
				return &text{seed: 3, rows: 8, seq: seq, mask: true, docs: true}, nil, nil
			}
			var want checkpoint.Digest
			for _, accumulation := range []int{1, 2, 4, 8} {
				folder := t.TempDir()
				c := testConfig(t, folder, "optimizer.name="+name, "train.steps=12", fmt.Sprintf("data.sequence_length=%d", seq),
					fmt.Sprintf("train.global_batch_size=%d", 8*seq), fmt.Sprintf("train.micro_batch_size=%d", 8*seq/accumulation))
				if _, err := runOn[float32](context.Background(), c, Options{}, open); err != nil {
					t.Fatal(err)
				}
				d := digestOf(t, folder)
				if accumulation == 1 {
					want = d
				}
				if d.Weights != want.Weights || d.Optimizer != want.Optimizer {
					t.Errorf("accumulation %d: other weights or optimizer state", accumulation)
				}
			}
		})
	}
}

func TestCancelFinishesTheStepAndSaves(t *testing.T) {
	folder, whole := t.TempDir(), t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	var h hooks.Schedule
	h.On(hooks.GradReady, "cancel", hooks.Every(40, 17), func(context.Context, hooks.Event) error { cancel(); return nil })
	res, err := runOn[float32](ctx, testConfig(t, folder), Options{Hooks: &h}, openText)
	if err != nil || !res.Interrupted || res.Steps != 17 {
		t.Fatalf("interrupted %v at step %d, %v; want step 17", res.Interrupted, res.Steps, err)
	}
	c, err := checkpoint.Load(folder)
	if err != nil || c.Meta.Position.Step != 17 {
		t.Fatalf("no checkpoint of step 17: %v", err)
	}
	res = mustRun(t, testConfig(t, folder), Options{})
	if res.Resumed != 17 || res.Steps != 40 || res.Interrupted {
		t.Errorf("the second run: %+v", res)
	}
	mustRun(t, testConfig(t, whole), Options{})
	if digestOf(t, folder) != digestOf(t, whole) {
		t.Error("the interrupted run ended elsewhere")
	}
}

func TestMetricsOfLostStepsAreReplaced(t *testing.T) {
	folder, whole := t.TempDir(), t.TempDir()
	mustRun(t, testConfig(t, folder, "train.stop_at=20"), Options{})
	// A killed process wrote on after its last checkpoint.
	f, err := os.OpenFile(filepath.Join(folder, metricsName), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(f, `{"step":21,"train/CE loss":9}`+"\n"+`{"step":22,"train/CE`)
	f.Close()
	mustRun(t, testConfig(t, folder), Options{})
	mustRun(t, testConfig(t, whole), Options{})
	a, b := losses(t, folder), losses(t, whole)
	if fmt.Sprint(a) != fmt.Sprint(b) {
		t.Errorf("losses\n%v\nwant\n%v", a, b)
	}
}

func TestFinishedRunIsLeftAlone(t *testing.T) {
	folder := t.TempDir()
	first := mustRun(t, testConfig(t, folder), Options{})
	again := mustRun(t, testConfig(t, folder), Options{})
	again.Resumed = 0
	first.HeldOut, first.HeldOutPPL, again.HeldOut, again.HeldOutPPL = 0, 0, 0, 0 // NaN: there is no evaluation
	if first != again {
		t.Errorf("a second run over a finished one: %+v, want %+v", again, first)
	}
}

// TestNonFiniteStepsChangeNothing poisons the gradient of some steps.
func TestNonFiniteStepsChangeNothing(t *testing.T) {
	for _, name := range allOptimizers {
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
			folder := t.TempDir()
			r := &run[float32]{cfg: testConfig(t, folder, "optimizer.name="+name, "train.skip_step=true"), opts: Options{}.withDefaults()}
			if err := r.open(openText); err != nil {
				t.Fatal(err)
			}
			var h hooks.Schedule
			h.On(hooks.GradReady, "poison", func(e hooks.Event) bool { return e.Step == 7 || e.Step == 8 }, func(context.Context, hooks.Event) error {
				g := r.stepper.params[len(r.stepper.params)/2].Grad
				g[len(g)-1] = bad
				return nil
			})
			r.stepper.firing = &firing{ctx: context.Background(), hooks: &h}
			for range 6 {
				if err := r.one(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			before := checkpoint.DigestState(r.state())
			for range 2 {
				if err := r.one(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			after := checkpoint.DigestState(r.state())
			if before.Weights != after.Weights || before.Optimizer != after.Optimizer {
				t.Errorf("%s, %v: weights or optimizer changed", name, bad)
			}
			if p := r.stepper.pos; p.NonFinite != 2 || p.NonFiniteRun != 2 || p.Step != 8 || p.Batch != 8 {
				t.Errorf("%s, %v: position %+v", name, bad, p)
			}
			if err := r.one(context.Background()); err != nil {
				t.Fatal(err)
			}
			if p := r.stepper.pos; p.NonFiniteRun != 0 || p.NonFinite != 2 {
				t.Errorf("%s, %v: a good step did not end the series: %+v", name, bad, p)
			}
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestNonFiniteSeriesStopsTheRun(t *testing.T) {
	folder := t.TempDir()
	var h hooks.Schedule
	var r *run[float32]
	h.On(hooks.GradReady, "poison", func(e hooks.Event) bool { return e.Step >= 5 }, func(context.Context, hooks.Event) error {
		r.stepper.params[0].Grad[0] = float32(math.NaN())
		return nil
	})
	r = &run[float32]{cfg: testConfig(t, folder), opts: Options{Hooks: &h}.withDefaults()}
	if err := r.open(openText); err != nil {
		t.Fatal(err)
	}
	err := r.loop(context.Background())
	if !errors.Is(err, ErrNonFinite) {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{"step 7", "3 steps in a row", "model.embed_tokens.weight"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the message lacks %q: %v", want, err)
		}
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	recs, err := ReadMetrics(folder)
	if err != nil || len(recs) != 7 || recs[6][mNonFinite] != 1 {
		t.Errorf("%d records, %v; the last steps must be recorded", len(recs), err)
	}
}

func TestSkipStepRuleSurvivesAResume(t *testing.T) {
	folder, whole := t.TempDir(), t.TempDir()
	rule := []string{"train.skip_step=true", "train.skip_step_window=8", "train.skip_step_sigma=1.5"}
	res := mustRun(t, testConfig(t, whole, rule...), Options{})
	if res.Skipped == 0 || res.Skipped > 20 {
		t.Fatalf("%d of 40 steps were skipped: the test does not test the rule", res.Skipped)
	}
	mustRun(t, testConfig(t, folder, append(rule, "train.stop_at=19")...), Options{})
	mustRun(t, testConfig(t, folder, rule...), Options{})
	if digestOf(t, folder) != digestOf(t, whole) {
		t.Error("the rule decided otherwise after a resume")
	}
}

// TestA26_ResumeKeepsEveryCounter stops at step 58 and compares step 59 with a run
// that was not stopped: all sections, so all counters, moments and settings that
// are state, bit for bit.
func TestA26_ResumeKeepsEveryCounter(t *testing.T) {
	for _, name := range allOptimizers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			common := []string{"optimizer.name=" + name, "train.steps=80", "train.skip_step=true"}
			at := func(folder string, stop int) *run[float32] {
				r := &run[float32]{cfg: testConfig(t, folder, append(common, fmt.Sprintf("train.stop_at=%d", stop))...), opts: Options{}.withDefaults()}
				if err := r.open(openText); err != nil {
					t.Fatal(err)
				}
				if err := r.loop(context.Background()); err != nil {
					t.Fatal(err)
				}
				return r
			}
			folder := t.TempDir()
			whole := at(t.TempDir(), 59)
			if err := at(folder, 58).close(); err != nil {
				t.Fatal(err)
			}
			resumed := at(folder, 59)
			compareSections(t, resumed, whole)
			if resumed.stepper.pos != whole.stepper.pos {
				t.Errorf("position %+v, want %+v", resumed.stepper.pos, whole.stepper.pos)
			}
			for _, r := range []*run[float32]{whole, resumed} {
				if err := r.close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// compareSections names every section that differs.
func compareSections(t *testing.T, got, want *run[float32]) {
	t.Helper()
	a, b := got.state(), want.state()
	if len(a.Optimizer) != len(b.Optimizer) {
		t.Fatalf("%d sections, want %d", len(a.Optimizer), len(b.Optimizer))
	}
	for i, s := range a.Optimizer {
		w := b.Optimizer[i]
		if s.Name != w.Name || fmt.Sprint(s.I64) != fmt.Sprint(w.I64) || !sameBits(s.F32, w.F32) || fmt.Sprint(s.F64) != fmt.Sprint(w.F64) {
			t.Errorf("section %s differs from %s", s.Name, w.Name)
		}
	}
	for i, s := range a.Weights {
		if !sameBits(s.F32, b.Weights[i].F32) {
			t.Errorf("weight %s differs", s.Name)
		}
	}
}

func sameBits(a, b []float32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return false
		}
	}
	return true
}

// TestA28_LearningRateIsThatOfTheStep resumes at the corners of a schedule.
func TestA28_LearningRateIsThatOfTheStep(t *testing.T) {
	common := []string{
		"train.steps=1000", "scheduler.warmup=100", "scheduler.name=cosine", "model.d_model=4", "model.n_layers=1", "model.n_heads=1",
		"model.hidden_size=4", fmt.Sprintf("train.global_batch_size=%d", testSeq),
	}
	folder := t.TempDir()
	for _, stop := range []int{50, 100, 101, 700, 701, 702, 1000} { // 700, 701, 702: three in a row
		mustRun(t, testConfig(t, folder, append(common, fmt.Sprintf("train.stop_at=%d", stop))...), Options{})
	}
	recs, err := ReadMetrics(folder)
	if err != nil || len(recs) != 1000 {
		t.Fatalf("%d records, %v", len(recs), err)
	}
	c := testConfig(t, folder, common...)
	sched, err := c.Schedule(1000)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range recs {
		if want := sched.LR(int64(i + 1)); r[mLR] != want {
			t.Fatalf("step %d: lr %v, want %v", i+1, r[mLR], want)
		}
	}
	if peak := recs[99][mLR]; peak != c.Optimizer.LR {
		t.Errorf("lr at the end of the warm-up is %v, want the peak %v", peak, c.Optimizer.LR)
	}
}

func TestResumeIsRefusedWhereItCannotContinue(t *testing.T) {
	folder := t.TempDir()
	mustRun(t, testConfig(t, folder, "train.stop_at=3"), Options{})
	for name, tc := range map[string]struct {
		override string
		open     sources
		is       error
		says     string
	}{
		"other optimizer": {"optimizer.name=lionw", openText, nil, "optimizer.name adamw"},
		"other data seed": {"data.seed=4", openText, ErrDifferentData, "data.seed 3"},
		"other shape":     {"model.d_model=32", openText, checkpoint.ErrMismatch, "model.embed_tokens.weight"},
		"never":           {"checkpoint.resume=never", openText, nil, "checkpoint.resume is never"},
		"other data": {"seed=5", func(c *config.Config) (source, source, error) {
			s, h, err := openText(c)
			s.(*text).print = "other"
			return s, h, err
		}, ErrDifferentData, "text-other"},
	} {
		_, err := runOn[float32](context.Background(), testConfig(t, folder, tc.override), Options{}, tc.open)
		if err == nil || tc.is != nil && !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: error %v, want one that says %q", name, err, tc.says)
		}
	}
	if _, err := runOn[float32](context.Background(), testConfig(t, t.TempDir(), "checkpoint.resume=always"), Options{}, openText); !errors.Is(err, checkpoint.ErrNone) {
		t.Errorf("always without a checkpoint: %v", err)
	}
}

func TestResumeElsewhereWarns(t *testing.T) {
	folder := t.TempDir()
	mustRun(t, testConfig(t, folder, "train.stop_at=3"), Options{Build: "one"})
	var log bytes.Buffer
	o := Options{Build: "two", Logger: slog.New(slog.NewTextHandler(&log, nil))}
	mustRun(t, testConfig(t, folder, "train.stop_at=5", "seed=6"), o)
	for _, want := range []string{"another build", "seed only chooses the initial weights"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, &log)
		}
	}
}

func TestBatchSizeChangeKeepsThePlaceInTheData(t *testing.T) {
	folder := t.TempDir()
	mustRun(t, testConfig(t, folder, "train.stop_at=10"), Options{})
	mustRun(t, testConfig(t, folder, "train.stop_at=12", fmt.Sprintf("train.global_batch_size=%d", 4*testSeq)), Options{})
	c, err := checkpoint.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	// 10 batches of 8 rows are 20 of 4; two more were taken.
	if p := c.Meta.Position; p.Batch != 22 || p.Tokens != 10*8*testSeq+2*4*testSeq {
		t.Errorf("position %+v", p)
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	folder := t.TempDir()
	f, err := lockFolder(folder)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockFolder(folder); !errors.Is(err, ErrInUse) {
		t.Errorf("a second lock gave %v", err)
	}
	f.Close()
	g, err := lockFolder(folder)
	if err != nil {
		t.Fatalf("after the first process ended: %v", err)
	}
	g.Close()
}

func TestStepAllocatesNothing(t *testing.T) {
	for _, name := range allOptimizers {
		r := &run[float32]{cfg: testConfig(t, t.TempDir(), "optimizer.name="+name, "train.steps=100000", "train.micro_batch_size=32"), opts: Options{}.withDefaults()}
		if err := r.open(openText); err != nil {
			t.Fatal(err)
		}
		var h hooks.Schedule
		h.On(hooks.PostBackward, "listen", nil, func(context.Context, hooks.Event) error { return nil })
		ctx := context.Background()
		r.stepper.firing = &firing{ctx: ctx, hooks: &h}
		if err := r.data.Batch(0, &r.batch); err != nil {
			t.Fatal(err)
		}
		step := func() {
			if _, err := r.stepper.step(&r.batch); err != nil {
				t.Fatal(err)
			}
		}
		for range 12 {
			step()
		}
		if n := testing.AllocsPerRun(20, step); n != 0 {
			t.Errorf("%s: %v allocations a step", name, n)
		}
		st := stepStats{Rows: 8, Tokens: 8 * testSeq, Labels: 100}
		if n := testing.AllocsPerRun(20, func() {
			r.record(&st, false)
			if err := r.metrics.end(); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations a record", name, n)
		}
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
	}
}
