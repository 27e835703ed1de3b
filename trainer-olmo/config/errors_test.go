package config

import (
	"strings"
	"testing"
)

// base is the shortest valid file; the cases below change it.
const base = `model: {preset: olmo2_14M}
data: {corpus: goroot, sequence_length: 128}
train: {steps: 10, global_batch_size: 4096}
`

func TestAMistakeIsOneLineThatNamesKeyPlaceValueAndWhatIsAllowed(t *testing.T) {
	for _, tc := range []struct{ name, text, override, want string }{
		{"an unknown key close to a known one", "train:\n  steps: 5\n  stpes: 6\n", "",
			"f.yaml:3: train.stpes: unknown key; did you mean train.steps?"},
		{"an unknown top-level key that exists in a group", "lr: 0.1\n", "",
			"f.yaml:1: lr: unknown key; did you mean optimizer.lr?"},
		{"a key that the other trainer calls so", base + "optimizer: {learning_rate: 0.1}\n", "",
			"f.yaml:4: optimizer.learning_rate: unknown key; here it is called optimizer.lr"},
		{"an unknown key like nothing else", "optimizer: {qqqqqqqqqqqq: 1}\n", "",
			"f.yaml:1: optimizer.qqqqqqqqqqqq: unknown key; allowed: name, lr, aux_lr, betas, eps, weight_decay, decay_embeddings, decay_norms, precondition_frequency, max_precond_dim, stagger, one_sided_embeddings, factor_beta, start_step, grafting, before_first, ridge, init_factor, basis_refresh, null_tolerance, root_method, refresh_precision, max_failures"},
		{"an unknown group", "optimiser: {lr: 1}\n", "",
			"f.yaml:1: optimiser: unknown key; did you mean optimizer?"},
		{"a word that is not allowed", base + "optimizer:\n  name: sopa\n", "",
			`f.yaml:5: optimizer.name: "sopa" is not one of adamw, lionw, shampoo, soap, kl-shampoo, kl-soap, eigen-shampoo; did you mean soap?`},
		{"a text for a whole number", "train: {steps: ten}\n", "",
			`f.yaml:1: train.steps: "ten" is not a whole number`},
		{"a fraction for a whole number", "train: {steps: 1.5}\n", "",
			`f.yaml:1: train.steps: "1.5" is not a whole number`},
		{"a text for a number", "optimizer: {lr: fast}\n", "",
			`f.yaml:1: optimizer.lr: "fast" is not a number`},
		{"not a number", "optimizer: {lr: .nan}\n", "",
			`f.yaml:1: optimizer.lr: ".nan" is not a number`},
		{"a number out of range", "optimizer: {lr: -1}\n", "",
			"f.yaml:1: optimizer.lr: -1 is not in (0, inf)"},
		{"the open end of a range", "optimizer: {betas: [0.9, 1.0]}\n", "",
			"f.yaml:1: optimizer.betas: item 2: 1 is not in [0, 1)"},
		{"a list of the wrong length", "optimizer: {betas: [0.9]}\n", "",
			"f.yaml:1: optimizer.betas: must be a list of 2 numbers"},
		{"a word for true or false", "trace: maybe\n", "",
			`f.yaml:1: trace: "maybe" is not true or false`},
		{"a group for a value", "seed: {a: 1}\n", "",
			"f.yaml:1: seed: is a group of keys, must be a whole number"},
		{"a value for a group", "tiers: 4GiB\n", "",
			"f.yaml:1: tiers: is a value, must be a group of keys: device, host, nvme, pinned, pressure"},
		{"a size with an unknown unit", "tiers: {host: 4GiBs}\n", "",
			`f.yaml:1: tiers.host: "4GiBs" is not a size such as 512MiB, 4GiB or 100GB`},
		{"a duration without a unit", "runtime: {job_timeout: 5}\n", "",
			`f.yaml:1: runtime.job_timeout: "5" is not a duration such as 30s or 5m`},
		{"an unknown preset", "model: {preset: olmo2_7}\n", "",
			`f.yaml:1: model.preset: "olmo2_7" is not a preset; did you mean olmo2_7B?`},
		{"a key set twice", "seed: 1\nrun_name: a\nseed: 2\n", "",
			"f.yaml:3: seed: set twice, first at f.yaml:1"},
		{"broken YAML", "a: [1, 2\n", "",
			"f.yaml:1: YAML: sequence end token ']' not found"},
		{"a list instead of keys", "- 1\n- 2\n", "",
			"f.yaml: is a list, must be a group of keys"},
		{"a tag", "seed: !!int 3\n", "",
			"f.yaml:1: tag !!int: tags are not allowed"},
		{"an override with a mistyped key", base, "train.stpes=5",
			`override "train.stpes=5": train.stpes: unknown key; did you mean train.steps?`},
		{"an override with a wrong value", base, "train.steps=many",
			`override "train.steps=many": train.steps: "many" is not a whole number`},
		{"an override without =", base, "train.steps",
			`override "train.steps": must be key.path=value, such as train.steps=100`},
		{"an override with broken YAML", base, "data.paths=[a",
			`override "data.paths=[a": YAML: sequence end token ']' not found`},
		{"no length", "model: {preset: olmo2_14M}\ndata: {corpus: goroot}\n", "",
			"f.yaml: train.steps: is not set; set one of train.steps, train.tokens, train.epochs"},
		{"two lengths", base + "eval: {}\n", "train={tokens: 5}",
			"f.yaml:3: train.steps: one of train.steps, train.tokens, train.epochs is allowed, 2 are set"},
		{"no data", "model: {preset: olmo2_14M}\ntrain: {steps: 1}\n", "",
			"f.yaml: data.paths: is not set; set it, or data.corpus: goroot"},
		{"a batch that is no multiple of the sequence", base, "train.global_batch_size=1000",
			`override "train.global_batch_size=1000": train.global_batch_size: 1000 is not a multiple of data.sequence_length 128`},
		{"a micro-batch that does not divide", base, "train.micro_batch_size=384",
			`override "train.micro_batch_size=384": train.micro_batch_size: 384 does not divide global_batch_size 4096`},
		{"groups that are no power of two", base, "train.sum_groups=6",
			`override "train.sum_groups=6": train.sum_groups: 6 is not a power of two`},
		{"heads that do not divide", base, "model.n_heads=7",
			`override "model.n_heads=7": model.n_heads: 7 does not divide d_model 128; change one or set model.head_dim`},
		{"token files without a vocabulary", "model: {d_model: 8, n_layers: 1, n_heads: 2}\ndata: {paths: [x.npy], sequence_length: 64}\ntrain: {steps: 1}\n", "",
			"f.yaml: model.vocab_size: is not set; needed unless the data is bytes, or token files with metadata beside them"},
		{"a lag above the budget", base, "runtime={mode: asteria, lag: 6}",
			`override "runtime={mode: asteria, lag: 6}": runtime.lag: 6 is above runtime.staleness 5`},
		{"a lag above the interval", base, "runtime={mode: asteria, lag: 12, staleness: 20}",
			`override "runtime={mode: asteria, lag: 12, staleness: 20}": runtime.lag: 12 is above optimizer.precondition_frequency 10; a refresh would be due before the last one is adopted`},
		{"a replay without the mode", base, "runtime={mode: native, replay: x.jsonl}",
			`override "runtime={mode: native, replay: x.jsonl}": runtime.replay: needs runtime.mode asteria, not native`},
		{"a switch of another method", base, "optimizer.one_sided_embeddings=true",
			`override "optimizer.one_sided_embeddings=true": optimizer.one_sided_embeddings: needs optimizer.name soap or eigen-shampoo, not adamw`},
		{"NVMe below memory without a limit", base + "optimizer: {name: soap}\n", "tiers.nvme.path=/nvme",
			`override "tiers.nvme.path=/nvme": tiers.nvme.path: "/nvme" would never be used: without a limit in tiers.host or tiers.device everything stays in RAM`},
		{"a size of NVMe without a place", base + "optimizer: {name: soap}\ntiers: {host: 1GiB, nvme: {size: 2KiB}}\n", "",
			`f.yaml:5: tiers.nvme.size: 2048 bytes of no tier; set tiers.nvme.path`},
		{"NVMe for a method that is not placed", base + "tiers: {host: 1GiB}\n", "tiers.nvme.path=/nvme",
			`override "tiers.nvme.path=/nvme": tiers.nvme.path: "/nvme" needs a second-order optimizer.name (shampoo, soap, kl-shampoo, kl-soap, eigen-shampoo), not adamw`},
		{"a mean of bases", base + "optimizer: {name: soap}\n", "parallel.roots=average",
			`override "parallel.roots=average": parallel.roots: average needs inverse roots, which optimizer.name shampoo has and soap has not; allowed: owner`},
		{"a mean without factors", base + "optimizer: {name: shampoo}\nparallel: {shard: true}\n", "parallel.roots=average",
			`override "parallel.roots=average": parallel.roots: average needs the factors on all ranks, with parallel.shard only the owner has them; allowed: owner`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var overrides []string
			if tc.override != "" {
				overrides = []string{tc.override}
			}
			_, err := Parse("f.yaml", []byte(tc.text), overrides)
			if err == nil || err.Error() != tc.want {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}

func TestEveryFaultOfAFileIsReportedAtOnce(t *testing.T) {
	_, err := Parse("f.yaml", []byte("seeed: 1\noptimizer: {lr: -1, name: x}\ntrain: {steps: ten}\ndata: 5\n"), nil)
	faults, ok := err.(Errors)
	if !ok || len(faults) != 5 {
		t.Fatalf("got %d faults: %v, want 5", len(faults), err)
	}
	_, err = Parse("f.yaml", []byte("train: {global_batch_size: 100}\n"), nil)
	if faults := err.(Errors); len(faults) < 5 {
		t.Errorf("a file with values that contradict each other: got only %v", faults)
	}
}

func TestNearestIsForgivingOnlyInProportionToTheLength(t *testing.T) {
	words := []string{"adamw", "soap", "kl-shampoo", "train"}
	for word, want := range map[string]string{
		"adam": "adamw", "saop": "soap", "kl_shampo": "kl-shampoo", "tarin": "train", "TRAIN": "train",
		"x": "", "zzzzz": "", "generate": "",
	} {
		if got := Nearest(word, words); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

func TestDistanceIsAMetricOnShortWords(t *testing.T) {
	words := strings.Fields("a ab ba abc acb train tarin rain")
	for _, a := range words {
		for _, b := range words {
			d := distance(a, b)
			if d != distance(b, a) || (d == 0) != (a == b) || d > max(len(a), len(b)) {
				t.Errorf("distance(%q, %q) = %d", a, b, d)
			}
		}
	}
	if d := distance("train", "tarin"); d != 1 {
		t.Errorf("a swap of neighbours counts %d, want 1", d)
	}
}
