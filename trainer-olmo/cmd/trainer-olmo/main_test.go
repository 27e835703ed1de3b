package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/asteria-runtime/asteria/trainer-olmo/config"
)

// runEnv turns the test binary into the command.
const runEnv = "ASTERIA_TEST_RUN_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(runEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// call runs a command line in this process.
func call(args ...string) (status int, out, errOut string) {
	var o, e bytes.Buffer
	status = run(context.Background(), args, &o, &e)
	return status, o.String(), e.String()
}

// must is call for what has to succeed.
func must(t *testing.T, args ...string) string {
	t.Helper()
	status, out, errOut := call(args...)
	if status != 0 {
		t.Fatalf("%v: exit status %d\n%s", args, status, errOut)
	}
	return out
}

func write(t *testing.T, file, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// tiny writes a configuration that trains in a moment on a text of its own.
func tiny(t *testing.T) (file, folder string) {
	t.Helper()
	dir := t.TempDir()
	var text strings.Builder
	for i := range 400 {
		fmt.Fprintf(&text, "line %d of a text that repeats itself, %d times\n", i, i*i)
	}
	folder = filepath.Join(dir, "run")
	file = write(t, filepath.Join(dir, "tiny.yaml"), fmt.Sprintf(`
run_name: tiny
save_folder: %s
model: {d_model: 32, n_layers: 1, n_heads: 2, hidden_size: 48}
data: {paths: [%s], cache_folder: %s, sequence_length: 32, held_out: 0.1}
train: {steps: 6, global_batch_size: 256, micro_batch_size: 128, threads: 2}
optimizer: {name: soap, lr: 3e-3, precondition_frequency: 2}
scheduler: {warmup: 2}
checkpoint: {interval: 3}
eval: {interval: 3, tokens: 512}
compare:
  baseline: adamw
  runs:
    - {name: adamw, set: {optimizer.name: adamw}}
    - {name: soap, seeds: [1, 2]}
`, folder, write(t, filepath.Join(dir, "text.txt"), text.String()), filepath.Join(dir, "cache")))
	return file, folder
}

func TestAMistakeIsOneLineAndExitStatus2(t *testing.T) {
	dir := t.TempDir()
	good := write(t, filepath.Join(dir, "good.yaml"), "model: {preset: olmo2_14M}\ndata: {corpus: goroot}\ntrain: {steps: 1}\n")
	bad := write(t, filepath.Join(dir, "bad.yaml"), "model: {preset: olmo2_14M}\ndata: {corpus: goroot}\ntrain:\n  stpes: 1\n")
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"tarin", good}, `unknown command "tarin"; did you mean train? (try trainer-olmo help)`},
		{[]string{"xyzzy"}, `unknown command "xyzzy" (try trainer-olmo help)`},
		{nil, "no command; one of train, compare, plan, tokenize, inspect, eval, generate, export, import, report, digest, doctor, version (try trainer-olmo help)"},
		{[]string{"plan", bad}, bad + ":4: train.stpes: unknown key; did you mean train.steps?"},
		{[]string{"plan", good, "train.stpes=5"}, `override "train.stpes=5": train.stpes: unknown key; did you mean train.steps?`},
		{[]string{"plan", good, "train.steps=many"}, `override "train.steps=many": train.steps: "many" is not a whole number`},
		{[]string{"plan", good, "optimizer.name=saop"}, `override "optimizer.name=saop": optimizer.name: "saop" is not one of adamw, lionw, shampoo, soap, kl-shampoo, kl-soap, eigen-shampoo; did you mean soap?`},
		{[]string{"plan", good, "--optimizer.lrr=5"}, `override "--optimizer.lrr=5": optimizer.lrr: unknown key; did you mean optimizer.lr?`},
		{[]string{"plan", filepath.Join(dir, "none.yaml")}, filepath.Join(dir, "none.yaml") + ": no such file or directory"},
		{[]string{"plan", dir}, dir + ": is a directory"},
		{[]string{"plan"}, "plan: give one of CONFIG, --preset NAME, --presets"},
		{[]string{"plan", "--preset", "olmo2_7"}, `--preset olmo2_7:2: model.preset: "olmo2_7" is not a preset; did you mean olmo2_7B?`},
		{[]string{"plan", "--presetz"}, "plan: unknown flag --presetz; did you mean --presets? (try trainer-olmo plan --help)"},
		{[]string{"plan", "-q"}, "plan: unknown flag -q (try trainer-olmo plan --help)"},
		{[]string{"train"}, "train: too few arguments; usage: trainer-olmo train CONFIG"},
		{[]string{"train", good, "extra"}, `train: unexpected argument "extra"; usage: trainer-olmo train CONFIG`},
		{[]string{"train", good, "runtime={mode: asteria, lag: 6}"}, `override "runtime={mode: asteria, lag: 6}": runtime.lag: 6 is above runtime.staleness 5`},
		{[]string{"compare", good}, good + ": compare: is not set; it lists the runs to compare"},
		{[]string{"doctor", "me"}, `doctor: unexpected argument "me"; usage: trainer-olmo doctor`},
		{[]string{"inspect", good, "--step", "x"}, `inspect: invalid argument "x" for "--step" flag: must be an integer`},
		{[]string{"inspect", good, "--step", "0"}, "inspect: --step 0: steps count from 1"},
		{[]string{"tokenize", good}, "tokenize: --out is not set; it names the folder for the token files"},
		{[]string{"tokenize", filepath.Join(dir, "none"), "--out", dir}, "tokenize: " + filepath.Join(dir, "none") + ": no such file or directory"},
		{[]string{"tokenize", good, "--out", dir, "--tokenizer", filepath.Join(dir, "t.json")}, filepath.Join(dir, "t.json") + ": no such file or directory"},
		{[]string{"eval", filepath.Join(dir, "none")}, "eval: " + filepath.Join(dir, "none") + ": no such file or directory"},
		{[]string{"eval", dir, "--ids", "1,x"}, `eval: --ids: "x" is not a token id`},
		{[]string{"generate", dir}, "generate: " + dir + " does not name its tokenizer; set --tokenizer"},
		{[]string{"generate", dir, "--temperature", "-1"}, "generate: --temperature -1: must not be negative"},
		{[]string{"export", dir, dir, "--dtype", "F8"}, `export: --dtype "F8" is not one of F32, BF16, F64`},
		{[]string{"export", dir, dir, "--max-shard", "5G"}, `export: --max-shard "5G" is not a size such as 5GB`},
		{[]string{"import", filepath.Join(dir, "none"), dir}, "import: " + filepath.Join(dir, "none") + ": no such file or directory"},
		{[]string{"report", dir}, "report: " + dir + " is not a run folder: it has no metrics.jsonl"},
		{[]string{"digest", filepath.Join(dir, "none")}, "digest: " + filepath.Join(dir, "none") + ": no such file or directory"},
		{[]string{"help", "tarin"}, `unknown command "tarin"; did you mean train? (try trainer-olmo help)`},
	} {
		status, out, errOut := call(tc.args...)
		if status != exitUsage || out != "" || errOut != "trainer-olmo: "+tc.want+"\n" {
			t.Errorf("%v: exit status %d\ngot  %s%swant trainer-olmo: %s", tc.args, status, errOut, out, tc.want)
		}
	}
}

