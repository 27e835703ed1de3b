package model

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/gemm/vec"
)

// TestGoldenOp runs every op_* file. Files say what they hold by their keys, not
// by their names, so that a file may hold other cases of the same kind.
func TestGoldenOp(t *testing.T) {
	golden(t, "op_*", func(t *testing.T, data []byte) {
		both(t, func(t *testing.T) { checkOps[float64](t, data) }, func(t *testing.T) { checkOps[float32](t, data) })
	})
}

// checkOps runs whatever the file has and fails when it has nothing known.
func checkOps[T gemm.Float](t *testing.T, data []byte) {
	var f struct {
		Tolerance    goldenTolerance   `json:"tolerance"`
		Cases        []json.RawMessage `json:"cases"`
		TableSamples []goldenTable     `json:"table_samples"`
		Scaling      []goldenScaling   `json:"scaling"`
		RMSNorm      []goldenNorm      `json:"rmsnorm"`
		LayerNorm    []goldenNorm      `json:"layernorm_nonparametric"`
		Elementwise  *goldenSwiGLU     `json:"elementwise"`
		MLP          *goldenMLP        `json:"mlp"`
	}
	decode(t, data, &f)
	tol := toleranceOf[T](f.Tolerance)
	ran := 0
	for _, raw := range f.Cases {
		checkCase[T](t, raw, tol)
		ran++
	}
	for _, s := range f.TableSamples {
		s.check(t, tol)
		ran++
	}
	for _, s := range f.Scaling {
		s.check(t, tolerance{abs: f.Tolerance.Float64Abs})
		ran++
	}
	for _, n := range f.RMSNorm {
		checkRMS[T](t, n, tol)
		ran++
	}
	for _, n := range f.LayerNorm {
		checkLayerNorm[T](t, n, tol)
		ran++
	}
	if f.Elementwise != nil {
		checkSwiGLU[T](t, *f.Elementwise, tol)
		ran++
	}
	if f.MLP != nil {
		checkMLP[T](t, *f.MLP, tol)
		ran++
	}
	if ran == 0 {
		t.Fatal("the file holds no operation that is known")
	}
}

// checkCase tells attention, cross-entropy and rotation apart by their fields.
func checkCase[T gemm.Float](t *testing.T, raw json.RawMessage, tol tolerance) {
	var keys map[string]json.RawMessage
	decode(t, raw, &keys)
	switch {
	case keys["q_BHTD"] != nil:
		var g goldenAttention
		decode(t, raw, &g)
		for _, tiles := range [][2]int{{queryBlock, keyBlock}, {1, 1}, {2, 3}, {3, 2}} {
			checkAttention[T](t, &g, tiles[0], tiles[1], tol)
		}
	case keys["logits"] != nil:
		var g goldenCE
		decode(t, raw, &g)
		checkCE[T](t, &g, tol)
	case keys["x_BHTD"] != nil:
		var g goldenRope
		decode(t, raw, &g)
		checkRope[T](t, &g, tol)
	default:
		t.Fatalf("unknown case %.100s", raw)
	}
}

type goldenAttention struct {
	Heads   int     `json:"n_heads"`
	KVHeads int     `json:"n_kv_heads"`
	Window  *int    `json:"window"`
	DocIDs  []int32 `json:"doc_ids"`
	Scale   float64 `json:"scale"`
	Q       numbers `json:"q_BHTD"`
	K       numbers `json:"k_BHTD"`
	V       numbers `json:"v_BHTD"`
	Mask    numbers `json:"mask"`
	Y       numbers `json:"y_BHTD"`
	DY      numbers `json:"dy"`
	DQ      numbers `json:"dq"`
	DK      numbers `json:"dk"`
	DV      numbers `json:"dv"`
}

// firstVisible is lo of the case's window and documents.
func (g *goldenAttention) firstVisible(seq int) []int32 {
	b := Batch{Rows: 1, Seq: seq}
	if g.DocIDs != nil {
		b.DocLens = lensOf([][]int32{g.DocIDs})
	}
	starts, lo := make([]int32, seq), make([]int32, seq)
	b.docStarts(starts)
	window := FullAttention
	if g.Window != nil {
		window = *g.Window
	}
	visibleFrom(lo, starts, seq, window)
	return lo
}

