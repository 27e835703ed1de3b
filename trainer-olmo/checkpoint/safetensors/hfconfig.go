package safetensors

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/asteria-runtime/asteria/trainer-olmo/model"
)

// hfConfig is config.json, fields that the architectures share. Pointers tell
// what is absent or null.
type hfConfig struct {
	Architectures    []string `json:"architectures"`
	ModelType        string   `json:"model_type"`
	VocabSize        *int     `json:"vocab_size"`
	HiddenSize       int      `json:"hidden_size"`
	IntermediateSize int      `json:"intermediate_size"`
	Layers           int      `json:"num_hidden_layers"`
	Heads            int      `json:"num_attention_heads"`
	KVHeads          *int     `json:"num_key_value_heads"`
	HeadDim          *int     `json:"head_dim,omitempty"`
	Act              *string  `json:"hidden_act"`
	MaxPositions     *int     `json:"max_position_embeddings"`
	InitializerRange float64  `json:"initializer_range"`
	UseCache         bool     `json:"use_cache"`
	AttentionBias    bool     `json:"attention_bias"`
	MLPBias          bool     `json:"mlp_bias,omitempty"`
	Dropout          float64  `json:"attention_dropout"`

	RopeTheta   *float64        `json:"rope_theta,omitempty"`
	RopeScaling json.RawMessage `json:"rope_scaling,omitempty"`    // transformers 4
	RopeParams  json.RawMessage `json:"rope_parameters,omitempty"` // transformers 5

	Tie        bool     `json:"tie_word_embeddings"`
	Pad        *int     `json:"pad_token_id"`
	BOS        *int     `json:"bos_token_id"`
	EOS        *int     `json:"eos_token_id"`
	TorchDType *string  `json:"torch_dtype,omitempty"`
	DType      *string  `json:"dtype,omitempty"`
	Version    string   `json:"transformers_version"`
	ClipQKV    *float64 `json:"clip_qkv,omitempty"`
	NormEps    *float64 `json:"rms_norm_eps,omitempty"`
	Window     *int     `json:"sliding_window,omitempty"`
	LayerTypes []string `json:"layer_types,omitempty"`
}

// rope is the rotary part of one kind of layer, in the names of both versions.
type rope struct {
	Type            string   `json:"rope_type,omitempty"`
	OldType         string   `json:"type,omitempty"`
	Theta           *float64 `json:"rope_theta,omitempty"`
	Factor          float64  `json:"factor,omitempty"`
	OldContextLen   int      `json:"original_max_position_embeddings,omitempty"`
	BetaFast        float64  `json:"beta_fast,omitempty"`
	BetaSlow        float64  `json:"beta_slow,omitempty"`
	AttentionFactor float64  `json:"attention_factor,omitempty"`
	LowFreqFactor   float64  `json:"low_freq_factor,omitempty"`
	HighFreqFactor  float64  `json:"high_freq_factor,omitempty"`
}

// The kinds of layers in layer_types.
const (
	fullLayer    = "full_attention"
	slidingLayer = "sliding_attention"
)

// ParseConfig reads the bytes of a config.json. What is absent takes the default
// of the Hugging Face class: vocab_size 50304, rms_norm_eps 1e-5, rope_theta
// 10000, for olmo3 a window of 4096 on three of four layers.
func ParseConfig(data []byte) (model.Config, error) {
	var h hfConfig
	if err := json.Unmarshal(data, &h); err != nil {
		return model.Config{}, fmt.Errorf("safetensors: config.json: %w", err)
	}
	c, err := h.model()
	if err != nil {
		return model.Config{}, err
	}
	if err := c.Validate(); err != nil {
		return model.Config{}, fmt.Errorf("safetensors: config.json: %w", err)
	}
	return c.Resolved(), nil
}