func TestEveryCommandHasHelpWithExamplesThatParse(t *testing.T) {
	for _, c := range commands() {
		for _, args := range [][]string{{c.name, "--help"}, {c.name, "-h"}, {"help", c.name}} {
			out := must(t, args...)
			for _, want := range []string{c.summary, "usage: trainer-olmo " + c.name, "examples\n  trainer-olmo " + c.name} {
				if !strings.Contains(out, want) {
					t.Errorf("%v lacks %q:\n%s", args, want, out)
				}
			}
		}
		for _, ex := range c.examples {
			args := strings.Fields(ex)
			if args[0] != c.name {
				t.Errorf("the example %q is not of %s", ex, c.name)
			}
			if strings.Contains(ex, `"`) {
				continue // needs a shell
			}
			if _, err := c.parse(args[1:], &bytes.Buffer{}); err != nil {
				t.Errorf("the example %q: %v", ex, err)
			}
		}
	}
	for _, args := range [][]string{{"help"}, {"--help"}, {"-h"}} {
		out := must(t, args...)
		for _, name := range commandNames() {
			if !strings.Contains(out, "\n  "+name) {
				t.Errorf("%v does not list %s", args, name)
			}
		}
	}
}

func TestVersionNamesModulesGoAndKernels(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"--version"}} {
		out := must(t, args...)
		for _, want := range []string{"trainer-olmo ", "go1.", "kernels "} {
			if !strings.Contains(out, want) {
				t.Errorf("%v lacks %q:\n%s", args, want, out)
			}
		}
	}
}