func checkAttention[T gemm.Float](t *testing.T, g *goldenAttention, queries, keys int, tol tolerance) {
	t.Helper()
	batch, seq, hd := g.Q.shape[0], g.Q.shape[2], g.Q.shape[3]
	lo := g.firstVisible(seq)
	for i := range seq {
		for j := range seq {
			if seen := j >= int(lo[i]) && j <= i; seen != (g.Mask.v[i*seq+j] != 0) {
				t.Errorf("query %d sees key %d: %v", i, j, seen)
			}
		}
	}
	q, k, v, do := to[T](g.Q.v), to[T](g.K.v), to[T](g.V.v), to[T](g.DY.v)
	o, dq, dk, dv := make([]T, len(q)), make([]T, len(q)), make([]T, len(k)), make([]T, len(v))
	a := newAttention[T](gemm.New(1), queries, keys)
	a.reserve(seq, hd)
	at := func(x []T, row, heads, h int) gemm.Matrix[T] {
		return gemm.MatrixOf(seq, hd, x[(row*heads+h)*seq*hd:])
	}
	for row := range batch {
		for h := range g.Heads {
			kv := h / (g.Heads / g.KVHeads)
			in := head[T]{
				q: at(q, row, g.Heads, h), k: at(k, row, g.KVHeads, kv), v: at(v, row, g.KVHeads, kv),
				o: at(o, row, g.Heads, h), lse: make([]T, seq), lo: lo, scale: T(g.Scale),
			}
			a.forward(&in)
			a.backward(&in, &headGrad[T]{
				do: at(do, row, g.Heads, h), dq: at(dq, row, g.Heads, h),
				dk: at(dk, row, g.KVHeads, kv), dv: at(dv, row, g.KVHeads, kv),
			})
		}
	}
	near(t, "y", o, g.Y.v, tol)
	near(t, "dq", dq, g.DQ.v, tol)
	near(t, "dk", dk, g.DK.v, tol)
	near(t, "dv", dv, g.DV.v, tol)
}

type goldenCE struct {
	Logits  numbers  `json:"logits"`
	Labels  []int32  `json:"labels"`
	Ignore  int32    `json:"ignore_index"`
	Z       *float64 `json:"z_multiplier"`
	Valid   int      `json:"n_valid"`
	CESum   float64  `json:"ce_sum"`
	ZSum    float64  `json:"lse2_sum"`
	CE      float64  `json:"ce_mean"`
	ZMean   float64  `json:"z_mean"`
	Total   float64  `json:"total_mean"`
	DTotal  numbers  `json:"dlogits_total_mean"`
	DCEOnly numbers  `json:"dlogits_ce_mean"`
}

func checkCE[T gemm.Float](t *testing.T, g *goldenCE, tol tolerance) {
	t.Helper()
	z := 0.0
	if g.Z != nil {
		z = *g.Z
	}
	n, vocab := len(g.Labels), g.Logits.last()
	grads := func(z float64) (dlogits []T, ce, lse2 float64) {
		task := lossTask[T]{grad: true, zLoss: z, inverse: 1 / float64(g.Valid)}
		dlogits = to[T](g.Logits.v)
		for i, label := range g.Labels {
			if label == g.Ignore {
				label = ignored
			}
			c, l := task.row(dlogits[i*vocab:(i+1)*vocab], int(label))
			ce, lse2 = ce+c, lse2+l
		}
		return dlogits, ce, lse2
	}
	d, ce, lse2 := grads(z)
	// A sum of n numbers may be n times as far off; lse² is off by 2*lse.
	sum := tolerance{abs: tol.abs * float64(n), rel: tol.rel}
	lse := math.Sqrt(g.ZSum / float64(max(1, g.Valid)))
	nearOne(t, "CE sum", ce, g.CESum, sum)
	nearOne(t, "z sum", lse2, g.ZSum, tolerance{abs: 2 * lse * sum.abs, rel: tol.rel})
	nearOne(t, "CE", ce/float64(g.Valid), g.CE, tol)
	nearOne(t, "z", z*lse2/float64(g.Valid), g.ZMean, tol)
	nearOne(t, "total", (ce+z*lse2)/float64(g.Valid), g.Total, tol)
	near(t, "gradient", d, g.DTotal.v, tol)
	d, _, _ = grads(0)
	near(t, "gradient of CE", d, g.DCEOnly.v, tol)
}

