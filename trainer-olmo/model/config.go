package model

import (
	"errors"
	"fmt"
	"slices"

	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// Arch is a generation of the OLMo architecture. It chooses the defaults of the
// fields that describe a block.
type Arch string

// The generations.
const (
	OLMo1 Arch = "olmo1" // pre-norm, LayerNorm without parameters
	OLMo2 Arch = "olmo2" // norms on the outputs, RMSNorm, QK-norm
	OLMo3 Arch = "olmo3" // OLMo-2 with sliding windows
)

// NormKind is what a norm computes.
type NormKind string

// The norms.
const (
	LayerNorm NormKind = "layer" // (x-mean)/sqrt(var+eps), no parameters
	RMSNorm   NormKind = "rms"   // w*x/sqrt(mean(x²)+eps)
)

// NormPlace is where the norms of a block stand.
type NormPlace string

// The places.
const (
	PreNorm  NormPlace = "pre"  // on the input of attention and MLP
	PostNorm NormPlace = "post" // on their output, before the residual sum
)

// FullAttention is the window of a layer that sees all earlier tokens.
const FullAttention = -1

// Config describes a model. Zero fields take the defaults of the architecture;
// [Config.Resolved] writes them out. The YAML names are those of OLMo-core.
type Config struct {
	// Arch is the generation. Default olmo2.
	Arch Arch `yaml:"arch"`
	// DModel is the width of the residual stream.
	DModel int `yaml:"d_model"`
	// NLayers is the number of blocks.
	NLayers int `yaml:"n_layers"`
	// NHeads is the number of query heads.
	NHeads int `yaml:"n_heads"`
	// NKVHeads is the number of key and value heads; it divides NHeads. Query
	// head h reads head h/(NHeads/NKVHeads). Default NHeads.
	NKVHeads int `yaml:"n_kv_heads"`
	// HeadDim is the width of a head, even. Default DModel/NHeads.
	HeadDim int `yaml:"head_dim"`
	// HiddenSize is the width of the MLP. Default 8/3*DModel, rounded down and
	// then up to a multiple of 256 (llama_like of OLMo-core).
	HiddenSize int `yaml:"hidden_size"`
	// VocabSize is the number of rows of the embeddings and of the head.
	VocabSize int `yaml:"vocab_size"`
	// MaxSequenceLength is written to exported files; nothing here depends on
	// it. Default 4096.
	MaxSequenceLength int `yaml:"max_sequence_length"`

	// RopeTheta is the base of the rotary frequencies. Default 500000, olmo1
	// 10000.
	RopeTheta float64 `yaml:"rope_theta"`
	// RopeScaling changes the frequencies of the layers with full attention.
	RopeScaling RopeScaling `yaml:"rope_scaling"`
	// NormEps is added to the mean square or variance. Default 1e-6, olmo1 1e-5.
	NormEps float64 `yaml:"norm_eps"`
	// ClipQKV clamps the elements of the q, k and v projections to
	// [-ClipQKV, ClipQKV]; 0 is off.
	ClipQKV float64 `yaml:"clip_qkv"`
	// TieWordEmbeddings uses the embeddings as output projection.
	TieWordEmbeddings bool `yaml:"tie_word_embeddings"`
	// SlidingWindow is the pattern of windows: layer i has element i modulo the
	// length, [FullAttention] or a number of tokens that counts the query itself.
	// Default [FullAttention], olmo3 [4096, 4096, 4096, -1].
	SlidingWindow []int `yaml:"sliding_window"`
	// SlidingLastLayer keeps the pattern's window on the last layer, which
	// otherwise has full attention.
	SlidingLastLayer bool `yaml:"sliding_last_layer"`

	// Norm is the kind of norm. Default rms, olmo1 layer.
	Norm NormKind `yaml:"norm"`
	// NormPlace is where a block's norms stand. Default post, olmo1 pre.
	NormPlace NormPlace `yaml:"norm_place"`
	// QKNorm is "full" (RMSNorm over the projected width) or "none". Default
	// full, olmo1 none.
	QKNorm string `yaml:"qk_norm"`

	// InitOptions choose the initial weights.
	InitOptions `yaml:",inline"`
}

// Resolved returns c with the defaults written out.
func (c Config) Resolved() Config {
	c.Arch = or(c.Arch, OLMo2)
	c = c.resolveArch()
	c.NKVHeads = or(c.NKVHeads, c.NHeads)
	if c.NHeads > 0 {
		c.HeadDim = or(c.HeadDim, c.DModel/c.NHeads)
	}
	c.HiddenSize = or(c.HiddenSize, roundUp(8*c.DModel/3, 256))
	c.MaxSequenceLength = or(c.MaxSequenceLength, 4096)
	c.RopeScaling = c.RopeScaling.resolved()
	c.InitOptions = c.InitOptions.resolved()
	return c
}

func (c Config) resolveArch() Config {
	if c.Arch == OLMo1 {
		c.RopeTheta = or(c.RopeTheta, 10000)
		c.NormEps = or(c.NormEps, 1e-5)
		c.Norm = or(c.Norm, LayerNorm)
		c.NormPlace = or(c.NormPlace, PreNorm)
		c.QKNorm = or(c.QKNorm, "none")
	}
	if c.Arch == OLMo3 && len(c.SlidingWindow) == 0 {
		c.SlidingWindow = []int{4096, 4096, 4096, FullAttention}
	}
	if len(c.SlidingWindow) == 0 {
		c.SlidingWindow = []int{FullAttention}
	}
	c.RopeTheta = or(c.RopeTheta, 500000)
	c.NormEps = or(c.NormEps, 1e-6)
	c.Norm = or(c.Norm, RMSNorm)
	c.NormPlace = or(c.NormPlace, PostNorm)
	c.QKNorm = or(c.QKNorm, "full")
	return c
}

// or returns v, or def when v is the zero value.
func or[V comparable](v, def V) V {
	var zero V
	if v == zero {
		return def
	}
	return v
}

func roundUp(n, multiple int) int { return (n + multiple - 1) / multiple * multiple }

// maxCount bounds every size, so that products of three of them fit in int64.
const maxCount = 1 << 20

// Validate reports all faults of c after its defaults are filled in.
func (c Config) Validate() error {
	c = c.Resolved()
	var errs []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("model: "+format, args...))
		}
	}
	fault(c.Arch != OLMo1 && c.Arch != OLMo2 && c.Arch != OLMo3, "arch %q is not olmo1, olmo2 or olmo3", c.Arch)
	for _, s := range []struct {
		name string
		n    int
	}{
		{"d_model", c.DModel}, {"n_layers", c.NLayers}, {"n_heads", c.NHeads}, {"n_kv_heads", c.NKVHeads},
		{"head_dim", c.HeadDim}, {"hidden_size", c.HiddenSize}, {"vocab_size", c.VocabSize},
	} {
		fault(s.n < 1 || s.n > maxCount, "%s is %d, must be in [1, %d]", s.name, s.n, maxCount)
	}
	fault(c.NKVHeads > 0 && c.NHeads%c.NKVHeads != 0, "n_kv_heads %d does not divide n_heads %d", c.NKVHeads, c.NHeads)
	fault(c.HeadDim%2 != 0, "head_dim %d is odd; rotary embeddings need pairs", c.HeadDim)
	fault(!(c.RopeTheta > 0), "rope_theta %g must be positive", c.RopeTheta)
	fault(!(c.NormEps > 0 && c.NormEps < 1), "norm_eps %g is not in (0, 1)", c.NormEps)
	fault(!(c.ClipQKV >= 0), "clip_qkv %g is negative", c.ClipQKV)
	fault(c.Norm != LayerNorm && c.Norm != RMSNorm, "norm %q is not layer or rms", c.Norm)
	fault(c.NormPlace != PreNorm && c.NormPlace != PostNorm, "norm_place %q is not pre or post", c.NormPlace)
	fault(c.QKNorm != "none" && c.QKNorm != "full", "qk_norm %q is not none or full", c.QKNorm)
	for i, w := range c.SlidingWindow {
		fault(w != FullAttention && w < 1, "sliding_window[%d] is %d, must be -1 or positive", i, w)
	}
	errs = append(errs, c.RopeScaling.validate(), c.InitOptions.validate())
	return errors.Join(errs...)
}

