package safetensors

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asteria-runtime/asteria/trainer-olmo/model"
)

// base is a config.json with the fields of every class.
func base(modelType string, extra map[string]any) []byte {
	m := map[string]any{
		"model_type": modelType, "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48,
		"num_hidden_layers": 8, "num_attention_heads": 4, "rope_theta": 500000.0, "rms_norm_eps": 1e-6,
	}
	for k, v := range extra {
		if v == nil {
			delete(m, k)
			continue
		}
		m[k] = v
	}
	b, _ := json.Marshal(m)
	return b
}

type object = map[string]any

func TestParseConfigForms(t *testing.T) {
	yarn := object{"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192, "beta_fast": 32, "beta_slow": 1, "attention_factor": 1.2079441541679836}
	yarn5 := object{"rope_theta": 500000.0}
	for k, v := range yarn {
		yarn5[k] = v
	}
	wantYarn := model.RopeScaling{Kind: "yarn", Factor: 8, OldContextLen: 8192, BetaFast: 32, BetaSlow: 1, AttentionFactor: 1.2079441541679836}
	usual := []int{4096, 4096, 4096, -1}
	for name, c := range map[string]struct {
		file []byte
		want func(*model.Config)
	}{
		"olmo2 of version 4": {base("olmo2", object{"rope_scaling": json.RawMessage("null")}), func(c *model.Config) {}},
		"olmo2 of version 5": {base("olmo2", object{"rope_theta": nil, "rope_parameters": object{"rope_type": "default", "rope_theta": 500000.0}}), func(c *model.Config) {}},
		"defaults of the class": {
			base("olmo2", object{"rope_theta": nil, "rms_norm_eps": nil, "vocab_size": nil}),
			func(c *model.Config) { c.RopeTheta, c.NormEps, c.VocabSize = 10000, 1e-5, 50304 },
		},
		"olmo ignores rms_norm_eps": {
			base("olmo", object{"clip_qkv": 8.0, "rms_norm_eps": 1e-3}),
			func(c *model.Config) {
				c.Arch, c.ClipQKV, c.NormEps, c.Norm, c.NormPlace, c.QKNorm = model.OLMo1, 8, 1e-5, model.LayerNorm, model.PreNorm, "none"
			},
		},
		"olmo3 without layer_types": {base("olmo3", nil), func(c *model.Config) { c.Arch, c.SlidingWindow, c.SlidingLastLayer = model.OLMo3, usual, true }},
		"olmo3 yarn of version 4": {base("olmo3", object{"rope_scaling": yarn}), func(c *model.Config) {
			c.Arch, c.SlidingWindow, c.SlidingLastLayer, c.RopeScaling = model.OLMo3, usual, true, wantYarn
		}},
		"olmo3 yarn of version 5": {
			base("olmo3", object{"rope_theta": nil, "rope_parameters": object{"full_attention": yarn5, "sliding_attention": object{"rope_type": "default", "rope_theta": 500000.0}}}),
			func(c *model.Config) {
				c.Arch, c.SlidingWindow, c.SlidingLastLayer, c.RopeScaling = model.OLMo3, usual, true, wantYarn
			},
		},
		"olmo3 with two bases": {
			base("olmo3", object{"rope_theta": nil, "rope_parameters": object{"full_attention": object{"rope_type": "default", "rope_theta": 8000000.0}, "sliding_attention": object{"rope_type": "default", "rope_theta": 500000.0}}}),
			func(c *model.Config) {
				c.Arch, c.SlidingWindow, c.SlidingLastLayer = model.OLMo3, usual, true
				c.RopeScaling = model.RopeScaling{Kind: "abf", NewTheta: 8000000}
			},
		},
		"old word for the type": {base("olmo2", object{"rope_scaling": object{"type": "linear", "factor": 4.0}}), func(c *model.Config) { c.RopeScaling = model.RopeScaling{Kind: "linear", Factor: 4} }},
		"grouped heads":         {base("olmo2", object{"num_key_value_heads": 2, "head_dim": 16}), func(c *model.Config) { c.NKVHeads, c.HeadDim = 2, 16 }},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseConfig(c.file)
			if err != nil {
				t.Fatal(err)
			}
			want := model.Config{
				Arch: model.OLMo2, DModel: 32, NLayers: 8, NHeads: 4, HiddenSize: 48, VocabSize: 64, RopeTheta: 500000, NormEps: 1e-6, MaxSequenceLength: 2048,
				InitOptions: model.InitOptions{InitCutoff: 3}, SlidingWindow: []int{-1},
			}
			c.want(&want)
			if d := cmp.Diff(want.Resolved(), got); d != "" {
				t.Error(d)
			}
		})
	}
}

// The layers' windows decide, whatever words describe them.
func TestLayerTypes(t *testing.T) {
	kinds := func(s string) (l []string) {
		for _, r := range s {
			l = append(l, map[rune]string{'s': slidingLayer, 'f': fullLayer}[r])
		}
		return l
	}
	for _, s := range []string{"sssfsssf", "sssfssss", "sssfsssss", "ffff", "ssss", "sf", "fs", "f", "s", "sssssf"} {
		c, err := ParseConfig(base("olmo3", object{"layer_types": kinds(s), "num_hidden_layers": len(s), "sliding_window": 9}))
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		for i, r := range s {
			want := map[rune]int{'s': 9, 'f': model.FullAttention}[r]
			if got := c.Window(i); got != want {
				t.Errorf("%s: layer %d has window %d, want %d", s, i, got, want)
			}
		}
	}
}

