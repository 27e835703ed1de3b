package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const compared = base + `save_folder: runs/x
optimizer: {lr: 0.002}
compare:
  seeds: [1, 2]
  baseline: soap
  runs:
    - name: adamw
      sweep: {optimizer.lr: [1e-3, 2e-3], scheduler.name: [cosine, linear]}
    - name: soap
      seeds: [5]
      set:
        optimizer: {name: soap}
        train.steps: 7
`

func TestAComparisonIsTheProductOfRunsSweepsAndSeeds(t *testing.T) {
	c, err := ParseComparison("f.yaml", []byte(compared), []string{"optimizer.weight_decay=0.3"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range c.Runs {
		got = append(got, r.Group+" "+r.Config.SaveFolder)
		if r.Config.Optimizer.WeightDecay != 0.3 || r.Config.Data.Seed != r.Seed || r.Config.Seed != r.Seed {
			t.Errorf("%s: weight decay %g, seeds %d and %d of %d", r.Group, r.Config.Optimizer.WeightDecay, r.Config.Seed, r.Config.Data.Seed, r.Seed)
		}
	}
	var want []string
	for _, g := range []string{"lr=1e-3-name=cosine", "lr=1e-3-name=linear", "lr=2e-3-name=cosine", "lr=2e-3-name=linear"} {
		for _, s := range []string{"1", "2"} {
			want = append(want, "adamw-"+g+" runs/x/adamw-"+g+"-s"+s)
		}
	}
	want = append(want, "soap runs/x/soap-s5")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	last := c.Runs[len(c.Runs)-1].Config
	if last.Train.Steps != 7 || last.Optimizer.Name != "soap" || last.Optimizer.LR != 0.002 || c.Baseline != "soap" || c.Folder != "runs/x" {
		t.Errorf("last run %+v, baseline %s, folder %s", last.Optimizer, c.Baseline, c.Folder)
	}
}

func TestTrainIgnoresTheSectionCompare(t *testing.T) {
	if c := mustParse(t, compared); c.SaveFolder != "runs/x" || c.Optimizer.LR != 0.002 {
		t.Errorf("got %s, %g", c.SaveFolder, c.Optimizer.LR)
	}
}

func TestMistakesInAComparisonNameTheirPlace(t *testing.T) {
	for _, tc := range []struct{ from, to, want string }{
		{"baseline: soap", "baseline: sopa", `f.yaml: compare.baseline: "sopa" is not one of adamw-lr=1e-3-name=cosine, adamw-lr=1e-3-name=linear, adamw-lr=2e-3-name=cosine, adamw-lr=2e-3-name=linear, soap; did you mean soap?`},
		{"name: adamw\n", "nam: adamw\n", "f.yaml:10: compare.runs[0].nam: unknown key; did you mean name?"},
		{"name: soap\n", "name: ../x\n", `f.yaml:12: compare.runs[1].name: "../x" is not a name for a folder`},
		{"optimizer: {name: soap}", "optimizer: {nam: soap}", "f.yaml:15: optimizer.nam: unknown key; did you mean optimizer.name?"},
		{"train.steps: 7", "train.stpes: 7", "f.yaml:16: train.stpes: unknown key; did you mean train.steps?"},
		{"lr: 0.002", "lr: 0", "f.yaml:5: optimizer.lr: 0 is not in (0, inf)"},
		{"seeds: [1, 2]", "seeds: [one]", `f.yaml:7: compare.seeds: item 1: "one" is not a whole number`},
		{"seeds: [1, 2]", "seeds: [1, 1]", "f.yaml: compare.runs: two runs are called adamw-lr=1e-3-name=cosine-s1"},
	} {
		_, err := ParseComparison("f.yaml", []byte(strings.Replace(compared, tc.from, tc.to, 1)), nil)
		first := ""
		if err != nil {
			first = strings.SplitN(err.Error(), "\n", 2)[0]
		}
		if first != tc.want {
			t.Errorf("got  %s\nwant %s", first, tc.want)
		}
	}
	if _, err := ParseComparison("f.yaml", []byte(base), nil); err == nil || err.Error() != "f.yaml: compare: is not set; it lists the runs to compare" {
		t.Errorf("without the section: %v", err)
	}
}

func TestASweepCannotRunAway(t *testing.T) {
	many := "[" + strings.Repeat("1e-3, ", 99) + "1e-3]"
	text := base + "compare:\n  runs:\n    - {name: a, sweep: {optimizer.lr: " + many + ", optimizer.eps: " + many + ", optimizer.weight_decay: " + many + "}}\n"
	if _, err := ParseComparison("f.yaml", []byte(text), nil); err == nil {
		t.Error("a million runs are accepted")
	}
}

func TestOverridesOfTheSectionChangeItAndNotItsRuns(t *testing.T) {
	c, err := ParseComparison("f.yaml", []byte(compared), []string{"--compare.seeds=[9]", "optimizer.eps=1e-6"})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(c.Runs); n != 5 { // 4 of the sweep with one seed in place of two, and soap with its own
		t.Fatalf("%d runs, want 5", n)
	}
	for i, r := range c.Runs {
		want := int64(9)
		if i == 4 {
			want = 5
		}
		if r.Seed != want || r.Config.Optimizer.Eps != 1e-6 {
			t.Errorf("run %d: seed %d, eps %g, want %d, 1e-6", i, r.Seed, r.Config.Optimizer.Eps, want)
		}
	}
	for override, want := range map[string]string{"compare.sedes=[9]": "compare.sedes", "compare.runs=[]": "list at least one run"} {
		if _, err := ParseComparison("f.yaml", []byte(compared), []string{override}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", override, err, want)
		}
	}
}