type goldenRope struct {
	HeadDim int     `json:"head_dim"`
	Theta   float64 `json:"theta"`
	Seq     int     `json:"seq_len"`
	Freq    numbers `json:"inv_freq"`
	Cos     numbers `json:"cos"`
	Sin     numbers `json:"sin"`
	X       numbers `json:"x_BHTD"`
	Y       numbers `json:"y_BHTD"`
	DY      numbers `json:"dy"`
	DX      numbers `json:"dx"`
}

func checkRope[T gemm.Float](t *testing.T, g *goldenRope, tol tolerance) {
	t.Helper()
	table := newRopeTable[T](RopeScaling{}, g.HeadDim, g.Theta)
	table.grow(g.Seq)
	near(t, "frequencies", table.freq, g.Freq.v, tol)
	near(t, "cos", table.cos, g.Cos.v, tol)
	near(t, "sin", table.sin, g.Sin.v, tol)
	x, dy := to[T](g.X.v), to[T](g.DY.v)
	for i := 0; i < len(x); i += g.HeadDim {
		cos, sin := table.at(i / g.HeadDim % g.Seq)
		vec.Rotate(x[i:i+g.HeadDim], x[i:i+g.HeadDim], cos, sin)
		vec.Unrotate(dy[i:i+g.HeadDim], dy[i:i+g.HeadDim], cos, sin)
	}
	near(t, "y", x, g.Y.v, tol)
	near(t, "dx", dy, g.DX.v, tol)
}

type goldenTable struct {
	HeadDim   int     `json:"head_dim"`
	Theta     float64 `json:"theta"`
	Positions []int   `json:"positions"`
	Columns   []int   `json:"columns"`
	Cos       numbers `json:"cos64"`
	Sin       numbers `json:"sin64"`
	Cos32     numbers `json:"official_float32_cos"`
	Sin32     numbers `json:"official_float32_sin"`
}

// check compares single entries. The official float32 tables round the frequency
// (relative error at most 2ε with its reciprocal and power) and the angle before
// they take cos and sin, so they differ by up to 4ε*angle, ε = 2^-24, and a
// rounding of the result.
func (g goldenTable) check(t *testing.T, tol tolerance) {
	t.Helper()
	freq, scale := RopeScaling{}.InvFreq(g.HeadDim, g.Theta)
	i := 0
	for _, pos := range g.Positions {
		for _, col := range g.Columns {
			angle := float64(pos) * freq[col]
			sin, cos := math.Sincos(angle)
			nearOne(t, "cos", cos*scale, g.Cos.v[i], tol)
			nearOne(t, "sin", sin*scale, g.Sin.v[i], tol)
			official := tolerance{abs: 0x1p-24 * (4*angle + 2)}
			nearOne(t, "float32 cos", float64(float32(cos)), g.Cos32.v[i], official)
			nearOne(t, "float32 sin", float64(float32(sin)), g.Sin32.v[i], official)
			i++
		}
	}
}

type goldenScaling struct {
	Kind    string  `json:"kind"`
	Theta   float64 `json:"theta"`
	HeadDim int     `json:"head_dim"`
	Freq    numbers `json:"inv_freq"`
	Rescale float64 `json:"attention_rescale_factor"`
	Params  struct {
		yarnJSON
		NewTheta float64 `json:"new_theta"`
		Low      float64 `json:"low_freq_proportion"`
		High     float64 `json:"high_freq_proportion"`
	} `json:"params"`
}