// Window returns the window of a layer in tokens, [FullAttention] for none.
func (c Config) Window(layer int) int {
	if len(c.SlidingWindow) == 0 || (layer == c.NLayers-1 && !c.SlidingLastLayer) {
		return FullAttention
	}
	return c.SlidingWindow[layer%len(c.SlidingWindow)]
}

// hasNormWeights reports whether norms carry parameters.
func (c Config) hasNormWeights() bool { return c.Norm == RMSNorm }

func (c Config) qWidth() int  { return c.NHeads * c.HeadDim }
func (c Config) kvWidth() int { return c.NKVHeads * c.HeadDim }

// Tensor names a parameter and gives its shape.
type Tensor struct {
	Name  string // Hugging Face name
	Shape []int  // [out, in] or [width]
	Role  param.Role
	Layer int // block that owns it, -1 outside the blocks
}

// Len is the number of elements.
func (t Tensor) Len() int64 {
	n := int64(1)
	for _, s := range t.Shape {
		n *= int64(s)
	}
	return n
}

// Shapes lists the parameters in their fixed order without allocating them:
// embeddings, then by block q, k, v, o, q norm, k norm, gate, up, down and the
// two norms, then the final norm and the head. Names are those of Hugging Face;
// pre-norm blocks with weights use Llama's names for the two norms.
func (c Config) Shapes() []Tensor {
	c = c.Resolved()
	ts := []Tensor{{"model.embed_tokens.weight", []int{c.VocabSize, c.DModel}, param.Embedding, -1}}
	for i := range c.NLayers {
		ts = append(ts, c.blockShapes(i)...)
	}
	if c.hasNormWeights() {
		ts = append(ts, Tensor{"model.norm.weight", []int{c.DModel}, param.Norm, -1})
	}
	if !c.TieWordEmbeddings {
		ts = append(ts, Tensor{"lm_head.weight", []int{c.VocabSize, c.DModel}, param.Head, -1})
	}
	return ts
}

