package model

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// The totals are those of the published models.
func TestPresetCounts(t *testing.T) {
	for name, want := range map[string][2]int64{
		"olmo2_1M": {2448620, 1244396}, "olmo2_14M": {26740864, 13895808}, "olmo2_30M": {54792448, 29102336},
		"olmo2_60M": {95957376, 57422208}, "olmo2_100M": {153117184, 101736960}, "olmo2_190M": {267424512, 190354176},
		"olmo2_370M": {474022912, 371262464}, "olmo2_600M": {732255552, 597382464}, "olmo3_600M": {676414720, 547964160},
		"olmo2_760M": {912360960, 758220288}, "olmo2_1B": {1619150848, 1413629952}, "olmo2_1B_v2": {1484916736, 1279395840},
		"olmo3_1B": {1484916736, 1279395840}, "olmo2_3B": {3503508736, 3169537280}, "olmo2_7B": {7298617344, 6887575552},
		"olmo3_7B": {7298617344, 6887575552}, "olmo2_13B": {13716198400, 13202396160}, "olmo2_32B": {32234279936, 31720477696},
		"olmo3_32B": {32234279936, 31720477696}, "olmo1_1B": {1176764416, 1073741824}, "olmo1_7B": {6888095744, 6682050560},
		"olmo1_7B_0424": {6888095744, 6682050560}, "olmo1_7B_0724": {6888095744, 6682050560},
		"tiny_olmo_20M": {34148608, 21270784}, "tiny_olmo_60M": {85074432, 59318784}, "tiny_olmo_150M": {190532352, 151898880},
		"tiny_olmo_300M": {371491840, 319980544}, "tiny_olmo_700M": {758564352, 681297408},
		"OLMo-2-0425-1B": {1484916736, 1279395840}, "olmo-1b": {1176764416, 1073741824},
	} {
		c, err := Preset(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if total, rest := c.ParamCount(); total != want[0] || rest != want[1] {
			t.Errorf("%s: %d and %d parameters, want %v", name, total, rest, want)
		}
	}
}

func TestPresetsAreValidAndNamedOnce(t *testing.T) {
	names := PresetNames()
	for i, name := range names {
		c, err := Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if slices.Contains(names[:i], name) {
			t.Errorf("%s twice", name)
		}
	}
	for alias, name := range aliases {
		if _, err := Preset(alias); err != nil || !slices.Contains(names, name) || canonical(alias) != alias {
			t.Errorf("alias %s of %s: %v", alias, name, err)
		}
	}
	if _, err := Preset("olmo2_660M"); err == nil || !strings.Contains(err.Error(), "olmo2_600M") {
		t.Errorf("got %v", err)
	}
}

func TestResolvedDefaults(t *testing.T) {
	sizes := Config{DModel: 96, NLayers: 2, NHeads: 4, VocabSize: 10}
	for arch, want := range map[Arch]Config{
		OLMo1: {RopeTheta: 10000, NormEps: 1e-5, Norm: LayerNorm, NormPlace: PreNorm, QKNorm: "none", SlidingWindow: []int{-1}},
		OLMo2: {RopeTheta: 500000, NormEps: 1e-6, Norm: RMSNorm, NormPlace: PostNorm, QKNorm: "full", SlidingWindow: []int{-1}},
		OLMo3: {RopeTheta: 500000, NormEps: 1e-6, Norm: RMSNorm, NormPlace: PostNorm, QKNorm: "full", SlidingWindow: []int{4096, 4096, 4096, -1}},
	} {
		want.Arch, want.DModel, want.NLayers, want.NHeads, want.VocabSize = arch, 96, 2, 4, 10
		want.NKVHeads, want.HeadDim, want.HiddenSize, want.MaxSequenceLength = 4, 24, 256, 4096
		want.Init, want.InitStd = "normal", 0.02
		c := sizes
		c.Arch = arch
		if d := cmp.Diff(want, c.Resolved()); d != "" {
			t.Errorf("%s: %s", arch, d)
		}
		if !c.Equal(want) || !want.Equal(c) {
			t.Errorf("%s: not equal to itself resolved", arch)
		}
	}
	if (Config{DModel: 1}).Equal(Config{DModel: 2}) {
		t.Error("different models are equal")
	}
}

func TestValidateReportsAllFaults(t *testing.T) {
	c := Config{
		Arch: "olmo9", DModel: -1, NLayers: 0, NHeads: 6, NKVHeads: 4, HeadDim: 3, HiddenSize: -2, VocabSize: 1 << 30,
		RopeTheta: -1, NormEps: 2, ClipQKV: -1, Norm: "batch", NormPlace: "mid", QKNorm: "some", SlidingWindow: []int{0},
		RopeScaling: RopeScaling{Kind: "yarn", Factor: 0.5, BetaFast: 1, BetaSlow: 2, OldContextLen: -1},
		InitOptions: InitOptions{Init: "zero", InitStd: -1, InitCutoff: math.NaN(), EmbeddingInitStd: math.Inf(1)},
	}
	err := c.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`arch "olmo9"`, "d_model is -1", "n_layers is 0", "n_kv_heads 4 does not divide", "head_dim 3 is odd", "hidden_size is -2", "vocab_size is",
		"rope_theta -1", "norm_eps 2", "clip_qkv -1", `norm "batch"`, `norm_place "mid"`, `qk_norm "some"`, "sliding_window[0] is 0",
		"factor 0.5", "beta_fast 1", "old_context_len -1", `init_method "zero"`, "init_std -1", "init_cutoff NaN", "embedding_init_std +Inf",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q", want)
		}
	}
	for want, s := range map[string]RopeScaling{"new_theta 0": {Kind: "abf"}, `kind "x"`: {Kind: "x"}, "leave no band": {Kind: "llama3", Factor: 2, LowFreqProportion: 0.8}} {
		if err := s.resolved().validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", s, err)
		}
	}
	if _, err := New[float32](c, gemm.New(1)); err == nil {
		t.Error("New accepted it")
	}
	if _, err := New[float32](tiny(OLMo2), nil); err == nil {
		t.Error("New accepted no engine")
	}
}

