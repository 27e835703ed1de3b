package plan

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/asteria"
	"github.com/asteria-runtime/asteria/trainer-olmo/config"
	"github.com/asteria-runtime/asteria/trainer-olmo/internal/testdata"
	"github.com/asteria-runtime/asteria/trainer-olmo/model"
)

const base = `model: {preset: olmo2_14M}
data: {corpus: goroot, sequence_length: 128}
train: {steps: 100, global_batch_size: 4096, micro_batch_size: 1024, threads: 2}
scheduler: {warmup: 10}
`

func plan(t *testing.T, overrides ...string) *Plan {
	t.Helper()
	c, err := config.Parse("f.yaml", []byte(base), overrides)
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func text(t *testing.T, p *Plan) string {
	t.Helper()
	var b strings.Builder
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The published counts; those in millions are rounded in the source.
func TestEveryPresetPrintsItsPublishedCounts(t *testing.T) {
	var b strings.Builder
	if err := Presets(&b); err != nil {
		t.Fatal(err)
	}
	for preset, counts := range map[string]string{
		"olmo2_60M": "95,957,376 57,422,208", "olmo2_100M": "153,117,184 101,736,960", "olmo2_190M": "267,424,512 190,354,176",
		"olmo2_370M": "474,022,912 371,262,464", "olmo2_600M": "732,255,552 597,382,464", "olmo3_600M": "676,414,720 547,964,160",
		"olmo2_760M": "912,360,960 758,220,288", "olmo2_1B": "1,619,150,848 1,413,629,952", "olmo2_1B_v2": "1,484,916,736 1,279,395,840",
		"olmo3_1B": "1,484,916,736 1,279,395,840", "olmo2_3B": "3,503,508,736 3,169,537,280", "olmo2_7B": "7,298,617,344 6,887,575,552",
		"olmo3_7B": "7,298,617,344 6,887,575,552", "olmo2_13B": "13,716,198,400 13,202,396,160", "olmo2_32B": "32,234,279,936 31,720,477,696",
		"olmo3_32B": "32,234,279,936 31,720,477,696", "olmo1_1B": "1,176,764,416 1,073,741,824", "olmo1_7B": "6,888,095,744 6,682,050,560",
		"olmo2_1M": "2,448,620 1,244,396", "olmo2_14M": "26,740,864 13,895,808", "olmo2_30M": "54,792,448 29,102,336",
	} {
		found := false
		for line := range strings.Lines(b.String()) {
			f := strings.Fields(line)
			found = found || f[0] == preset && strings.Join(f[len(f)-2:], " ") == counts
		}
		if !found {
			t.Errorf("%s: no line with %s", preset, counts)
		}
	}
	if got := strings.Count(b.String(), "\n"); got != len(model.PresetNames())+1 {
		t.Errorf("%d lines for %d presets", got, len(model.PresetNames()))
	}
}

func TestTheOfficialFileIsPlannedWithoutNetwork(t *testing.T) {
	c, err := config.Load(testdata.Path(t, "configs/OLMo-1B.yaml"), nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	out := text(t, p)
	for _, want := range []string{
		"1,176,764,416 total, 1,073,741,824 without", "739,328 steps = 3,100,966,387,712 tokens",
		"cosine, peak 0.0004, warm-up 2,000 steps from 4e-05, ends at 739,328 steps", "amp_bf16 runs as float32",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("lacks %q in\n%s", want, out)
		}
	}
}

func TestTheRatesAreThoseOfTheSchedule(t *testing.T) {
	p := plan(t)
	if len(p.Rates) != 6 || p.Rates[1].Step != 10 || p.Rates[1].LR != 1e-3 || p.Rates[5].Step != 100 {
		t.Errorf("got %+v", p.Rates)
	}
	// A run that stops before its schedule ends is what users trip over.
	out := text(t, plan(t, "scheduler.t_max=500", "train.stop_at=50"))
	for _, want := range []string{"ends at step 500, training stops at step 50", "50 steps = 204,800 tokens"} {
		if !strings.Contains(out, want) {
			t.Errorf("lacks %q in\n%s", want, out)
		}
	}
	if out := text(t, plan(t, "train.steps=5")); !strings.Contains(out, "covers the whole run") {
		t.Errorf("a run inside its warm-up:\n%s", out)
	}
}

func TestEpochsAreCountedFromLocalFiles(t *testing.T) {
	dir := t.TempDir()
	for i, tokens := range []int{128*40 + 7, 128 * 25} {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.npy", i)), make([]byte, 4*tokens), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files := fmt.Sprintf("data.paths=[%s/0.npy, %s/1.npy]", dir, dir)
	p := plan(t, files, "data.held_out=0", "train.epochs=3") // 65 instances = 2 batches of 32
	if p.Steps != 6 || p.EpochTokens != 2*4096 {
		t.Errorf("%d steps, %d tokens an epoch", p.Steps, p.EpochTokens)
	}
	p = plan(t, files, "data.paths=["+dir+"/absent.npy]", "data.held_out=0", "train.epochs=3")
	if p.Steps != 0 || !strings.Contains(text(t, p), "known when the data is opened") {
		t.Errorf("%d steps without the files", p.Steps)
	}
}

func class(p *Plan, name string) int64 {
	for _, b := range p.Memory {
		if b.Class == name {
			return b.Bytes
		}
	}
	return 0
}

func TestBytesPerClass(t *testing.T) {
	p := plan(t)
	if class(p, "weights") != 4*p.Parameters || class(p, "gradients") != 4*p.Parameters || class(p, "optimizer moments") != 8*p.Parameters ||
		class(p, "factors") != 0 || class(p, "checkpoint snapshot") != 12*p.Parameters {
		t.Errorf("adamw: %+v", p.Memory)
	}
	if p := plan(t, "optimizer.name=lionw", "checkpoint.sync=true"); class(p, "optimizer moments") != 4*p.Parameters || class(p, "checkpoint snapshot") != 0 {
		t.Errorf("lionw: %+v", p.Memory)
	}
	// Every block matrix of m by n keeps two factors and two bases, m² + n² each.
	p = plan(t, "optimizer.name=soap")
	want := int64(4 * 4 * (4*2*128*128 + 3*(128*128+512*512)))
	if class(p, "factors") != want || class(p, "roots and bases") != want || class(p, "optimizer moments") != 8*p.Parameters {
		t.Errorf("soap: factors %d, bases %d, want %d", class(p, "factors"), class(p, "roots and bases"), want)
	}
}

// Pending sums are counted where the shape of the run needs them, and with tied
// embeddings the gradient that is summed apart.
func TestPendingSums(t *testing.T) {
	p := plan(t)
	params, table := p.Parameters*4, int64(p.Model.VocabSize*p.Model.DModel*4)
	for _, c := range []struct {
		set  []string
		want int64
	}{
		{nil, params}, // four micro-batches of a group each
		{[]string{"train.micro_batch_size=0"}, 0},
		{[]string{"train.micro_batch_size=512"}, 2 * params},
		{[]string{"train.sum_groups=1"}, 0},
		{[]string{"parallel.ranks=4"}, 0},
		{[]string{"parallel.ranks=4", "train.sum_groups=4", "model.tie_word_embeddings=true"}, table},
		{[]string{"train.micro_batch_size=2048", "model.tie_word_embeddings=true"}, table},
	} {
		got := class(plan(t, c.set...), "pending sums")
		// The head's chunks of logits may be smaller than a group.
		if got < c.want || got > c.want+2*table {
			t.Errorf("%v: %d bytes, want %d and at most 2 heads of %d", c.set, got, c.want, table)
		}
	}
}

func TestTheOptimizersClassesAreWhatItAllocates(t *testing.T) {
	c, err := config.Parse("f.yaml", []byte(base), []string{"optimizer.name=kl-shampoo", "model.vocab_size=300", "model.n_layers=2"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	eng := gemm.New(2)
	defer eng.Close()
	m, err := model.New[float32](c.ModelConfig(), eng)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	o, err := c.AsteriaOptions()
	if err != nil {
		t.Fatal(err)
	}
	opt, err := asteria.New(m.Params(), eng, o)
	if err != nil {
		t.Fatal(err)
	}
	defer opt.Close()
	got := int64(0)
	for _, s := range opt.Sections() {
		got += 4*int64(len(s.F32)) + 8*int64(len(s.F64)) + 8*int64(len(s.I64))
	}
	planned := class(p, "optimizer moments") + class(p, "factors") + class(p, "roots and bases") + class(p, "counters")
	if d := float64(got-planned) / float64(planned); d > 0.01 || d < -0.01 {
		t.Errorf("planned %d bytes of state, allocated %d", planned, got)
	}
}

func TestTheBytesOfTheParametersAddUp(t *testing.T) {
	for _, name := range []string{"adamw", "soap", "shampoo"} {
		p := plan(t, "optimizer.name="+name)
		params, state := int64(0), int64(0)
		for _, x := range p.Tensors {
			params, state = params+x.Param, state+x.State
		}
		want := class(p, "optimizer moments") + class(p, "factors") + class(p, "roots and bases") + class(p, "counters")
		if params != class(p, "weights")+class(p, "gradients") || state != want {
			t.Errorf("%s: parameters %d, state %d, want %d and %d", name, params, state, class(p, "weights")+class(p, "gradients"), want)
		}
		var b strings.Builder
		if err := p.WriteTensors(&b); err != nil || strings.Count(b.String(), "\n") != len(p.Tensors)+1 {
			t.Errorf("%s: %v\n%s", name, err, b.String())
		}
	}
}

func TestOverBudgetIsRefusedWithTheArithmetic(t *testing.T) {
	p := plan(t)
	if err := p.Check(0); err != nil {
		t.Error(err)
	}
	if err := p.Check(p.Total()); err != nil {
		t.Error(err)
	}
	err := p.Check(p.Total() - 1)
	if !errors.Is(err, ErrOverBudget) || !strings.Contains(err.Error(), "weights 102.01 MiB + gradients 102.01 MiB + ") {
		t.Errorf("got %v", err)
	}
}

func TestNumbersForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 12: "12", 1234: "1,234", -1234567: "-1,234,567"} {
		if got := Group(n); got != want {
			t.Errorf("Group(%d) = %s", n, got)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.50 KiB", 5 << 30: "5.00 GiB"} {
		if got := Size(n); got != want {
			t.Errorf("Size(%d) = %s", n, got)
		}
	}
}

// The device's memory is listed where a device may compute, also where there is none.
func TestDeviceMemoryIsListed(t *testing.T) {
	if s := text(t, plan(t, "optimizer.name=soap")); strings.Contains(s, "device memory") {
		t.Errorf("without a device:\n%s", s)
	}
	s := text(t, plan(t, "optimizer.name=soap", "runtime.device=cuda:1"))
	for _, want := range []string{"device memory", "\nstate ", "\nrefreshes ", "\nlibraries ", "(estimate)"} {
		if !strings.Contains(s, want) {
			t.Errorf("no %q in\n%s", want, s)
		}
	}
}