// model translates; ParseConfig validates the sizes.
func (h *hfConfig) model() (model.Config, error) {
	if err := h.check(); err != nil {
		return model.Config{}, err
	}
	c := model.Config{
		DModel: h.HiddenSize, NLayers: h.Layers, NHeads: h.Heads, NKVHeads: value(h.KVHeads, 0), HeadDim: value(h.HeadDim, 0),
		HiddenSize: h.IntermediateSize, VocabSize: value(h.VocabSize, 50304), MaxSequenceLength: value(h.MaxPositions, 2048),
		TieWordEmbeddings: h.Tie, InitOptions: model.InitOptions{InitStd: h.InitializerRange, InitCutoff: 3},
		SlidingWindow: []int{model.FullAttention},
	}
	eps := value(h.NormEps, 1e-5)
	switch h.ModelType {
	case "olmo":
		c.Arch, c.ClipQKV = model.OLMo1, value(h.ClipQKV, 0)
		eps = 1e-5 // fixed in the class
	case "llama": // the legacy trainer's small models
		c.Arch, c.Norm = model.OLMo1, model.RMSNorm
		eps = value(h.NormEps, 1e-6)
	case "olmo2":
		c.Arch = model.OLMo2
	case "olmo3":
		c.Arch = model.OLMo3
		c.SlidingWindow, c.SlidingLastLayer = h.windows()
	}
	c.NormEps = eps
	return c, h.rope(&c)
}

// check reports what this package's models do not have.
func (h *hfConfig) check() error {
	var errs []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("safetensors: config.json: "+format, args...))
		}
	}
	known := []string{"olmo", "olmo2", "olmo3", "llama"}
	fault(!slices.Contains(known, h.ModelType), "model_type %q is not olmo, olmo2, olmo3 or llama", h.ModelType)
	fault(value(h.Act, "silu") != "silu", "hidden_act %q is not silu", value(h.Act, ""))
	fault(h.AttentionBias, "attention_bias is not supported")
	fault(h.MLPBias, "mlp_bias is not supported")
	fault(h.Dropout != 0, "attention_dropout %g is not supported", h.Dropout)
	fault(h.ModelType != "olmo" && value(h.ClipQKV, 0) != 0, "clip_qkv belongs to model_type olmo, not %s", h.ModelType)
	fault(h.LayerTypes != nil && len(h.LayerTypes) != h.Layers, "layer_types has %d elements for %d layers", len(h.LayerTypes), h.Layers)
	for i, kind := range h.LayerTypes {
		fault(kind != fullLayer && kind != slidingLayer, "layer_types[%d] %q is not %s or %s", i, kind, fullLayer, slidingLayer)
	}
	return errors.Join(errs...)
}

// windows gives the pattern of an olmo3 model: the usual one when the layers
// follow it, one element a layer otherwise.
func (h *hfConfig) windows() (pattern []int, slidingLast bool) {
	w := value(h.Window, 4096)
	usual := []int{w, w, w, model.FullAttention}
	if h.LayerTypes == nil {
		return usual, true // sliding unless (i+1)%4 == 0, the last too
	}
	each := make([]int, h.Layers)
	for i, kind := range h.LayerTypes {
		each[i] = model.FullAttention
		if kind == slidingLayer {
			each[i] = w
		}
	}
	for _, last := range []bool{false, true} {
		c := model.Config{NLayers: h.Layers, SlidingWindow: usual, SlidingLastLayer: last}
		same := true
		for i, e := range each {
			same = same && e == c.Window(i)
		}
		if same {
			return usual, last
		}
	}
	return each, true
}

// rope sets the rotary fields from whichever form the file has. In version 4 one
// base serves all layers and the scaling those with full attention; version 5
// may give each kind of layer its own, which an abf scaling expresses here.
func (h *hfConfig) rope(c *model.Config) error {
	var full, sliding rope
	if present(h.RopeScaling) {
		if err := json.Unmarshal(h.RopeScaling, &full); err != nil {
			return fmt.Errorf("safetensors: config.json: rope_scaling: %w", err)
		}
	}
	if present(h.RopeParams) {
		if err := ropeParams(h.RopeParams, &full, &sliding); err != nil {
			return err
		}
	}
	c.RopeTheta = value(full.Theta, value(h.RopeTheta, 10000))
	base := value(sliding.Theta, c.RopeTheta)
	scaling, err := full.scaling()
	if err != nil {
		return err
	}
	if base != c.RopeTheta && slices.ContainsFunc(c.SlidingWindow, func(w int) bool { return w != model.FullAttention }) {
		if scaling.Kind != "" {
			return errors.New("safetensors: config.json: rope_parameters have two values of rope_theta and a scaling, which is not supported")
		}
		scaling = model.RopeScaling{Kind: "abf", NewTheta: c.RopeTheta}
		c.RopeTheta = base
	}
	c.RopeScaling = scaling
	return nil
}

