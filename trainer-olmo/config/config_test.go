package config

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/asteria-runtime/asteria/trainer-olmo/model"
	"github.com/google/go-cmp/cmp"
)

func mustParse(t *testing.T, text string, overrides ...string) *Config {
	t.Helper()
	c, err := Parse("f.yaml", []byte(text), overrides)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// sameConfig compares what the resolved file carries.
func sameConfig(t *testing.T, got, want *Config) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmp.FilterPath(func(p cmp.Path) bool {
		name := p.Last().String()
		return name == ".Notices" || name == ".Legacy"
	}, cmp.Ignore()), cmp.FilterValues(func(a, b []string) bool { return len(a)+len(b) == 0 }, cmp.Ignore()),
		cmp.FilterValues(func(a, b []int) bool { return len(a)+len(b) == 0 }, cmp.Ignore()),
		cmp.FilterValues(func(a, b []Count) bool { return len(a)+len(b) == 0 }, cmp.Ignore())); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestTheResolvedFileReadsBackAsItself(t *testing.T) {
	for name, overrides := range map[string][]string{
		"shortest": nil,
		"awkward texts": {
			`run_name="a: b # \"c\"\n\u00e9"`, `save_folder="  spaces "`, `data.paths=["1", "true", "- x", "a'b", "null", é, ~x, "&a", "0x1", yes]`,
		},
		"awkward numbers": {
			"optimizer.lr=1.2345678901234567e-7", "optimizer.betas=[0, 0.999999]", "optimizer.ridge=1e-300",
			"data.max_bytes=3MiB", "runtime.job_timeout=1m30s", "scheduler.t_max=9007199254740992",
		},
		"lists": {
			"scheduler.name=wsds", "scheduler.period_lengths=[5, 5]", "model.preset=olmo3_1B", "model.sliding_window=[64, -1]",
			"model.rope_scaling={kind: yarn, factor: 8}",
		},
		"legacy words": {"scheduler.legacy=true", "loss.divisor=tokens", "data.order=legacy", "data.keep_last=true"},
	} {
		t.Run(name, func(t *testing.T) {
			first := mustParse(t, base, overrides...)
			out := first.YAML()
			second := mustParse(t, string(out))
			sameConfig(t, second, first)
			if again := second.YAML(); !bytes.Equal(out, again) {
				t.Errorf("the second resolved text differs:\n%s", cmp.Diff(string(out), string(again)))
			}
		})
	}
}

func TestTheResolvedTextMatchesTheGoldenFile(t *testing.T) {
	for _, name := range []string{"short", "legacy"} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("testdata", name+".yaml")
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c, err := Parse(name+".yaml", text, nil)
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name+".resolved.yaml")
			if os.Getenv("ASTERIA_REWRITE") != "" {
				if err := os.WriteFile(golden, c.YAML(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(c.YAML())); diff != "" {
				t.Errorf("-want +got (ASTERIA_REWRITE=1 accepts)\n%s", diff)
			}
		})
	}
}

func TestOverridesComeAfterTheFileInTheirOrder(t *testing.T) {
	c := mustParse(t, base, "optimizer.lr=1e-2", "optimizer.lr=3e-3", "--optimizer.name=soap", "data={seed: 7}",
		"optimizer.betas=[0.8, 0.9]", "run_name=", "eval.paths=one.npy")
	if c.Optimizer.LR != 3e-3 || c.Optimizer.Name != "soap" || c.Data.Seed != 7 || c.Data.Corpus != "goroot" ||
		c.Optimizer.Betas != [2]float64{0.8, 0.9} || c.RunName != "" || !reflect.DeepEqual(c.Eval.Paths, []string{"one.npy"}) {
		t.Errorf("got %+v, data %+v", c.Optimizer, c.Data)
	}
}

func TestAnOverrideOfOneOfSeveralAlternativesReplacesTheOther(t *testing.T) {
	c := mustParse(t, base, "train.tokens=1e6", "data.paths=[x.npy]")
	if c.Train.Steps != 0 || c.Train.Tokens != 1_000_000 || c.Data.Corpus != "" {
		t.Errorf("got train %+v, data.corpus %q", c.Train, c.Data.Corpus)
	}
}

