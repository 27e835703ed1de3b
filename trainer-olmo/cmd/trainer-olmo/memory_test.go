package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/asteria-runtime/asteria/trainer-olmo/config"
	"github.com/asteria-runtime/asteria/trainer-olmo/doctor"
	"github.com/asteria-runtime/asteria/trainer-olmo/plan"
)

// sampleEvery is the time between two looks at a run's memory: the peaks last for
// whole steps.
const sampleEvery = 5 * time.Millisecond

// memoryRun is a run whose memory is measured.
type memoryRun struct {
	name string
	set  []string
	// resume says that a second process continues the run, whose memory counts too.
	resume bool
}

// largeState makes an optimizer's state of more than 1 GiB in matrices of moderate
// size, so that a step takes about a second.
var largeState = []string{
	"model.d_model=512", "model.n_layers=12", "model.n_heads=8", "model.hidden_size=1408",
	"train.steps=4", "checkpoint.interval=2", "optimizer.precondition_frequency=2",
}

// wideState has few large matrices, some of which Shampoo cuts.
var wideState = []string{
	"model.d_model=1024", "model.n_layers=5", "model.n_heads=8", "model.hidden_size=2816",
	"train.steps=4", "checkpoint.interval=2", "optimizer.precondition_frequency=2",
}

// wordyState is mostly embeddings: AdamW needs many parameters for 1 GiB.
var wordyState = []string{
	"model.d_model=1024", "model.n_layers=6", "model.n_heads=8", "model.hidden_size=2816", "model.vocab_size=32768",
	"train.steps=4", "checkpoint.interval=2",
}

var asteriaMode = []string{"runtime.mode=asteria", "runtime.workers=1", "runtime.lag_start=2", "train.threads=1"}

func with(parts ...[]string) []string {
	var out []string
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// memoryRuns cover the methods, both modes, and where the state lies.
func memoryRuns(drive string) []memoryRun {
	nvme := []string{"tiers.host=256MiB", "tiers.nvme.path=" + drive}
	return []memoryRun{
		{"adamw", with(wordyState, []string{"optimizer.name=adamw"}), false},
		{"soap", with(largeState, []string{"optimizer.name=soap"}), true},
		{"shampoo", with(largeState, []string{"optimizer.name=shampoo"}), false},
		{"kl-shampoo wide", with(wideState, []string{"optimizer.name=kl-shampoo"}), false},
		{"soap beside training", with(largeState, asteriaMode, []string{"optimizer.name=soap"}), true},
		{"shampoo beside training", with(largeState, asteriaMode, []string{"optimizer.name=shampoo"}), false},
		{"soap with NVMe", with(largeState, asteriaMode, nvme, []string{"optimizer.name=soap"}), true},
		{"kl-shampoo with NVMe", with(wideState, nvme, []string{"optimizer.name=kl-shampoo"}), false},
	}
}

// The peak of a run's anonymous memory is what plan printed: with a state of 1 GiB
// or more between 0.95 and 1.02 of it. ASTERIA_LONG=1 runs it; `make memory` does.
func TestPeakMemoryIsThePlans(t *testing.T) {
	if os.Getenv("ASTERIA_LONG") == "" {
		t.Skip("needs ASTERIA_LONG=1: runs of several GiB")
	}
	for _, r := range memoryRuns(t.TempDir()) {
		t.Run(r.name, func(t *testing.T) {
			for i, m := range measure(t, r) {
				ratio := float64(m.peak) / float64(m.plan)
				t.Logf("process %d: peak %d bytes, plan %d, ratio %.4f", i+1, m.peak, m.plan, ratio)
				if ratio > 1.02 || ratio < 0.95 {
					t.Errorf("process %d: the peak is %.4f of the plan, allowed 0.95 to 1.02\n%s", i+1, ratio, m.text)
				}
			}
		})
	}
}

// A small run stays within its plan as well; how far below is a matter of the
// program itself, which weighs more there.
func TestASmallRunStaysWithinItsPlan(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	set := []string{"model.d_model=128", "model.n_layers=4", "model.n_heads=4", "model.hidden_size=352", "optimizer.name=soap", "train.steps=6", "checkpoint.interval=2", "optimizer.precondition_frequency=2"}
	pending := with(set, []string{"train.global_batch_size=1024", "train.micro_batch_size=128", "model.tie_word_embeddings=true", "model.vocab_size=8192"})
	for _, r := range []memoryRun{{"small", set, true}, {"with sums that wait", pending, false}} {
		for i, m := range measure(t, r) {
			if ratio := float64(m.peak) / float64(m.plan); ratio < 0.7 || ratio > 1.02 {
				t.Errorf("%s, process %d: peak %d bytes, plan %d, ratio %.3f\n%s", r.name, i+1, m.peak, m.plan, ratio, m.text)
			} else {
				t.Logf("%s, process %d: peak %d bytes, plan %d, ratio %.3f", r.name, i+1, m.peak, m.plan, ratio)
			}
		}
	}
}

// Field failure A23: turning NVMe on needed more memory than leaving it off, and the
// system ended the process. Here the need is known before anything is allocated,
// staging is part of the host tier's budget, and what a control group of 512 MiB
// does not hold is refused with the numbers.
func TestA23_PreflightKeepsWithinTheGroupsLimit(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "proc/self/cgroup"), "0::/job\n")
	write(t, filepath.Join(root, "sys/fs/cgroup/job/memory.max"), "536870912\n")
	o := doctor.Options{Root: root}
	text := "model: {d_model: 512, n_layers: 2, n_heads: 8, hidden_size: 1408}\ndata: {corpus: goroot, sequence_length: 128}\n" +
		"train: {steps: 10, global_batch_size: 256, threads: 1}\noptimizer: {name: soap}\nruntime: {mode: asteria, workers: 1}\n" +
		"eval: {tokens: 1024}\n"
	planOf := func(set ...string) *plan.Plan {
		c, err := config.Parse("a23.yaml", []byte(text), set)
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.New(c)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	resident, tiered := planOf(), planOf("tiers.host=64MiB", "tiers.nvme.path=/drive")
	if tiered.Total() >= resident.Total() {
		t.Errorf("NVMe needs %d bytes of memory, without it %d", tiered.Total(), resident.Total())
	}
	if err := fits(tiered, 1, o); err != nil {
		t.Errorf("with NVMe: %v", err)
	}
	if err := fits(tiered, 2, o); !errors.Is(err, plan.ErrOverBudget) {
		t.Errorf("two ranks: %v", err)
	}
	err := fits(resident, 1, o)
	for _, want := range []string{"weights ", " + spare slots ", "the limit is 512.00 MiB", "/sys/fs/cgroup/job/memory.max", "tiers.nvme.path"} {
		if !errors.Is(err, plan.ErrOverBudget) || !strings.Contains(err.Error(), want) {
			t.Errorf("without NVMe: %v, want %q", err, want)
		}
	}
}

