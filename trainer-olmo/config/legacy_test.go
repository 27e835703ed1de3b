package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/asteria-runtime/asteria/trainer-olmo/internal/testdata"
)

func legacyText(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("testdata/legacy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestTheOfficialOLMo1BFileIsAcceptedAsItIs(t *testing.T) {
	c, err := Load(testdata.Path(t, "configs/OLMo-1B.yaml"), nil)
	if err != nil {
		t.Fatal(err)
	}
	total, rest := c.ModelConfig().ParamCount()
	if total != 1_176_764_416 || rest != 1_073_741_824 {
		t.Errorf("%d parameters, %d without embeddings", total, rest)
	}
	if c.TotalSteps(0) != 739_328 || c.Train.GlobalBatchSize != 2048*2048 || c.Train.MicroBatchSize != 8*2048 {
		t.Errorf("train %+v", c.Train)
	}
	o := c.Optimizer
	if o.LR != 4e-4 || o.Eps != 1e-5 || o.DecayNorms || o.DecayEmbeddings || o.WeightDecay != 0.1 {
		t.Errorf("optimizer %+v", o)
	}
	if s := c.Scheduler; s.Warmup != 2000 || !(abs(s.WarmupMinLR-4e-5) <= 1e-20) || s.Name != "cosine" {
		t.Errorf("scheduler %+v", s)
	}
	if c.Loss != (Loss{ZLoss: 0, Divisor: "tokens"}) || c.Data.Order != "legacy" || len(c.Eval.Paths) == 0 {
		t.Errorf("loss %+v, order %s, %d evaluation files", c.Loss, c.Data.Order, len(c.Eval.Paths))
	}
	if all := strings.Join(c.Notices, "\n"); !strings.Contains(all, "ends documents with 0, model.eos_token_id is 50279") {
		t.Errorf("the contradiction about EOS is not told:\n%s", all)
	}
	if c.SaveFolder != "runs/OLMo-1B" {
		t.Errorf("save_folder %q", c.SaveFolder)
	}
	if again, err := Parse("again", c.YAML(), nil); err != nil || string(again.YAML()) != string(c.YAML()) {
		t.Errorf("the resolved file does not read back: %v", err)
	}
}

func TestLegacyRulesAreToldOnce(t *testing.T) {
	c := mustParse(t, legacyText(t))
	all := strings.Join(c.Notices, "\n")
	for _, want := range []string{
		"an OLMo train.py configuration", "precision: amp_bf16 runs as float32", "auxiliary_loss_multiplier: 1e-05 has no effect",
		"known keys without effect here: model.flash_attention", "wandb", "fused_loss", "downstream tasks are not run here: piqa",
		"device_train_microbatch_size: 12 does not divide the batch of 64 sequences; 8 is used", "save_folder: none of the file's folders exists",
		"tokenizer.json is not on this machine",
	} {
		if strings.Count(all, want) != 1 {
			t.Errorf("%q is said %d times in\n%s", want, strings.Count(all, want), all)
		}
	}
}

func TestLegacyValuesTakeTheirLegacyMeaning(t *testing.T) {
	c := mustParse(t, legacyText(t))
	if !c.Legacy || c.Model.HiddenSize != 176 || c.Model.VocabSize != 1024 || c.Model.Arch != "olmo2" || c.Model.NKVHeads != 2 {
		t.Errorf("model %+v", c.Model)
	}
	if c.Loss != (Loss{ZLoss: 1e-4, Divisor: "tokens"}) {
		t.Errorf("loss %+v: the multiplier in the file is a dead key, 1e-4 runs", c.Loss)
	}
	if want := []string{"/data/1a.npy", "https://example.org/1b.npy", "/data/2.npy"}; !reflect.DeepEqual(c.Data.Paths, want) {
		t.Errorf("paths %v, want %v (labels in order)", c.Data.Paths, want)
	}
	if want := []string{"/data/a.npy", "https://example.org/b.npy"}; !reflect.DeepEqual(c.Eval.Paths, want) {
		t.Errorf("evaluation paths %v, want %v", c.Eval.Paths, want)
	}
	if c.Eval.Tokens != 4*12*128 || c.Eval.Interval != 100 || c.Eval.Metric != "legacy" {
		t.Errorf("eval %+v", c.Eval)
	}
	if c.TotalSteps(0) != 367 { // ceil(3e6 / 8192)
		t.Errorf("%d steps", c.TotalSteps(0))
	}
	if f := c.Data.InstanceFilter; !f.Enabled || c.Data.Seed != 42 || c.Data.KeepLast || c.SaveFolder != "runs/legacy-small" {
		t.Errorf("data %+v, folder %s", c.Data, c.SaveFolder)
	}
}

func TestALegacyFileTakesOverridesOfBothTrainers(t *testing.T) {
	c := mustParse(t, legacyText(t), "--optimizer.learning_rate=1e-3", "--model.n_layers=3", "loss.z_loss=1e-5", "loss.divisor=labels",
		"optimizer.name=soap", "optimizer.precondition_frequency=5", "train.threads=2", "--save_folder=here", "checkpoint.keep=9")
	if c.Optimizer.LR != 1e-3 || c.Model.NLayers != 3 || c.Loss != (Loss{1e-5, "labels"}) || c.Optimizer.Name != "soap" ||
		c.Optimizer.PreconditionFrequency != 5 || c.Train.Threads != 2 || c.SaveFolder != "here" || c.Checkpoint.Keep != 9 {
		t.Errorf("got %+v", c)
	}
}

func TestLegacyDefaultsApplyWhereTheFileIsSilent(t *testing.T) {
	text := `
max_duration: 10
global_train_batch_size: 4
device_train_microbatch_size: 4
optimizer: {name: adamw, learning_rate: 0.01}
model: {d_model: 64, n_heads: 4, n_layers: 1, rope: true, include_bias: false, layer_norm_with_affine: false,
  attention_dropout: 0, residual_dropout: 0, embedding_dropout: 0, vocab_size: 100, embedding_size: null}
data: {paths: [x.npy]}
`
	c := mustParse(t, text)
	if c.Optimizer.Eps != 1e-5 || c.Scheduler.WarmupMinLR != 0.001 || c.Scheduler.Warmup != 100 || !c.Model.TieEmbeddings ||
		c.Model.HiddenSize != 128 || c.Model.RopeTheta != 10000 || c.Train.MaxGradNorm != 0 || c.Data.DType != "uint16" || !c.Data.KeepLast {
		t.Errorf("got %+v", c)
	}
	if c.Model.VocabSize != 100 {
		t.Errorf("vocabulary %d: without embedding_size it is vocab_size", c.Model.VocabSize)
	}
}

func TestLegacySettingsThatCannotBeHonouredAreErrors(t *testing.T) {
	for _, tc := range []struct{ override, want string }{
		{"model.residual_dropout=0.1", "model.residual_dropout: 0.1: dropout is not supported; set it to 0.0"},
		{"model.alibi=true", "model.alibi: true is not supported; set it to false"},
		{"model.rope=false", "model.rope: false is not supported; set it to true"},
		{"model.activation_type=gelu", "model.activation_type: gelu is not supported; allowed: swiglu"},
		{"model.include_bias=true", "model.include_bias: true is not supported; set it to false"},
		{"model.block_type=parallel", "model.block_type: parallel is not supported; allowed: sequential, llama"},
		{"model.init_fn=kaiming_normal", "model.init_fn: kaiming_normal is not supported; allowed: normal, mitchell, full_megatron, fan_in"},
		{"max_duration=soon", `max_duration: "soon" is not a number of steps, tokens such as 2e12T, or epochs such as 1ep`},
		{"model.mlp_hidden_size=351", "model.mlp_hidden_size: 351 is odd; swiglu splits it in two"},
		{"optimizer.nam=adamw", "optimizer.nam: unknown key; did you mean optimizer.name?"},
		{"optimizer.learning_rat=1", "optimizer.learning_rat: unknown key; did you mean optimizer.learning_rate?"},
		{"global_train_batch_sise=1", "global_train_batch_sise: unknown key; did you mean global_train_batch_size?"},
		{"scheduler.name=cosine", `scheduler.name: "cosine" is not one of cosine_with_warmup, linear_with_warmup, inverse_sqrt_with_warmup, max_scheduler, constant, cosine_linear_envelope, constant_with_warmup`},
		{"precision=bf16", `precision: "bf16" is not one of amp_bf16, amp_fp16, fp32`},
		{"save_folder=${no.such}", "${no.such} names no key"},
		{"save_folder=${oc.emv:X}", "${oc.emv:…} is not one of oc.env, path.choose, path.glob, path.last_checkpoint; did you mean oc.env?"},
		{"data.paths=${path.glob:/no/where/*.npy}", "${path.glob:/no/where/*.npy} matches no file"},
	} {
		_, err := Parse("f.yaml", []byte(legacyText(t)), []string{tc.override})
		want := `override "` + tc.override + `": ` + tc.want
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

func TestLegacyDropoutIsOnByDefaultAndSoMustBeSetToZero(t *testing.T) {
	text := strings.Replace(legacyText(t), "  residual_dropout: 0.0\n", "", 1)
	_, err := Parse("f.yaml", []byte(text), nil)
	want := "f.yaml: model.residual_dropout: 0.1: dropout is not supported; set it to 0.0 (not set in the file: this is the legacy trainer's default)"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestReferencesResolveAsInOmegaConf(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b.npy", "a.npy", "step9/x", "step10/x", "step2-unsharded/x"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("ASTERIA_TEST_DIR", dir)
	c := mustParse(t, legacyText(t), "data.datasets=null",
		"data.paths=[first.npy, '${path.glob:${oc.env:ASTERIA_TEST_DIR}/*.npy}']",
		"load_path='${path.last_checkpoint:${oc.env:ASTERIA_TEST_DIR}}'",
		"save_folder='${path.choose:/none,${oc.env:ASTERIA_TEST_DIR}}/${run_name}-${model.d_model}-${model.rope}'",
		"save_interval='${canceled_check_interval}'", "canceled_check_interval=${console_log_interval}", "console_log_interval=5")
	if want := []string{"first.npy", dir + "/a.npy", dir + "/b.npy"}; !reflect.DeepEqual(c.Data.Paths, want) {
		t.Errorf("paths %v, want %v", c.Data.Paths, want)
	}
	if c.Checkpoint.LoadPath != dir+"/step10" || c.SaveFolder != dir+"/legacy-small-64-true" || c.Checkpoint.Interval != 5 {
		t.Errorf("load_path %q, save_folder %q, interval %d", c.Checkpoint.LoadPath, c.SaveFolder, c.Checkpoint.Interval)
	}
}

func TestOneLegacyKeyInAFileOfOursIsASlip(t *testing.T) {
	_, err := Parse("f.yaml", []byte(base+"max_duration: 5\n"), nil)
	if want := "f.yaml:4: max_duration: unknown key; here it is called train.steps"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// The legacy trainer's ephemeral checkpoints are ours: only the newest one stays.
func TestEphemeralCheckpointsAreTaken(t *testing.T) {
	for _, c := range []struct {
		value string
		want  Count
	}{{"250", 250}, {"null", 0}} {
		got := mustParse(t, legacyText(t), "save_interval_ephemeral="+c.value)
		if got.Checkpoint.Ephemeral != c.want || got.Checkpoint.Interval != 100 {
			t.Errorf("save_interval_ephemeral=%s: %+v", c.value, got.Checkpoint)
		}
		if strings.Contains(strings.Join(got.Notices, "\n"), "save_interval_ephemeral") {
			t.Errorf("save_interval_ephemeral=%s is told to be without effect", c.value)
		}
	}
	_, err := Parse("f.yaml", []byte(legacyText(t)), []string{"save_interval_ephemeral=0"})
	if err == nil || !strings.Contains(err.Error(), "save_interval_ephemeral") {
		t.Errorf("0 steps: %v", err)
	}
}