func TestWindows(t *testing.T) {
	c := Config{NLayers: 6, SlidingWindow: []int{8, 8, 8, FullAttention}}
	if got := c.windows(); !slices.Equal(got, []int{8, 8, 8, -1, 8, -1}) {
		t.Errorf("windows %v", got)
	}
	c.SlidingLastLayer = true
	if got := c.windows(); !slices.Equal(got, []int{8, 8, 8, -1, 8, 8}) {
		t.Errorf("windows %v", got)
	}
}

func TestShapesNamesAndOrder(t *testing.T) {
	c := Config{DModel: 8, NLayers: 1, NHeads: 2, NKVHeads: 1, HiddenSize: 12, VocabSize: 5}
	got := map[string][]int{}
	var order []string
	for _, s := range c.Shapes() {
		got[s.Name] = s.Shape
		order = append(order, strings.TrimPrefix(strings.TrimSuffix(s.Name, ".weight"), "model.layers.0."))
	}
	want := "model.embed_tokens self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj self_attn.q_norm self_attn.k_norm " +
		"mlp.gate_proj mlp.up_proj mlp.down_proj post_attention_layernorm post_feedforward_layernorm model.norm lm_head"
	if s := strings.Join(order, " "); s != want {
		t.Errorf("order %s", s)
	}
	for name, shape := range map[string][]int{
		"self_attn.q_proj": {8, 8}, "self_attn.k_proj": {4, 8}, "self_attn.o_proj": {8, 8}, "self_attn.k_norm": {4}, "mlp.down_proj": {8, 12},
	} {
		if s := got["model.layers.0."+name+".weight"]; !slices.Equal(s, shape) {
			t.Errorf("%s has shape %v, want %v", name, s, shape)
		}
	}
	c.Arch, c.Norm = OLMo1, RMSNorm
	names := ""
	for _, s := range c.Shapes() {
		names += s.Name + " "
	}
	if !strings.Contains(names, "layers.0.input_layernorm.weight") || strings.Contains(names, "post_feedforward") || strings.Contains(names, "q_norm") {
		t.Errorf("pre-norm names: %s", names)
	}
}

// Parameters of a group are neighbours, so that one product serves them.
func TestParamsShareBuffers(t *testing.T) {
	for name, c := range variants() {
		m := newTest[float32](t, c, 1)
		for i, s := range c.Shapes() {
			p := m.Params()[i]
			if p.Name != s.Name || int64(len(p.Value)) != s.Len() || len(p.Grad) != len(p.Value) || p.Role != s.Role || p.Layer != s.Layer {
				t.Errorf("%s: parameter %d is %s %v", name, i, p.Name, p.Shape)
			}
			p.Value[0] = float32(i + 1)
		}
		next := 1 // after the embeddings
		for l := range m.blocks {
			b := &m.blocks[l]
			qw, kw, d := c.NHeads*6, c.NKVHeads*6, c.DModel
			v := b.qkv.value.Data
			if v[0] != float32(next+1) || v[qw*d] != float32(next+2) || v[(qw+kw)*d] != float32(next+3) {
				t.Errorf("%s: layer %d: q, k, v are not neighbours", name, l)
			}
			for _, s := range c.Shapes() {
				if s.Layer == l {
					next++
				}
			}
		}
	}
}

// Worked by hand for one layer of d 8, H*hd 8, K*hd 4, I 12, V 5, T 10.
func TestFLOPs(t *testing.T) {
	c := Config{DModel: 8, NLayers: 1, NHeads: 2, NKVHeads: 1, HiddenSize: 12, VocabSize: 5}
	attention, mlp := 8*(8+4+4)+8*8+8+4, 3*8*12
	want := float64(6*(attention+mlp) + 12*8*10 + 6*(5*8+8))
	if got := c.FLOPsPerToken(10); got != want {
		t.Errorf("%g operations, want %g", got, want)
	}
	c.SlidingWindow, c.SlidingLastLayer = []int{3}, true
	if got := c.FLOPsPerToken(10); got != want-12*8*7 {
		t.Errorf("window: %g operations, want %g", got, want-12*8*7)
	}
	total, rest := c.ParamCount()
	legacy := 2*float64(rest) + 4*8*10 + 4*float64(total) + 8*8*10
	if got := c.LegacyFLOPsPerToken(10); got != legacy {
		t.Errorf("legacy: %g operations, want %g", got, legacy)
	}
}