// measured is the memory of one process.
type measured struct {
	peak, plan int64
	text       string // what plan printed
}

// measure trains in a process of its own and samples its anonymous memory.
func measure(t *testing.T, r memoryRun) []measured {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "run.yaml"), fmt.Sprintf(`save_folder: %[1]s/run
data: {paths: [%[1]s/text.txt], cache_folder: %[1]s/cache, sequence_length: 128}
train: {global_batch_size: 256, threads: 2}
scheduler: {warmup: 2}
eval: {interval: 0, tokens: 1024}
`, dir))
	write(t, filepath.Join(dir, "text.txt"), strings.Repeat("the quick brown fox jumps over the lazy dog. ", 2000))
	args := append([]string{file}, r.set...)
	text := must(t, append([]string{"plan"}, args...)...)
	out := []measured{{peakOf(t, append([]string{"train"}, args...)), planned(t, text), text}}
	if r.resume {
		args = append(args, "train.steps=8")
		text = must(t, append([]string{"plan"}, args...)...)
		out = append(out, measured{peakOf(t, append([]string{"train"}, args...)), planned(t, text), text})
	}
	return out
}

// planned reads the total that plan prints.
func planned(t *testing.T, text string) int64 {
	t.Helper()
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "total" {
			n, err := strconv.ParseInt(strings.ReplaceAll(f[1], ",", ""), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no total in\n%s", text)
	return 0
}

// peakOf runs a command line in a process of its own and returns the most
// anonymous memory that it had.
func peakOf(t *testing.T, args []string) (peak int64) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), runEnv+"=1", "GOMEMLIMIT=", "GOGC=")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("%v: %v\n%s", args, err, out.String())
			}
			return peak
		case <-tick.C:
			peak = max(peak, anonymous(cmd.Process.Pid))
		}
	}
}

// anonymous reads RssAnon of a process, 0 when it is gone.
func anonymous(pid int) int64 {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var kb int64
		if n, _ := fmt.Sscanf(s.Text(), "RssAnon: %d kB", &kb); n == 1 {
			return kb << 10
		}
	}
	return 0
}