func (g goldenScaling) check(t *testing.T, tol tolerance) {
	t.Helper()
	s := g.Params.scaling()
	s.NewTheta, s.LowFreqProportion, s.HighFreqProportion = g.Params.NewTheta, g.Params.Low, g.Params.High
	switch {
	case strings.HasPrefix(g.Kind, "yarn"):
	case strings.HasPrefix(g.Kind, "pi"):
		s.Kind = "linear"
	case strings.HasPrefix(g.Kind, "abf"):
		s.Kind = "abf"
	case strings.HasPrefix(g.Kind, "stepwise"):
		s.Kind = "llama3"
	default:
		t.Fatalf("unknown scaling %q", g.Kind)
	}
	if err := s.validate(); err != nil {
		t.Fatal(err)
	}
	freq, scale := s.InvFreq(g.HeadDim, g.Theta)
	near(t, g.Kind, freq, g.Freq.v, tol)
	nearOne(t, g.Kind+" factor", scale, g.Rescale, tol)
}

type goldenNorm struct {
	Eps float64 `json:"eps"`
	X   numbers `json:"x"`
	W   numbers `json:"weight"`
	Y   numbers `json:"y"`
	DY  numbers `json:"dy"`
	DX  numbers `json:"dx"`
	DW  numbers `json:"dweight"`
}

func checkRMS[T gemm.Float](t *testing.T, g goldenNorm, tol tolerance) {
	t.Helper()
	x, w, dy := to[T](g.X.v), to[T](g.W.v), to[T](g.DY.v)
	n := len(w)
	y, dx, dw := make([]T, len(x)), make([]T, len(x)), make([]T, n)
	for i := 0; i < len(x); i += n {
		r := vec.RMSNorm(y[i:i+n], x[i:i+n], w, g.Eps)
		vec.RMSNormGrad(dx[i:i+n], dw, dy[i:i+n], x[i:i+n], w, r)
	}
	near(t, "y", y, g.Y.v, tol)
	near(t, "dx", dx, g.DX.v, tol)
	near(t, "dw", dw, g.DW.v, tol)
}

func checkLayerNorm[T gemm.Float](t *testing.T, g goldenNorm, tol tolerance) {
	t.Helper()
	x, dy := to[T](g.X.v), to[T](g.DY.v)
	n := g.X.last()
	y, dx := make([]T, len(x)), make([]T, len(x))
	for i := 0; i < len(x); i += n {
		inv := vec.LayerNorm(y[i:i+n], x[i:i+n], g.Eps)
		vec.LayerNormGrad(dx[i:i+n], dy[i:i+n], y[i:i+n], inv)
	}
	near(t, "y", y, g.Y.v, tol)
	near(t, "dx", dx, g.DX.v, tol)
}

type goldenSwiGLU struct {
	Gate  numbers `json:"gate"`
	Up    numbers `json:"up"`
	Y     numbers `json:"y"`
	DY    numbers `json:"dy"`
	DGate numbers `json:"dgate"`
	DUp   numbers `json:"dup"`
}

func checkSwiGLU[T gemm.Float](t *testing.T, g goldenSwiGLU, tol tolerance) {
	t.Helper()
	gate, up, dy := to[T](g.Gate.v), to[T](g.Up.v), to[T](g.DY.v)
	y := make([]T, len(gate))
	vec.SwiGLU(y, gate, up)
	near(t, "y", y, g.Y.v, tol)
	vec.SwiGLUGrad(gate, up, gate, up, dy)
	near(t, "dgate", gate, g.DGate.v, tol)
	near(t, "dup", up, g.DUp.v, tol)
}

type goldenMLP struct {
	X    numbers `json:"x"`
	Gate numbers `json:"w1_gate"`
	Up   numbers `json:"w3_up"`
	Down numbers `json:"w2_down"`
	Y    numbers `json:"y"`
	DY   numbers `json:"dy"`
	DX   numbers `json:"dx"`
	DW1  numbers `json:"dw1"`
	DW3  numbers `json:"dw3"`
	DW2  numbers `json:"dw2"`
}