// present tells a value from an absent or null one.
func present(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// ropeParams reads the form of transformers 5: one object, or one for each kind
// of layer.
func ropeParams(raw json.RawMessage, full, sliding *rope) error {
	var byKind map[string]json.RawMessage
	if err := json.Unmarshal(raw, &byKind); err != nil {
		return fmt.Errorf("safetensors: config.json: rope_parameters: %w", err)
	}
	nested := byKind[fullLayer] != nil || byKind[slidingLayer] != nil
	if !nested {
		byKind = map[string]json.RawMessage{fullLayer: raw}
	}
	for kind, dst := range map[string]*rope{fullLayer: full, slidingLayer: sliding} {
		if !present(byKind[kind]) {
			continue
		}
		if err := json.Unmarshal(byKind[kind], dst); err != nil {
			return fmt.Errorf("safetensors: config.json: rope_parameters: %s: %w", kind, err)
		}
	}
	if !nested {
		sliding.Theta = full.Theta
	}
	if k := sliding.kind(); k != "default" {
		return fmt.Errorf("safetensors: config.json: rope_type %q on sliding layers is not supported", k)
	}
	return nil
}

// kind reads the type under its new or old key.
func (r rope) kind() string {
	for _, k := range []string{r.Type, r.OldType} {
		if k != "" {
			return k
		}
	}
	return "default"
}

// scaling translates to the model's words. Hugging Face states llama3's band by
// the factors 1/(1-low) and 1/high.
func (r rope) scaling() (model.RopeScaling, error) {
	s := model.RopeScaling{Kind: r.kind(), Factor: r.Factor, OldContextLen: r.OldContextLen}
	switch s.Kind {
	case "default":
		return model.RopeScaling{}, nil
	case "yarn":
		s.BetaFast, s.BetaSlow, s.AttentionFactor = r.BetaFast, r.BetaSlow, r.AttentionFactor
	case "linear":
		s.OldContextLen = 0
	case "llama3":
		if !(r.LowFreqFactor > 0 && r.HighFreqFactor > 0) {
			return s, errors.New("safetensors: config.json: llama3 scaling needs low_freq_factor and high_freq_factor")
		}
		s.LowFreqProportion, s.HighFreqProportion = 1-1/r.LowFreqFactor, 1/r.HighFreqFactor
	default:
		return s, fmt.Errorf("safetensors: config.json: rope_type %q is not default, yarn, linear or llama3", s.Kind)
	}
	return s, nil
}

// value is what p points to, def when that is absent.
func value[V any](p *V, def V) V {
	if p == nil {
		return def
	}
	return *p
}

// Transformers is the version whose form of config.json is written.
type Transformers int

// The forms.
const (
	Transformers4 Transformers = iota // rope_theta and rope_scaling
	Transformers5                     // rope_parameters
)

// Tokens are the ids that config.json names; nil is null.
type Tokens struct{ Pad, BOS, EOS *int }

// FormatConfig writes a config.json. Every value that a class has a default for
// is written. It returns an error that wraps [errors.ErrUnsupported] when no
// Hugging Face class computes what c describes.
func FormatConfig(c model.Config, form Transformers, tokens Tokens, dtype DType) ([]byte, error) {
	c = c.Resolved()
	class, err := className(c)
	if err != nil {
		return nil, err
	}
	silu, heads, vocab, positions := "silu", c.NKVHeads, c.VocabSize, c.MaxSequenceLength
	h := hfConfig{
		Architectures: []string{class.name}, ModelType: class.modelType, VocabSize: &vocab, HiddenSize: c.DModel,
		IntermediateSize: c.HiddenSize, Layers: c.NLayers, Heads: c.NHeads, KVHeads: &heads, Act: &silu,
		MaxPositions: &positions, InitializerRange: c.InitStd, UseCache: true, Tie: c.TieWordEmbeddings,
		Pad: tokens.Pad, BOS: tokens.BOS, EOS: tokens.EOS,
	}
	if c.HeadDim*c.NHeads != c.DModel {
		h.HeadDim = &c.HeadDim
	}
	if class.modelType == "olmo" {
		if c.ClipQKV > 0 {
			h.ClipQKV = &c.ClipQKV
		}
	} else {
		h.NormEps = &c.NormEps
	}
	if class.modelType == "olmo3" {
		h.setWindows(c)
	}
	if err := h.setForm(c, form, dtype); err != nil {
		return nil, err
	}
	out, err := json.MarshalIndent(&h, "", "  ")
	return append(out, '\n'), err
}

// class is a Hugging Face class.
type class struct{ name, modelType string }

// className finds the class that computes a configuration. A class fixes where
// norms stand and what they are; only their epsilon is free, except in olmo.
func className(c model.Config) (class, error) {
	sliding := slices.ContainsFunc(windows(c), func(w int) bool { return w != model.FullAttention })
	post := c.Norm == model.RMSNorm && c.NormPlace == model.PostNorm && c.QKNorm == "full" && c.ClipQKV == 0
	pre := c.NormPlace == model.PreNorm && c.QKNorm == "none" && !sliding
	switch {
	case post && (sliding || c.Arch == model.OLMo3):
		return class{"Olmo3ForCausalLM", "olmo3"}, nil
	case post:
		return class{"Olmo2ForCausalLM", "olmo2"}, nil
	case pre && c.Norm == model.LayerNorm && c.NormEps == 1e-5:
		return class{"OlmoForCausalLM", "olmo"}, nil
	case pre && c.Norm == model.RMSNorm && c.ClipQKV == 0:
		return class{"LlamaForCausalLM", "llama"}, nil
	}
	return class{}, fmt.Errorf("safetensors: no Hugging Face class has norm %s, norm_place %s, qk_norm %s, norm_eps %g, clip_qkv %g, sliding windows %t: %w",
		c.Norm, c.NormPlace, c.QKNorm, c.NormEps, c.ClipQKV, sliding, errors.ErrUnsupported)
}

// windows lists the window of every layer.
func windows(c model.Config) []int {
	ws := make([]int, c.NLayers)
	for i := range ws {
		ws[i] = c.Window(i)
	}
	return ws
}

// setWindows writes the kind of every layer. A class has one window; setForm
// refuses more.
func (h *hfConfig) setWindows(c model.Config) {
	window := 4096
	for _, w := range windows(c) {
		kind := fullLayer
		if w != model.FullAttention {
			kind, window = slidingLayer, w
		}
		h.LayerTypes = append(h.LayerTypes, kind)
	}
	h.Window = &window
}

// setForm writes what differs between the versions.
func (h *hfConfig) setForm(c model.Config, form Transformers, dtype DType) error {
	for _, w := range windows(c) {
		if w != model.FullAttention && w != *h.Window {
			return fmt.Errorf("safetensors: config.json has one sliding_window, the model has %d and %d: %w", *h.Window, w, errors.ErrUnsupported)
		}
	}
	name := map[DType]string{F32: "float32", F64: "float64", BF16: "bfloat16"}[dtype]
	full, err := ropeFor(c)
	if err != nil {
		return err
	}
	if form == Transformers5 {
		h.Version, h.DType = "5.0.0", &name
		full.Type = full.kind()
		if h.ModelType != "olmo3" {
			h.RopeParams = appendJSON(nil, full)
			return nil
		}
		sliding := rope{Type: "default", Theta: &c.RopeTheta}
		h.RopeParams = appendJSON(nil, map[string]rope{fullLayer: full, slidingLayer: sliding})
		return nil
	}
	h.Version, h.TorchDType = "4.57.0", &name
	if *full.Theta != c.RopeTheta && slices.Max(windows(c)) != slices.Min(windows(c)) {
		return fmt.Errorf("safetensors: rope_scaling abf beside sliding layers needs the form of transformers 5: %w", errors.ErrUnsupported)
	}
	h.RopeTheta, full.Theta, h.RopeScaling = full.Theta, nil, json.RawMessage("null")
	if full.kind() != "default" {
		h.RopeScaling = appendJSON(nil, full)
	}
	return nil
}

// ropeFor is the rotary part of the full-attention layers.
func ropeFor(c model.Config) (rope, error) {
	s, theta := c.RopeScaling, c.RopeTheta
	r := rope{Theta: &theta, Type: s.Kind, Factor: s.Factor}
	switch s.Kind {
	case "":
	case "abf":
		theta, r.Type = s.NewTheta, ""
	case "linear":
	case "yarn":
		r.OldContextLen, r.BetaFast, r.BetaSlow, r.AttentionFactor = s.OldContextLen, s.BetaFast, s.BetaSlow, s.AttentionFactor
	case "llama3":
		r.OldContextLen, r.LowFreqFactor, r.HighFreqFactor = s.OldContextLen, 1/(1-s.LowFreqProportion), 1/s.HighFreqProportion
	default:
		return r, fmt.Errorf("safetensors: rope_scaling %q has no Hugging Face form: %w", s.Kind, errors.ErrUnsupported)
	}
	return r, nil
}

// appendJSON appends v, of a type that cannot fail.
func appendJSON(dst []byte, v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("safetensors: value has no JSON form")
	}
	return append(dst, b...)
}