func (c Config) blockShapes(layer int) []Tensor {
	var ts []Tensor
	add := func(name string, role param.Role, shape ...int) {
		ts = append(ts, Tensor{fmt.Sprintf("model.layers.%d.%s.weight", layer, name), shape, role, layer})
	}
	add("self_attn.q_proj", param.Matrix, c.qWidth(), c.DModel)
	add("self_attn.k_proj", param.Matrix, c.kvWidth(), c.DModel)
	add("self_attn.v_proj", param.Matrix, c.kvWidth(), c.DModel)
	add("self_attn.o_proj", param.Matrix, c.DModel, c.qWidth())
	if c.QKNorm == "full" {
		add("self_attn.q_norm", param.Norm, c.qWidth())
		add("self_attn.k_norm", param.Norm, c.kvWidth())
	}
	add("mlp.gate_proj", param.Matrix, c.HiddenSize, c.DModel)
	add("mlp.up_proj", param.Matrix, c.HiddenSize, c.DModel)
	add("mlp.down_proj", param.Matrix, c.DModel, c.HiddenSize)
	if c.hasNormWeights() {
		first, second := c.normNames()
		add(first, param.Norm, c.DModel)
		add(second, param.Norm, c.DModel)
	}
	return ts
}

// normNames are the names of a block's two norms, attention first. The name
// post_attention_layernorm means the MLP's input norm in a pre-norm block and
// the attention's output norm in a post-norm block.
func (c Config) normNames() (attention, mlp string) {
	if c.NormPlace == PreNorm {
		return "input_layernorm", "post_attention_layernorm"
	}
	return "post_attention_layernorm", "post_feedforward_layernorm"
}

// ParamCount returns the number of parameters, and the number without the input
// embeddings. Tied embeddings count once, as input embeddings.
func (c Config) ParamCount() (total, nonEmbedding int64) {
	for _, t := range c.Shapes() {
		total += t.Len()
		if t.Role != param.Embedding {
			nonEmbedding += t.Len()
		}
	}
	return total, nonEmbedding
}

// FLOPsPerToken is OLMo-core's count of floating-point operations for one token
// of training at a sequence length: by layer 6 times the parameters of attention
// and MLP plus 12*heads*head_dim*min(window, seq), and 6 times head and final
// norm. It has no embedding look-up, halves nothing for the causal mask and
// counts no recomputation. The two norms of a block are left out, as there.
func (c Config) FLOPsPerToken(seq int) float64 {
	c = c.Resolved()
	var f float64
	for i := range c.NLayers {
		visible := seq
		if w := c.Window(i); w != FullAttention {
			visible = min(w, seq)
		}
		f += 12 * float64(c.qWidth()) * float64(visible)
		f += 6 * float64(c.attentionParams()+int64(3)*int64(c.DModel)*int64(c.HiddenSize))
	}
	head := int64(c.VocabSize) * int64(c.DModel)
	if c.hasNormWeights() {
		head += int64(c.DModel)
	}
	return f + 6*float64(head)
}

// attentionParams counts one layer's projections and q/k norms.
func (c Config) attentionParams() int64 {
	n := 2 * int64(c.DModel) * int64(c.qWidth()+c.kvWidth())
	if c.QKNorm == "full" {
		n += int64(c.qWidth() + c.kvWidth())
	}
	return n
}

// LegacyFLOPsPerToken is the legacy trainer's count: forward
// 2*N_nonembedding + 4*L*d*seq and backward 4*N_total + 8*L*d*seq.
func (c Config) LegacyFLOPsPerToken(seq int) float64 {
	total, nonEmbedding := c.ParamCount()
	att := float64(c.NLayers) * float64(c.DModel) * float64(seq)
	return 2*float64(nonEmbedding) + 4*att + 4*float64(total) + 8*att
}

// Equal reports whether a and b describe the same model, defaults filled in.
func (c Config) Equal(b Config) bool {
	x, y := c.Resolved(), b.Resolved()
	if !slices.Equal(x.windows(), y.windows()) {
		return false
	}
	x.SlidingWindow, y.SlidingWindow = nil, nil
	x.SlidingLastLayer, y.SlidingLastLayer = false, false
	return x.comparable() == y.comparable()
}

// windows lists the window of every layer.
func (c Config) windows() []int {
	ws := make([]int, max(c.NLayers, 0))
	for i := range ws {
		ws[i] = c.Window(i)
	}
	return ws
}

// comparable is c without its slices.
func (c Config) comparable() any {
	return struct {
		a               Arch
		n               [8]int
		f               [3]float64
		r               RopeScaling
		tie             bool
		norm, place, qk string
		init            InitOptions
	}{
		c.Arch, [8]int{c.DModel, c.NLayers, c.NHeads, c.NKVHeads, c.HeadDim, c.HiddenSize, c.VocabSize, c.MaxSequenceLength},
		[3]float64{c.RopeTheta, c.NormEps, c.ClipQKV}, c.RopeScaling, c.TieWordEmbeddings,
		string(c.Norm), string(c.NormPlace), c.QKNorm, c.InitOptions,
	}
}