// moments are mean, standard deviation and largest magnitude.
func moments(x []float32) (mean, std, peak float64) {
	for _, v := range x {
		mean += float64(v)
		std += float64(v) * float64(v)
		peak = max(peak, math.Abs(float64(v)))
	}
	n := float64(len(x))
	mean /= n
	return mean, math.Sqrt(std/n - mean*mean), peak
}

// truncatedStd is the standard deviation of a standard normal cut at c:
// sqrt(1 - 2cφ(c)/(2Φ(c)-1)); 0.98658 at 3.
func truncatedStd(c float64) float64 {
	phi := math.Exp(-c*c/2) / math.Sqrt(2*math.Pi)
	return math.Sqrt(1 - 2*c*phi/math.Erf(c/math.Sqrt2))
}

// Every scheme gives every tensor the standard deviation of the table, within
// five standard errors, and no value beyond the cutoff.
func TestInitStatistics(t *testing.T) {
	const d, hidden, vocab, layers = 64, 96, 500, 2
	s := 0.03
	r := func(x float64) float64 { return 1 / math.Sqrt(x) }
	type row struct{ embed, q, gate, up, o0, down1, head float64 }
	for scheme, want := range map[string]row{
		"normal":        {s, s, s, s, s, s, s},
		"mitchell":      {r(d), r(d), r(d), r(d), r(2 * d), r(2 * hidden * 2), r(d)},
		"full_megatron": {s * 8, s, s, s, s / 2, s / 2, r(d)},
		"llama":         {1, s, s, s / 2, s / 2, s / 2, r(d)},
		"llama_depth":   {1, s, s, s * r(2), s * r(2), s / 2, r(d)},
		"fan_in":        {1, r(d), r(d), r(d), r(d), r(hidden), r(d)},
	} {
		c := Config{DModel: d, NLayers: layers, NHeads: 4, HiddenSize: hidden, VocabSize: vocab}
		c.InitOptions = InitOptions{Init: scheme, InitStd: s, InitCutoff: 3, ScaleEmbeddingInit: true}
		m := newTest[float32](t, c, 2)
		byName := map[string]param.Param[float32]{}
		for _, p := range m.Params() {
			byName[p.Name] = p
		}
		for name, std := range map[string]float64{
			"model.embed_tokens": want.embed, "model.layers.0.self_attn.q_proj": want.q, "model.layers.1.self_attn.v_proj": want.q,
			"model.layers.0.mlp.gate_proj": want.gate, "model.layers.0.mlp.up_proj": want.up,
			"model.layers.0.self_attn.o_proj": want.o0, "model.layers.1.mlp.down_proj": want.down1, "lm_head": want.head,
		} {
			cut := !(name == "model.embed_tokens" && want.embed == 1)
			checkMoments(t, scheme+" "+name, byName[name+".weight"].Value, std, cut)
		}
		for _, v := range byName["model.norm.weight"].Value {
			if v != 1 {
				t.Errorf("%s: norm weight %g", scheme, v)
			}
		}
	}
}

func checkMoments(t *testing.T, what string, x []float32, std float64, cut bool) {
	t.Helper()
	mean, got, peak := moments(x)
	want, n := std, float64(len(x))
	if cut {
		want *= truncatedStd(3)
		if peak > 3*std*(1+1e-6) {
			t.Errorf("%s: %g is beyond 3 standard deviations %g", what, peak, std)
		}
	} else if peak < 3*std {
		t.Errorf("%s: largest value %g looks cut", what, peak)
	}
	if math.Abs(mean) > 5*want/math.Sqrt(n) || math.Abs(got/want-1) > 5/math.Sqrt(2*n) {
		t.Errorf("%s: mean %g, standard deviation %g, want %g", what, mean, got, want)
	}
}

// Weights depend on the seed, not on the element type beyond rounding.
func TestInitSeeds(t *testing.T) {
	a, b, c := newTest[float32](t, tiny(OLMo2), 1), newTest[float64](t, tiny(OLMo2), 3), newTest[float32](t, tiny(OLMo2), 1)
	c.Init(12)
	same := 0
	for i, v := range a.values {
		if v != float32(b.values[i]) {
			t.Fatalf("element %d: %g in float32, %g in float64", i, v, b.values[i])
		}
		if v == c.values[i] && v != 1 && v != 0 {
			same++
		}
	}
	if same > 3 {
		t.Errorf("%d weights do not depend on the seed", same)
	}
	c.grads[5] = 1
	if c.Init(1); c.grads[5] != 0 {
		t.Error("Init left a gradient")
	}
}
