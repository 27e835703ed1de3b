package model

import (
	"math"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
)

// goldenModel is a model_*.json file.
type goldenModel struct {
	Tolerance goldenTolerance    `json:"tolerance"`
	Config    goldenConfig       `json:"config"`
	InputIDs  [][]int32          `json:"input_ids"`
	Labels    [][]int32          `json:"labels_shifted_padded"`
	ZLoss     float64            `json:"z_loss_multiplier"`
	LabelMask [][]bool           `json:"label_mask"`
	RowMask   []bool             `json:"instance_mask"`
	DocLens   [][]int32          `json:"doc_lens"`
	DocIDs    [][]int32          `json:"doc_ids"`
	Params    map[string]numbers `json:"params"`
	Expected  goldenExpected     `json:"expected"`
}

// goldenConfig has Hugging Face's names.
type goldenConfig struct {
	HiddenSize   int       `json:"hidden_size"`
	Layers       int       `json:"num_hidden_layers"`
	Heads        int       `json:"num_attention_heads"`
	KVHeads      int       `json:"num_key_value_heads"`
	HeadDim      int       `json:"head_dim"`
	Intermediate int       `json:"intermediate_size"`
	Vocab        int       `json:"vocab_size"`
	RopeTheta    float64   `json:"rope_theta"`
	NormEps      float64   `json:"norm_eps"`
	Tie          bool      `json:"tie_word_embeddings"`
	Family       string    `json:"family"`
	ClipQKV      *float64  `json:"clip_qkv"`
	Window       *int      `json:"sliding_window"`
	LayerTypes   []string  `json:"layer_types"`
	Yarn         *yarnJSON `json:"yarn"`
}

type yarnJSON struct {
	Factor        float64 `json:"factor"`
	BetaFast      float64 `json:"beta_fast"`
	BetaSlow      float64 `json:"beta_slow"`
	OldContextLen int     `json:"old_context_len"`
}

func (y yarnJSON) scaling() RopeScaling {
	return RopeScaling{Kind: "yarn", Factor: y.Factor, BetaFast: y.BetaFast, BetaSlow: y.BetaSlow, OldContextLen: y.OldContextLen}
}

// model translates to a Config. The files call OLMo-3 olmo2 and give its windows
// apart.
func (g goldenConfig) model() Config {
	c := Config{
		Arch: Arch(g.Family), DModel: g.HiddenSize, NLayers: g.Layers, NHeads: g.Heads, NKVHeads: g.KVHeads,
		HeadDim: g.HeadDim, HiddenSize: g.Intermediate, VocabSize: g.Vocab, RopeTheta: g.RopeTheta, NormEps: g.NormEps,
		TieWordEmbeddings: g.Tie, SlidingWindow: []int{FullAttention},
	}
	if g.ClipQKV != nil {
		c.ClipQKV = *g.ClipQKV
	}
	if g.Window != nil {
		c.SlidingWindow, c.SlidingLastLayer = nil, true
		for _, kind := range g.LayerTypes {
			w := FullAttention
			if kind == "sliding_attention" {
				w = *g.Window
			}
			c.SlidingWindow = append(c.SlidingWindow, w)
		}
	}
	if g.Yarn != nil {
		c.RopeScaling = g.Yarn.scaling()
	}
	return c
}

type goldenExpected struct {
	Logits       numbers            `json:"logits"`
	HiddenStates []numbers          `json:"hidden_states"`
	CESum        float64            `json:"ce_loss_sum"`
	Labels       int                `json:"num_label_tokens"`
	CoreDivisor  float64            `json:"core_loss_divisor"`
	ZSum         float64            `json:"lse_squared_sum"`
	CoreCE       float64            `json:"core_ce_loss"`
	CoreZ        float64            `json:"core_z_loss"`
	CoreTotal    float64            `json:"core_total_loss"`
	LegacyCE     float64            `json:"legacy_ce_loss"`
	LegacyZ      float64            `json:"legacy_z_loss"`
	GradNorm     float64            `json:"grad_norm"`
	Grads        map[string]numbers `json:"grads_of_core_total_loss"`
}

func (g *goldenModel) batch() Batch {
	b := Batch{Rows: len(g.InputIDs), Seq: len(g.InputIDs[0]), InstanceMask: g.RowMask, DocLens: g.DocLens}
	for _, row := range g.InputIDs {
		b.Tokens = append(b.Tokens, row...)
	}
	for _, row := range g.LabelMask {
		b.LabelMask = append(b.LabelMask, row...)
	}
	if b.DocLens == nil && g.DocIDs != nil {
		b.DocLens = lensOf(g.DocIDs)
	}
	return b
}

// lensOf turns document ids into lengths of runs.
func lensOf(ids [][]int32) [][]int32 {
	lens := make([][]int32, len(ids))
	for r, row := range ids {
		for i, id := range row {
			if i == 0 || id != row[i-1] {
				lens[r] = append(lens[r], 0)
			}
			lens[r][len(lens[r])-1]++
		}
	}
	return lens
}