func TestPlanOfEveryPreset(t *testing.T) {
	out := must(t, "plan", "--presets")
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if f[0] == "preset" {
			continue
		}
		one := must(t, "plan", "--preset", f[0])
		if want := f[len(f)-2] + " total, " + f[len(f)-1] + " without"; !strings.Contains(one, want) {
			t.Errorf("%s: %q is not in\n%s", f[0], want, one)
		}
	}
	if out := must(t, "plan", "--preset", "OLMo-2-1124-7B", "optimizer.name=soap"); !strings.Contains(out, "7,298,617,344") {
		t.Errorf("under its released name:\n%s", out)
	}
}

// The story of a run: train, resume, look at it, convert it.
func TestARunFromTrainingToExport(t *testing.T) {
	file, folder := tiny(t)
	out := must(t, "train", file)
	if !strings.Contains(out, "tiny ") && !strings.Contains(out, "run ") || !strings.Contains(out, "report.html") {
		t.Errorf("train printed\n%s", out)
	}
	for _, name := range []string{"config.yaml", "metrics.jsonl", "health.json", "report.html", "loss_step.png", "checkpoints"} {
		if !exists(filepath.Join(folder, name)) {
			t.Errorf("the run folder lacks %s", name)
		}
	}
	digest := must(t, "digest", folder)
	if got := must(t, "digest", filepath.Join(folder, "checkpoints", "step6")); got != digest || !strings.Contains(digest, "\ntotal ") {
		t.Errorf("the digest of the run is\n%sthat of its last checkpoint\n%s", digest, got)
	}
	// The same run in two parts.
	other := filepath.Join(t.TempDir(), "other")
	must(t, "train", file, "save_folder="+other, "train.stop_at=3")
	must(t, "train", file, "save_folder="+other, "train.threads=1")
	if got := must(t, "digest", other); got != digest {
		t.Errorf("resumed with another number of threads:\n%swant\n%s", got, digest)
	}
	if out := must(t, "inspect", folder, "--step", "2"); strings.Count(out, "\n") < 9 || !strings.Contains(out, "text.txt") {
		t.Errorf("inspect printed\n%s", out)
	}
	if out := must(t, "inspect", file); !strings.Contains(out, "fingerprint") {
		t.Errorf("inspect without a step printed\n%s", out)
	}
	if out := must(t, "report", folder, other, "--out", filepath.Join(t.TempDir(), "both")); strings.Count(out, "\n") != 4 {
		t.Errorf("report printed\n%s", out)
	}
	convert(t, folder)
}