func TestClearingOneAlternativeLeavesTheOther(t *testing.T) {
	for _, clear := range []string{"data.corpus=", `data.corpus=""`, "data.corpus=null"} {
		c := mustParse(t, base, "data.paths=[x.npy]", clear)
		if c.Data.Corpus != "" || !reflect.DeepEqual(c.Data.Paths, []string{"x.npy"}) {
			t.Errorf("%s: corpus %q, paths %v", clear, c.Data.Corpus, c.Data.Paths)
		}
	}
	if c := mustParse(t, base, "data.paths=[]"); c.Data.Corpus != "goroot" {
		t.Errorf("an empty list took the place of the corpus: %+v", c.Data)
	}
}

func TestAPresetIsReplacedValueByValue(t *testing.T) {
	c := mustParse(t, base, "model.vocab_size=300", "model.n_layers=2")
	want, err := model.Preset("olmo2_14M")
	if err != nil {
		t.Fatal(err)
	}
	want.VocabSize, want.NLayers = 300, 2
	want.MaxSequenceLength = c.ModelConfig().MaxSequenceLength
	if !c.ModelConfig().Equal(want) {
		t.Errorf("got  %+v\nwant %+v", c.ModelConfig(), want.Resolved())
	}
}

func TestEveryPresetIsAValidModel(t *testing.T) {
	for _, name := range model.PresetNames() {
		c := mustParse(t, base, "model.preset="+name)
		want, err := model.Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		gotTotal, gotRest := c.ModelConfig().ParamCount()
		total, rest := want.ParamCount()
		if gotTotal != total || gotRest != rest {
			t.Errorf("%s: %d and %d parameters, want %d and %d", name, gotTotal, gotRest, total, rest)
		}
	}
}

// The section mirrors model.Config so that its keys can carry documentation;
// this holds the two together.
func TestTheModelSectionHasTheKeysOfTheModelPackage(t *testing.T) {
	theirs, ours := map[string]reflect.Value{}, map[string]reflect.Value{}
	collect(theirs, reflect.ValueOf(model.Config{}))
	collect(ours, reflect.ValueOf(Model{}))
	for key, v := range theirs {
		o, ok := ours[key]
		if !ok {
			t.Errorf("model.%s of the model package has no key here", key)
			continue
		}
		if v.Kind() != reflect.Struct && !v.Type().ConvertibleTo(o.Type()) {
			t.Errorf("model.%s is %s there and %s here", key, v.Type(), o.Type())
		}
	}
	for key := range ours {
		if _, ok := theirs[key]; !ok && key != "preset" {
			t.Errorf("model.%s has no counterpart in the model package", key)
		}
	}
}

func TestEveryKeyIsDocumentedAndItsDefaultAllowed(t *testing.T) {
	d := Default()
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.Tag.Get("yaml") == "-" {
				continue
			}
			full := join(path, f.Tag.Get("yaml"))
			if f.Tag.Get("yaml") == "" || f.Tag.Get("doc") == "" {
				t.Errorf("%s: no key or no doc", full)
			}
			if v.Field(i).Kind() == reflect.Struct {
				walk(v.Field(i), full)
				continue
			}
			if zero := v.Field(i).IsZero() && v.Field(i).Kind() == reflect.String; zero {
				continue // filled in later, such as model.norm
			}
			if err := check(v.Field(i), f.Tag); err != nil {
				t.Errorf("%s: the default %s", full, err)
			}
		}
	}
	walk(reflect.ValueOf(d), "")
}