func TestParseConfigFaults(t *testing.T) {
	for want, file := range map[string][]byte{
		"model_type \"bert\"":      base("bert", nil),
		"hidden_act \"gelu\"":      base("olmo2", object{"hidden_act": "gelu"}),
		"attention_bias":           base("olmo2", object{"attention_bias": true}),
		"attention_dropout":        base("olmo2", object{"attention_dropout": 0.1}),
		"clip_qkv belongs":         base("olmo2", object{"clip_qkv": 8.0}),
		"layer_types has 2":        base("olmo3", object{"layer_types": []string{fullLayer, fullLayer}}),
		"layer_types[0] \"x\"":     base("olmo3", object{"layer_types": []string{"x"}, "num_hidden_layers": 1}),
		"rope_type \"dynamic\"":    base("olmo2", object{"rope_scaling": object{"rope_type": "dynamic", "factor": 2.0}}),
		"llama3 scaling needs":     base("olmo2", object{"rope_scaling": object{"rope_type": "llama3", "factor": 2.0}}),
		"factor 0 must be":         base("olmo2", object{"rope_scaling": object{"rope_type": "yarn"}}),
		"two values of rope_theta": base("olmo3", object{"rope_parameters": object{"full_attention": object{"rope_type": "linear", "factor": 2.0, "rope_theta": 1.0}, "sliding_attention": object{"rope_theta": 2.0}}}),
		"on sliding layers":        base("olmo3", object{"rope_parameters": object{"sliding_attention": object{"rope_type": "yarn", "factor": 2.0}}}),
		"cannot unmarshal":         base("olmo2", object{"hidden_size": "big"}),
		"rope_scaling: json":       base("olmo2", object{"rope_scaling": 3}),
		"rope_parameters: json":    base("olmo2", object{"rope_parameters": 3}),
		"n_heads is 0":             base("olmo2", object{"num_attention_heads": 0}),
		"n_kv_heads 3 does not":    base("olmo2", object{"num_key_value_heads": 3}),
		"unexpected end of JSON":   []byte("{"),
	} {
		if _, err := ParseConfig(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// Explicit values: nothing that a class has a default for is left out.
func TestFormatConfigIsExplicit(t *testing.T) {
	eos := 3
	for form, keys := range map[Transformers][]string{
		Transformers4: {"rope_theta", "rope_scaling", "torch_dtype"},
		Transformers5: {"rope_parameters", "dtype"},
	} {
		b, err := FormatConfig(small(), form, Tokens{EOS: &eos}, F32)
		if err != nil {
			t.Fatal(err)
		}
		var m map[string]json.RawMessage
		if err := json.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		for _, k := range append(keys, "architectures", "model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
			"num_attention_heads", "num_key_value_heads", "head_dim", "hidden_act", "max_position_embeddings", "attention_bias", "attention_dropout",
			"tie_word_embeddings", "pad_token_id", "bos_token_id", "eos_token_id", "rms_norm_eps", "sliding_window", "layer_types", "use_cache", "initializer_range") {
			if _, ok := m[k]; !ok {
				t.Errorf("form %d lacks %s", form, k)
			}
		}
		if string(m["eos_token_id"]) != "3" || string(m["pad_token_id"]) != "null" {
			t.Errorf("eos %s, pad %s", m["eos_token_id"], m["pad_token_id"])
		}
	}
}

func TestFormatConfigRefuses(t *testing.T) {
	mixed := small()
	mixed.QKNorm = "none"
	twoWindows := small()
	twoWindows.SlidingWindow = []int{3, 4, model.FullAttention}
	abf := small()
	abf.RopeScaling = model.RopeScaling{Kind: "abf", NewTheta: 8e6}
	for name, c := range map[string]model.Config{"no class": mixed, "two windows": twoWindows, "abf beside windows in form 4": abf} {
		if _, err := FormatConfig(c, Transformers4, Tokens{}, F32); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := FormatConfig(abf, Transformers5, Tokens{}, F32); err != nil {
		t.Errorf("abf in form 5: %v", err)
	}
}

// No bytes make the reader panic, and what it takes it can write.
func FuzzParseConfig(f *testing.F) {
	f.Add(base("olmo", nil))
	f.Add(base("olmo2", object{"rope_scaling": object{"rope_type": "yarn", "factor": 2.0}}))
	f.Add(base("olmo3", object{"rope_parameters": object{"full_attention": object{"rope_theta": 1.0}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ParseConfig(b)
		if err != nil || c.NLayers > 100 {
			return
		}
		out, err := FormatConfig(c, Transformers5, Tokens{}, F32)
		if err != nil {
			return
		}
		back, err := ParseConfig(out)
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		back.InitOptions = c.InitOptions
		if !back.Equal(c) {
			t.Fatalf("changed: %s", cmp.Diff(c, back))
		}
	})
}