// convert exports and imports a run and compares what the results compute.
func convert(t *testing.T, folder string) {
	t.Helper()
	dir := t.TempDir()
	hf, back, again := filepath.Join(dir, "hf"), filepath.Join(dir, "back"), filepath.Join(dir, "again")
	if out := must(t, "export", folder, hf, "--max-shard", "10KB"); !strings.Contains(out, "weights and logits are equal") {
		t.Errorf("export printed\n%s", out)
	}
	must(t, "import", hf, back)
	must(t, "export", back, again, "--max-shard", "10KB")
	eval := must(t, "eval", folder)
	logits := must(t, "eval", folder, "--ids", "3,14,15")
	for _, path := range []string{hf, back, again} {
		if got := must(t, "eval", path, "--ids", "3,14,15"); got != logits {
			t.Errorf("%s has other logits", path)
		}
	}
	if got := must(t, "eval", hf, "--config", filepath.Join(folder, "config.yaml")); got != eval || !strings.Contains(eval, "CE loss") {
		t.Errorf("eval of the export printed\n%sof the run\n%s", got, eval)
	}
	text := filepath.Join(filepath.Dir(folder), "text.txt")
	all := must(t, "eval", hf, "eval.paths=["+text+"]", "data.sequence_length=32", "data.tokenizer=byte", "data.cache_folder="+dir)
	if got := must(t, "eval", back, "data.paths="+text, "data.sequence_length=32", "data.tokenizer=byte", "data.cache_folder="+dir); got != all || !strings.Contains(all, "perplexity") {
		t.Errorf("a model that describes itself, on all of a text: %s and %s", all, got)
	}
	var parsed struct{ Logits [][]float64 }
	if err := json.Unmarshal([]byte(logits), &parsed); err != nil || len(parsed.Logits) != 3 || len(parsed.Logits[0]) != 258 {
		t.Errorf("logits: %v, %d rows", err, len(parsed.Logits))
	}
	one := must(t, "generate", folder, "--prompt", "line", "--tokens", "20", "--seed", "7")
	if got := must(t, "generate", hf, "--prompt", "line", "--tokens", "20", "--seed", "7", "--tokenizer", "byte", "--threads", "1"); got != one || !strings.HasPrefix(one, "line") {
		t.Errorf("generate printed %q and %q", one, got)
	}
	same, _ := filepath.Glob(filepath.Join(hf, "*"))
	for _, file := range same {
		a, _ := os.ReadFile(file)
		b, err := os.ReadFile(filepath.Join(again, filepath.Base(file)))
		if err != nil || !bytes.Equal(a, b) && filepath.Base(file) != "config.json" {
			t.Errorf("export, import, export changes %s: %v", filepath.Base(file), err)
		}
	}
}

func TestCompareTrainsEveryRunAndTabulatesThem(t *testing.T) {
	file, folder := tiny(t)
	out := must(t, "compare", file, "train.steps=4")
	for _, want := range []string{"adamw", "soap-s1", "soap-s2", "over seeds", "±", "p99 step", "report.html"} {
		if !strings.Contains(out, want) {
			t.Errorf("lacks %q:\n%s", want, out)
		}
	}
	for _, f := range []string{"report.html", "adamw/report.html", "soap-s1/config.yaml", "soap-s2/metrics.jsonl"} {
		if !exists(filepath.Join(folder, f)) {
			t.Errorf("no %s", f)
		}
	}
	before, err := os.Stat(filepath.Join(folder, "adamw/metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	must(t, "compare", file, "train.steps=4")
	if after, err := os.Stat(filepath.Join(folder, "adamw/metrics.jsonl")); err != nil || after.Size() != before.Size() {
		t.Errorf("a finished run was repeated: %v", err)
	}
	if out := must(t, "report", folder); !strings.Contains(out, "soap-s2") {
		t.Errorf("report of the folder of runs:\n%s", out)
	}
}

func TestTokenizeWritesWhatTrainReads(t *testing.T) {
	file, _ := tiny(t)
	dir := t.TempDir()
	docs := write(t, filepath.Join(dir, "docs.jsonl"), strings.Repeat(`{"id": "a", "text": "a document of some length, said several times over"}`+"\n", 200))
	tokens := filepath.Join(dir, "tokens")
	if out := must(t, "tokenize", docs, "--out", tokens); !strings.Contains(out, "200 documents") {
		t.Errorf("printed\n%s", out)
	}
	files, _ := filepath.Glob(filepath.Join(tokens, "*.npy"))
	if len(files) != 1 {
		t.Fatalf("token files: %v", files)
	}
	must(t, "train", file, "data.paths=["+files[0]+"]", "train.steps=2")
	if status, _, errOut := call("tokenize", docs, "--out", tokens); status != exitRun || strings.Count(errOut, "\n") != 1 {
		t.Errorf("into a folder that holds tokens: exit status %d\n%s", status, errOut)
	}
}

func TestAFailedRunIsExitStatus1(t *testing.T) {
	file, _ := tiny(t)
	status, _, errOut := call("train", file, "data.paths=["+filepath.Join(t.TempDir(), "none.npy")+"]", "data.tokenizer=byte")
	if status != exitRun || !strings.Contains(errOut, "none.npy") || strings.Count(errOut, "\n") != 1 {
		t.Errorf("exit status %d\n%s", status, errOut)
	}
}

// child is the command in a process of its own.
func child(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), runEnv+"=1")
	return cmd
}