func TestGoldenModel(t *testing.T) {
	golden(t, "model_*", func(t *testing.T, data []byte) {
		var g goldenModel
		decode(t, data, &g)
		both(t, func(t *testing.T) { checkModel[float64](t, &g) }, func(t *testing.T) { checkModel[float32](t, &g) })
	})
}

// loadGolden makes the file's model with its weights.
func loadGolden[T gemm.Float](t *testing.T, g *goldenModel) *Model[T] {
	t.Helper()
	m, err := New[T](g.Config.model(), gemm.New(2))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, p := range m.Params() {
		x, ok := g.Params[p.Name]
		if !ok || len(x.v) != len(p.Value) {
			t.Fatalf("%s: file has %d elements, model %v", p.Name, len(x.v), p.Shape)
		}
		copy(p.Value, to[T](x.v))
		seen++
	}
	if seen != len(g.Params) {
		t.Fatalf("model has %d parameters, file %d", seen, len(g.Params))
	}
	return m
}

func checkModel[T gemm.Float](t *testing.T, g *goldenModel) {
	m := loadGolden[T](t, g)
	defer m.Close()
	b, want, tol := g.batch(), &g.Expected, toleranceOf[T](g.Tolerance)
	checkLabels(t, b, g.Labels)

	logits := make([]T, len(want.Logits.v))
	if err := m.Logits(b, logits); err != nil {
		t.Fatal(err)
	}
	near(t, "logits", logits, want.Logits.v, tol)

	s, err := m.LossGrad(b, LossOptions{ZLoss: g.ZLoss}, nil)
	if err != nil {
		t.Fatal(err)
	}
	checkSums(t, g, s, tol)
	checkHidden(t, m, want.HiddenStates, tol)
	var norm float64
	for _, p := range m.Params() {
		near(t, "gradient of "+p.Name, p.Grad, want.Grads[p.Name].v, tol)
		for _, v := range p.Grad {
			norm += float64(v) * float64(v)
		}
	}
	nearOne(t, "gradient norm", math.Sqrt(norm), want.GradNorm, tol)

	legacy, err := m.Loss(b, LossOptions{Legacy: true, ZLoss: g.ZLoss})
	if err != nil {
		t.Fatal(err)
	}
	nearOne(t, "legacy CE", legacy.CE/legacy.Divisor, want.LegacyCE, tol)
	nearOne(t, "legacy z", g.ZLoss*legacy.Z/legacy.Divisor, want.LegacyZ, tol)
}

// checkSums compares the sums. Their tolerance is that of an element for every
// element that is summed; z squares what it sums.
func checkSums(t *testing.T, g *goldenModel, s LossStats, tol tolerance) {
	t.Helper()
	want := &g.Expected
	if s.Labels != want.Labels || s.Divisor != want.CoreDivisor {
		t.Errorf("%d labels over %g, want %d over %g", s.Labels, s.Divisor, want.Labels, want.CoreDivisor)
	}
	sum := tolerance{abs: tol.abs * float64(max(1, s.Labels)), rel: tol.rel}
	nearOne(t, "CE sum", s.CE, want.CESum, sum)
	lse := math.Sqrt(want.ZSum / float64(max(1, s.Labels)))
	nearOne(t, "z sum", s.Z, want.ZSum, tolerance{abs: 2 * lse * sum.abs, rel: tol.rel})
	nearOne(t, "CE", s.CE/s.Divisor, want.CoreCE, tol)
	nearOne(t, "z", g.ZLoss*s.Z/s.Divisor, want.CoreZ, tol)
	nearOne(t, "loss", s.Loss, want.CoreTotal, tol)
}

func checkLabels(t *testing.T, b Batch, want [][]int32) {
	t.Helper()
	for row, labels := range want {
		for i, w := range labels {
			if got := b.label(row, i); got != max(int(w), ignored) {
				t.Errorf("label of row %d, position %d is %d, want %d", row, i, got, w)
			}
		}
	}
}

// checkHidden compares the residual stream: embedding, after each block, after
// the final norm.
func checkHidden[T gemm.Float](t *testing.T, m *Model[T], want []numbers, tol tolerance) {
	t.Helper()
	w := m.train
	n := w.tokens() * m.cfg.DModel
	streams := [][]T{w.layers[0].x}
	for l := range w.layers {
		streams = append(streams, w.output(l))
	}
	streams = append(streams, w.normed)
	if len(want) == 0 {
		return
	}
	if len(want) != len(streams) {
		t.Fatalf("file has %d hidden states, model %d", len(want), len(streams))
	}
	for i, h := range want {
		near(t, "hidden state", streams[i][:n], h.v, tol)
	}
}