func TestNumbersSizesAndWordsInAllTheirForms(t *testing.T) {
	for text, want := range map[string]Size{
		"0": 0, "512": 512, "1KiB": 1024, "4GiB": 4 << 30, "1.5GiB": 3 << 29, "100GB": 100e9, "2 MiB": 2 << 20, "1_000B": 1000, "1e3KB": 1e6,
	} {
		got, err := ParseSize(text)
		if err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v, want %d", text, got, err, want)
		}
		if back, err := ParseSize(got.String()); err != nil || back != got {
			t.Errorf("%d is written %q and read %d, %v", got, got, back, err)
		}
	}
	for _, bad := range []string{"", "GiB", "1.5B", "0.3KiB", "1e30TB", "four", "1 2"} {
		if n, err := ParseSize(bad); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", bad, n)
		}
	}
	for text, want := range map[string]int64{"12": 12, "-3": -3, "739_328": 739328, "5e12": 5e12, "1.5e3": 1500, "9223372036854775807": 1<<63 - 1} {
		if got, err := parseWhole(text); err != nil || got != want {
			t.Errorf("parseWhole(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "1.5", "1e300", "0x10", "nan", "inf", "one"} {
		if got, err := parseWhole(bad); err == nil {
			t.Errorf("parseWhole(%q) = %d, want an error", bad, got)
		}
	}
}

func TestStepsComeFromStepsTokensOrEpochs(t *testing.T) {
	for override, want := range map[string]int64{
		"train.steps=7": 7, "train.tokens=4096": 1, "train.tokens=4097": 2, "train.tokens=8192": 2, "train.epochs=3": 33,
		"train.epochs=9e15": 1<<63 - 1,
	} {
		c := mustParse(t, base, override)
		batches := int64(11)
		if override == "train.epochs=9e15" {
			batches = 1 << 40
		}
		if got := c.TotalSteps(batches); got != want {
			t.Errorf("%s: %d steps, want %d", override, got, want)
		}
	}
}

func TestTheScheduleInTokensEqualsTheOneInSteps(t *testing.T) {
	steps := mustParse(t, base, "scheduler.warmup=5", "train.steps=100")
	tokens := mustParse(t, base, "scheduler.units=tokens", "scheduler.warmup=20480", "train.steps=100")
	a, err := steps.Schedule(100)
	if err != nil {
		t.Fatal(err)
	}
	b, err := tokens.Schedule(100)
	if err != nil {
		t.Fatal(err)
	}
	for s := int64(1); s <= 100; s++ {
		// Both are the same ratios of whole numbers, scaled by the batch.
		if x, y := a.LR(s), b.LR(s); !(abs(x-y) <= 1e-15) {
			t.Errorf("step %d: %g by steps, %g by tokens", s, x, y)
		}
	}
	if got := a.LR(5); got != 1e-3 {
		t.Errorf("at the end of the warm-up: %g, want the peak", got)
	}
}

func abs(x float64) float64 { return max(x, -x) }

func TestEveryScheduleNameHasACurve(t *testing.T) {
	f, _ := reflect.TypeFor[Scheduler]().FieldByName("Name")
	for _, name := range strings.Fields(f.Tag.Get("oneof")) {
		c := mustParse(t, base, "scheduler.name="+name, "scheduler.period_lengths=[5, 5]")
		s, err := c.Schedule(10)
		if err != nil {
			t.Fatal(err)
		}
		if lr := s.LR(3); !(lr > 0) {
			t.Errorf("%s: learning rate %g at step 3", name, lr)
		}
	}
}

func TestKeysOfTheAsynchronousModeAreToldToHaveNoEffect(t *testing.T) {
	c := mustParse(t, base, "runtime.workers=3", "runtime.staleness=5")
	if want := []string{`override "runtime.workers=3": runtime.workers has no effect in native mode`}; !cmp.Equal(c.Notices, want) {
		t.Errorf("got %q, want %q", c.Notices, want)
	}
	if again := mustParse(t, string(mustParse(t, base).YAML())); len(again.Notices) > 0 {
		t.Errorf("a resolved file is told %q", again.Notices)
	}
}

func TestAMissingOrHugeFileIsAClearError(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "none.yaml"), nil); !os.IsNotExist(unwrap(err)) {
		t.Errorf("a missing file gives %v", err)
	}
	huge := filepath.Join(t.TempDir(), "huge.yaml")
	if err := os.WriteFile(huge, bytes.Repeat([]byte("# x\n"), maxFileBytes/4+1), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(huge, nil); err == nil || !strings.Contains(err.Error(), "bytes are more than") {
		t.Errorf("a huge file gives %v", err)
	}
}

func unwrap(err error) error {
	for {
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return err
		}
		err = u.Unwrap()
	}
}