func TestTheProcessExitsWithTheStatus(t *testing.T) {
	for want, args := range map[int][]string{0: {"version"}, 2: {"tarin"}} {
		err := child(args...).Run()
		if got := exitCode(err); got != want {
			t.Errorf("%v: exit status %d, want %d", args, got, want)
		}
	}
}

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if e, ok := err.(*exec.ExitError); ok {
		return e.ExitCode()
	}
	return -1
}

func TestSIGTERMSavesACheckpointAndTheSameCommandContinues(t *testing.T) {
	file, folder := tiny(t)
	args := []string{"train", file, "train.steps=4000", "eval.disabled=true", "checkpoint.interval=0"}
	cmd := child(args...)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, filepath.Join(folder, "metrics.jsonl"))
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, errOut.String())
	}
	if !strings.Contains(errOut.String(), "interrupted after step") {
		t.Fatalf("it said\n%s", errOut.String())
	}
	if !exists(filepath.Join(folder, "checkpoints", "latest")) {
		t.Fatal("no checkpoint")
	}
	must(t, append(args, "train.stop_at=1")...) // already past it: continues, does nothing more
}

// waitFor waits until a file has something in it.
func waitFor(t *testing.T, file string) {
	t.Helper()
	for range 2000 {
		if info, err := os.Stat(file); err == nil && info.Size() > 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s stays empty", file)
}

func TestSamplingFollowsTheDistribution(t *testing.T) {
	e, err := generate().parse([]string{"x", "--temperature", "2", "--seed", "3"}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := samplerOf(e)
	if err != nil {
		t.Fatal(err)
	}
	logits := []float32{1, 3, -1, 3}
	counts := make([]float64, len(logits))
	const n = 20000
	for range n {
		counts[s.choose(logits)]++
	}
	total := 0.0
	for _, l := range logits {
		total += math.Exp(float64(l) / 2)
	}
	for i, l := range logits {
		p := math.Exp(float64(l)/2) / total
		// Five standard deviations of a binomial count.
		if d := math.Abs(counts[i] - n*p); d > 5*math.Sqrt(n*p*(1-p)) {
			t.Errorf("token %d was drawn %g times, expected %g (seed 3)", i, counts[i], n*p)
		}
	}
	s.topK = 1
	for range 100 {
		if got := s.choose(logits); got != 1 {
			t.Fatalf("top-k 1 drew token %d, want 1: the first of the largest", got)
		}
	}
	s.temperature = 0
	if got := s.choose(logits); got != 1 {
		t.Errorf("temperature 0 drew token %d", got)
	}
}

func generate() *command { c := generateCommand(); return &c }

func TestTheShippedConfigurationsLoad(t *testing.T) {
	files, err := filepath.Glob("../../../configs/*.yaml")
	if err != nil || len(files) == 0 {
		t.Skip("outside the repository: no ../../../configs")
	}
	for _, file := range files {
		if out := must(t, "plan", file); !strings.Contains(out, "learning rate") {
			t.Errorf("%s: %s", file, out)
		}
		if _, err := config.LoadComparison(file, nil); err != nil {
			t.Error(err)
		}
	}
}