// checkMLP runs the steps of a block's MLP.
func checkMLP[T gemm.Float](t *testing.T, g goldenMLP, tol tolerance) {
	t.Helper()
	d, hidden := g.X.last(), g.Gate.shape[0]
	n := len(g.X.v) / d
	eng := gemm.New(1)
	defer eng.Close()
	m := &Model[T]{cfg: Config{DModel: d, HiddenSize: hidden, NormPlace: PreNorm}, eng: eng}
	p := newPass(m)
	p.w = &work[T]{rows: 1, seq: n, groups: []int{0}}
	m.body.start(Share{Rows: 1, Last: 1}, true)
	m.body.next(0, 1, true)
	gateUp := tensor[T]{value: gemm.MatrixOf(2*hidden, d, to[T](append(append([]float64{}, g.Gate.v...), g.Up.v...))), grad: gemm.NewMatrix[T](2*hidden, d)}
	down := tensor[T]{value: gemm.MatrixOf(d, hidden, to[T](g.Down.v)), grad: gemm.NewMatrix[T](d, hidden)}
	x, dy := to[T](g.X.v), to[T](g.DY.v)
	gu, act, y := make([]T, 2*n*hidden), make([]T, n*hidden), make([]T, n*d)
	p.linear(gu, x, gateUp.value, 0)
	p.swiglu = swigluTask[T]{hidden: hidden, n: n, gu: gu, act: act}
	p.rows(&p.swiglu)
	p.linear(y, act, down.value, 0)
	near(t, "mlp y", y, g.Y.v, tol)

	dact, dx := make([]T, n*hidden), make([]T, n*d)
	p.linearGrad(dact, dy, act, down)
	p.swigluBack = swigluBackTask[T]{hidden: hidden, n: n, gu: gu, dact: dact}
	p.rows(&p.swigluBack)
	p.linearGrad(dx, gu, x, gateUp)
	near(t, "mlp dx", dx, g.DX.v, tol)
	near(t, "mlp dw1", gateUp.grad.Data[:hidden*d], g.DW1.v, tol)
	near(t, "mlp dw3", gateUp.grad.Data[hidden*d:], g.DW3.v, tol)
	near(t, "mlp dw2", down.grad.Data, g.DW2.v, tol)
}

// goldenCount is one model of param_counts*.
type goldenCount struct {
	DModel       int    `json:"d_model"`
	Layers       int    `json:"n_layers"`
	Heads        int    `json:"n_heads"`
	KVHeads      int    `json:"n_kv_heads"`
	HeadDim      int    `json:"head_dim"`
	Hidden       int    `json:"mlp_hidden"`
	Vocab        int    `json:"vocab_rows"`
	Tied         bool   `json:"tied"`
	Norms        string `json:"norms"`
	PerBlock     int64  `json:"params_per_block"`
	Total        int64  `json:"total_params"`
	NonEmbedding int64  `json:"non_embedding_params"`
}

func (g goldenCount) model(t *testing.T) Config {
	c := Config{
		Arch: OLMo2, DModel: g.DModel, NLayers: g.Layers, NHeads: g.Heads, NKVHeads: g.KVHeads, HeadDim: g.HeadDim,
		HiddenSize: g.Hidden, VocabSize: g.Vocab, TieWordEmbeddings: g.Tied,
	}
	switch g.Norms {
	case "none":
		c.Arch = OLMo1
	case "rms":
		c.Arch, c.Norm = OLMo1, RMSNorm
	case "rms_qk":
	default:
		t.Fatalf("unknown norms %q", g.Norms)
	}
	return c
}

func TestGoldenParamCounts(t *testing.T) {
	golden(t, "param_counts*", func(t *testing.T, data []byte) {
		var f struct {
			Models map[string]goldenCount `json:"models"`
		}
		decode(t, data, &f)
		if len(f.Models) == 0 {
			t.Fatal("no models")
		}
		for name, g := range f.Models {
			checkCount(t, name, g)
		}
	})
}

func checkCount(t *testing.T, name string, g goldenCount) {
	t.Helper()
	c := g.model(t)
	if err := c.Validate(); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	total, rest := c.ParamCount()
	if total != g.Total || rest != g.NonEmbedding {
		t.Errorf("%s: %d parameters, %d without embeddings; want %d, %d", name, total, rest, g.Total, g.NonEmbedding)
	}
	var block int64
	for _, s := range c.Shapes() {
		if s.Layer == 0 {
			block += s.Len()
		}
	}
	if block != g.PerBlock {
		t.Errorf("%s: %d parameters in a block, want %d", name, block, g.PerBlock)
	}
}
