package train

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/checkpoint"
	"github.com/asteria-runtime/asteria/trainer-olmo/data"
	"github.com/asteria-runtime/asteria/trainer-olmo/model"
	"github.com/asteria-runtime/asteria/trainer-olmo/optim"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// goldenDir is testdata/golden, or the folder that ASTERIA_GOLDEN_OLMO names
// instead.
func goldenDir() string {
	if d := os.Getenv("ASTERIA_GOLDEN_OLMO"); d != "" {
		return d
	}
	return "testdata/golden"
}

// goldenTrajectories runs f on every trajectory whose train section suits it.
func goldenTrajectories(t *testing.T, legacy bool, f func(t *testing.T, g *trajectory)) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(goldenDir(), "*.json"))
	if err != nil || len(all) == 0 {
		t.Fatalf("no golden file in %q (%v)", goldenDir(), err)
	}
	files, _ := filepath.Glob(filepath.Join(goldenDir(), "train_trajectory_*.json"))
	slices.Sort(files)
	ran := false
	for _, file := range files {
		g := readTrajectory(t, file)
		if g.legacy() == legacy {
			ran = true
			t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) { f(t, g) })
		}
	}
	if !ran {
		t.Skipf("%q has no trajectory of this kind (legacy: %v)", goldenDir(), legacy)
	}
}

type trajectory struct {
	dir       string
	Tolerance struct {
		Loss   float64 `json:"float64_abs_loss"`
		Params float64 `json:"float64_abs_params"`
		Loss32 float64 `json:"float32_rel_loss"`
	} `json:"tolerance"`
	Config struct {
		DModel  int     `json:"hidden_size"`
		Layers  int     `json:"num_hidden_layers"`
		Heads   int     `json:"num_attention_heads"`
		KVHeads int     `json:"num_key_value_heads"`
		HeadDim int     `json:"head_dim"`
		Hidden  int     `json:"intermediate_size"`
		Vocab   int     `json:"vocab_size"`
		Theta   float64 `json:"rope_theta"`
		Eps     float64 `json:"norm_eps"`
		Tied    bool    `json:"tie_word_embeddings"`
		Family  string  `json:"family"`
		ClipQKV float64 `json:"clip_qkv"`
		// An OLMo-3 model has both of these.
		Window     int      `json:"sliding_window"`
		LayerTypes []string `json:"layer_types"`
	} `json:"config"`
	Data  trajectoryData `json:"data"`
	Train struct {
		Seed       int64   `json:"data_seed"`
		FirstEpoch int64   `json:"first_epoch"`
		Global     int     `json:"instances_per_global_batch"`
		Micro      int     `json:"microbatch_instances"`
		LGlobal    int     `json:"global_train_batch_size"`
		LMicro     int     `json:"device_train_microbatch_size"`
		Optimizer  string  `json:"optimizer"`
		LR         float64 `json:"lr"`
		Schedule   string  `json:"schedule"`
		MaxNorm    float64 `json:"max_grad_norm"`
		ZLoss      float64 `json:"z_loss_multiplier"`
		DecayNorm  *bool   `json:"decay_norm_and_bias"`
		DecayEmb   bool    `json:"decay_embeddings"`
		Decay      float64 `json:"weight_decay"`
	} `json:"train"`
	Initial json.RawMessage `json:"initial_params"`
	Steps   []struct {
		Step      int64   `json:"step"`
		Epoch     int64   `json:"epoch"`
		Instances []int   `json:"instances"`
		LR        float64 `json:"lr"`
		CE        float64 `json:"ce_loss"`
		Z         float64 `json:"z_loss"`
		Norm      float64 `json:"grad_norm_preclip"`
		LNorm     float64 `json:"total_grad_norm"`
		Coef      float64 `json:"clip_coef"`
	} `json:"steps"`
	State     *trajectoryState `json:"-"` // "state_after_step_N"
	Final     tensors          `json:"final_params"`
	FinalLeg  tensors          `json:"final_state_legacy_names"`
	FinalEval *struct {
		Instances []int   `json:"instances"`
		CE        float64 `json:"ce_mean"`
		PPL       float64 `json:"ppl"`
	} `json:"final_eval"`
	initial tensors
	tokens  []int32
	seq     int
}

// trajectoryState is the state after step Step.
type trajectoryState struct {
	Params     tensors `json:"params"`
	ExpAvg     tensors `json:"exp_avg"`
	ExpAvgSq   tensors `json:"exp_avg_sq"`
	Step       int64   `json:"optimizer_step"`
	Epoch      int64   `json:"epoch"`
	Batches    int64   `json:"batches_processed"`
	TokensSeen int64   `json:"tokens_processed"`
}

type trajectoryData struct {
	See    string  `json:"see"`
	Seq    int     `json:"sequence_length"`
	Tokens []int32 `json:"tokens"`
	DType  string  `json:"dtype"`
	Count  int     `json:"num_instances"`
}

func (g *trajectory) legacy() bool { return g.Train.LGlobal > 0 }

// tensors maps names to flattened numbers.
type tensors map[string][]float64

func (x *tensors) UnmarshalJSON(raw []byte) error {
	var m map[string]any
	if err := json.Unmarshal(raw, &m); err != nil {
		return err
	}
	*x = tensors{}
	for name, v := range m {
		(*x)[name] = flatten(nil, v)
	}
	return nil
}

func flatten(dst []float64, v any) []float64 {
	switch v := v.(type) {
	case float64:
		return append(dst, v)
	case []any:
		for _, e := range v {
			dst = flatten(dst, e)
		}
	}
	return dst
}

func readTrajectory(t *testing.T, file string) *trajectory {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	g := &trajectory{dir: filepath.Dir(file)}
	if err := json.Unmarshal(raw, g); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(raw, &keys); err != nil {
		t.Fatal(err)
	}
	for key, state := range keys {
		if strings.HasPrefix(key, "state_after_step_") {
			if err := json.Unmarshal(state, &g.State); err != nil {
				t.Fatalf("%s: %s: %v", file, key, err)
			}
		}
	}
	g.resolve(t)
	return g
}

// resolve follows the references to another file: "train_trajectory_core.data"
// and "same as train_trajectory_core.initial_params (…)".
func (g *trajectory) resolve(t *testing.T) {
	t.Helper()
	reference := regexp.MustCompile(`(train_trajectory_\w+)\.(data|initial_params)`)
	src := g.Data
	if m := reference.FindStringSubmatch(src.See); m != nil {
		src = readTrajectory(t, filepath.Join(g.dir, m[1]+".json")).Data
	}
	g.Data, g.tokens, g.seq = src, src.Tokens, src.Seq
	var words string
	if json.Unmarshal(g.Initial, &words) == nil {
		m := reference.FindStringSubmatch(words)
		if m == nil {
			t.Fatalf("initial_params is %q", words)
		}
		g.initial = readTrajectory(t, filepath.Join(g.dir, m[1]+".json")).initial
		return
	}
	if err := json.Unmarshal(g.Initial, &g.initial); err != nil {
		t.Fatal(err)
	}
}

// words reads "name=value" and "name value" pairs of a prose description, or
// takes the default.
func words(t *testing.T, text, name string, or float64) float64 {
	t.Helper()
	m := regexp.MustCompile(`\b` + name + `[ =]([0-9.]+(?:e[+-]?[0-9]+)?)`).FindStringSubmatch(text)
	if m == nil {
		return or
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (g *trajectory) modelConfig() model.Config {
	c := g.Config
	m := model.Config{
		Arch: model.Arch(c.Family), DModel: c.DModel, NLayers: c.Layers, NHeads: c.Heads, NKVHeads: c.KVHeads,
		HeadDim: c.HeadDim, HiddenSize: c.Hidden, VocabSize: c.Vocab, RopeTheta: c.Theta, NormEps: c.Eps,
		TieWordEmbeddings: c.Tied, ClipQKV: c.ClipQKV,
	}
	if c.Window > 0 {
		m.SlidingLastLayer = true
		for _, kind := range c.LayerTypes {
			window := model.FullAttention
			if kind == "sliding_attention" {
				window = c.Window
			}
			m.SlidingWindow = append(m.SlidingWindow, window)
		}
	}
	return m
}

// schedule reads the schedule's description.
func (g *trajectory) schedule(t *testing.T) optim.Schedule {
	t.Helper()
	text := g.Train.Schedule
	name, steps := strings.Fields(text)[0], float64(len(g.Steps))
	o := optim.CurveOptions{Legacy: g.legacy()}
	o.Warmup = int64(words(t, text, "t_warmup", words(t, text, "warmup", 0)))
	end := int64(words(t, text, "t_max", words(t, text, "max", steps)))
	if low := words(t, text, "warmup_min_lr", -1); low >= 0 {
		o.WarmupMinLR = &low
	}
	alpha := words(t, text, "alpha_f", 0.1)
	o.AlphaF = &alpha
	curve, err := optim.NewCurve(name, o)
	if err != nil {
		t.Fatal(err)
	}
	return optim.Bound{Curve: curve, Peak: g.Train.LR, End: end}
}

// adamw reads the optimizer's description.
func (g *trajectory) adamw(t *testing.T) optim.AdamWOptions {
	t.Helper()
	o := optim.AdamWOptions{Betas: [2]float64{0.9, 0.95}, Eps: 1e-8, WeightDecay: g.Train.Decay}
	if text := g.Train.Optimizer; text != "" {
		m := regexp.MustCompile(`betas ([0-9.]+)/([0-9.]+)`).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("no betas in %q", text)
		}
		o.Betas[0], _ = strconv.ParseFloat(m[1], 64)
		o.Betas[1], _ = strconv.ParseFloat(m[2], 64)
		o.Eps, o.WeightDecay = words(t, text, "eps", 1e-8), words(t, text, "wd", 0)
		if strings.Contains(text, "embeddings wd 0") {
			o.Decay.NoDecayRoles = append(o.Decay.NoDecayRoles, param.Embedding)
		}
		return o
	}
	if !g.Train.DecayEmb {
		o.Decay.NoDecayRoles = append(o.Decay.NoDecayRoles, param.Embedding)
	}
	if g.Train.DecayNorm != nil && !*g.Train.DecayNorm {
		o.Decay.NoDecayRoles = append(o.Decay.NoDecayRoles, param.Norm)
	}
	return o
}

// newGoldenStepper builds what the trainer builds, from the file.
func newGoldenStepper[T gemm.Float](t *testing.T, g *trajectory, micro int) *stepper[T] {
	t.Helper()
	eng := gemm.New(1)
	t.Cleanup(eng.Close)
	m, err := model.New[T](g.modelConfig(), eng)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	setParams(t, m.Params(), g.initial)
	s := &stepper[T]{
		opts:  stepOptions{legacy: g.legacy(), zLoss: g.Train.ZLoss, microRows: micro, maxNonFinite: 1},
		model: m, params: m.Params(), opt: optim.NewAdamW(m.Params(), g.adamw(t)),
		clip:  optim.NewClipper(m.Params(), optim.ClipOptions{MaxNorm: g.Train.MaxNorm}),
		sched: g.schedule(t),
	}
	if g.legacy() {
		// The multiplier that the legacy trainer uses whatever its file says.
		s.opts.zLoss = 1e-4
	}
	return s
}

func setParams[T gemm.Float](t *testing.T, ps []param.Param[T], x tensors) {
	t.Helper()
	if len(ps) != len(x) {
		t.Fatalf("%d parameters, the file has %d", len(ps), len(x))
	}
	for _, p := range ps {
		v, ok := x[p.Name]
		if !ok || len(v) != len(p.Value) {
			t.Fatalf("parameter %s: the file has %d values, want %d", p.Name, len(v), len(p.Value))
		}
		for i := range v {
			p.Value[i] = T(v[i])
		}
	}
}

// load serves the trajectory's batches as the trainer reads them: from a token
// file, in the order of the seed.
func (g *trajectory) load(t *testing.T, instances int) func(k int64) *data.Batch {
	t.Helper()
	file, raw := filepath.Join(t.TempDir(), "tokens.npy"), []byte(nil)
	for _, id := range g.tokens {
		raw = binary.LittleEndian.AppendUint16(raw, uint16(id))
	}
	if err := os.WriteFile(file, raw, 0o666); err != nil {
		t.Fatal(err)
	}
	c := data.Config{
		Paths: []string{file}, DType: "uint16", SequenceLength: g.seq, Seed: g.Train.Seed, VocabSize: g.Config.Vocab,
		BatchInstances: instances, EOS: new(int), Order: data.OrderCore,
	}
	if g.legacy() {
		c.Order = data.OrderLegacy
	}
	l, err := data.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return func(k int64) *data.Batch {
		var b data.Batch
		if err := l.Batch(k, &b); err != nil {
			t.Fatal(err)
		}
		return &b
	}
}

// checkOrder compares the batches of the loader with those of the file.
func (g *trajectory) checkOrder(t *testing.T, instances int) {
	t.Helper()
	batch := g.load(t, instances)
	for _, w := range g.Steps {
		got, want := batch(w.Step-1), g.batch(w.Instances, w.Epoch)
		if got.Epoch != w.Epoch || !slices.Equal(got.Tokens, want.Tokens) {
			t.Fatalf("step %d: the loader serves instances %v of epoch %d, want %v of %d", w.Step, got.Instances, got.Epoch, w.Instances, w.Epoch)
		}
	}
}

// batch gathers instances of the token file.
func (g *trajectory) batch(instances []int, epoch int64) *data.Batch {
	b := &data.Batch{Rows: len(instances), Seq: g.seq, Epoch: epoch}
	for _, i := range instances {
		b.Tokens = append(b.Tokens, g.tokens[i*g.seq:(i+1)*g.seq]...)
	}
	return b
}

func near(t *testing.T, what string, got, want, tol float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tol) {
		t.Errorf("%s is %.17g, want %.17g (off by %.3g, allowed %.3g)", what, got, want, got-want, tol)
	}
}

func compareParams[T gemm.Float](t *testing.T, what string, ps []param.Param[T], want tensors, tol float64) {
	t.Helper()
	for _, p := range ps {
		w, ok := want[p.Name]
		if !ok {
			t.Errorf("%s: the file lacks %s", what, p.Name)
			continue
		}
		for i := range w {
			if d := math.Abs(float64(p.Value[i]) - w[i]); !(d <= tol) {
				t.Errorf("%s: %s[%d] is %.17g, want %.17g (off by %.3g)", what, p.Name, i, float64(p.Value[i]), w[i], d)
				break
			}
		}
	}
}

func TestGoldenTrainTrajectoryCore(t *testing.T) {
	goldenTrajectories(t, false, func(t *testing.T, g *trajectory) {
		g.checkOrder(t, g.Train.Global)
		runCoreTrajectory(t, g, g.Train.Micro)
		t.Run("whole batch at once", func(t *testing.T) { runCoreTrajectory(t, g, g.Train.Global) })
		t.Run("resume", func(t *testing.T) { resumeTrajectory(t, g) })
		t.Run("float32", func(t *testing.T) { runFloat32Trajectory(t, g) })
	})
}

func runCoreTrajectory(t *testing.T, g *trajectory, micro int) {
	s := newGoldenStepper[float64](t, g, micro)
	tol := g.Tolerance
	for _, w := range g.Steps {
		st, err := s.step(g.batch(w.Instances, w.Epoch))
		if err != nil {
			t.Fatal(err)
		}
		at := fmt.Sprintf("step %d: ", w.Step)
		near(t, at+"lr", st.LR, w.LR, 1e-15)
		near(t, at+"CE loss", st.CE, w.CE, tol.Loss)
		near(t, at+"Z loss", st.Z*s.opts.zLoss, w.Z, tol.Loss)
		near(t, at+"grad norm", st.GradNorm, w.Norm, tol.Params)
		near(t, at+"clip coefficient", st.ClipCoef, w.Coef, tol.Params)
		if g.State != nil && w.Step == g.State.Step {
			compareState(t, g, s)
		}
	}
	compareParams(t, "final", s.params, g.Final, tol.Params)
	if e := g.FinalEval; e != nil {
		ev := newEvaluation(false)
		if err := ev.add(s.model, g.batch(e.Instances, 0)); err != nil {
			t.Fatal(err)
		}
		near(t, "final eval CE", ev.result().CE, e.CE, tol.Params)
		near(t, "final eval PPL", ev.result().PPL, e.PPL, e.PPL*tol.Params)
	}
}

// compareState checks weights, moments and position against the recorded state.
func compareState(t *testing.T, g *trajectory, s *stepper[float64]) {
	t.Helper()
	compareParams(t, "state", s.params, g.State.Params, g.Tolerance.Params)
	for _, sec := range s.opt.Sections() {
		name, isAvg := strings.CutSuffix(strings.TrimPrefix(sec.Name, "adamw/"), "/exp_avg")
		want := g.State.ExpAvg
		if !isAvg {
			var isSq bool
			if name, isSq = strings.CutSuffix(name, "/exp_avg_sq"); !isSq {
				continue
			}
			want = g.State.ExpAvgSq
		}
		for i, w := range want[name] {
			if math.Abs(sec.F64[i]-w) > g.Tolerance.Params {
				t.Errorf("%s[%d] is %v, want %v", sec.Name, i, sec.F64[i], w)
				break
			}
		}
	}
	want := checkpoint.Position{Step: g.State.Step, Batch: g.State.Batches, Tokens: g.State.TokensSeen, Epoch: g.State.Epoch, MicroBatches: s.pos.MicroBatches}
	if s.pos != want {
		t.Errorf("position %+v, want %+v", s.pos, want)
	}
}

// resumeTrajectory saves at step 10, restores into a new run, and wants the bits
// of the run that was not stopped.
func resumeTrajectory(t *testing.T, g *trajectory) {
	stop := 10
	if g.State != nil {
		stop = int(g.State.Step)
	}
	whole, first, second := newGoldenStepper[float64](t, g, g.Train.Micro), newGoldenStepper[float64](t, g, g.Train.Micro), newGoldenStepper[float64](t, g, g.Train.Micro)
	run := func(s *stepper[float64], lo, hi int) {
		for _, w := range g.Steps[lo:hi] {
			if _, err := s.step(g.batch(w.Instances, w.Epoch)); err != nil {
				t.Fatal(err)
			}
		}
	}
	run(whole, 0, len(g.Steps))
	run(first, 0, min(stop, len(g.Steps)))
	store, err := checkpoint.Open(t.TempDir(), checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Save(first.state()); err != nil {
		t.Fatal(err)
	}
	c, err := store.Latest()
	if err != nil {
		t.Fatal(err)
	}
	if err := second.restore(c); err != nil {
		t.Fatal(err)
	}
	run(second, min(stop, len(g.Steps)), len(g.Steps))
	if a, b := checkpoint.DigestState(whole.state()), checkpoint.DigestState(second.state()); a != b {
		t.Errorf("after a resume\n%v\nwithout\n%v", b, a)
	}
}

// runFloat32Trajectory follows the losses in the precision that trains.
func runFloat32Trajectory(t *testing.T, g *trajectory) {
	tol := g.Tolerance.Loss32
	if tol == 0 {
		t.Skip("the file states no tolerance for float32")
	}
	s := newGoldenStepper[float32](t, g, g.Train.Micro)
	for _, w := range g.Steps {
		st, err := s.step(g.batch(w.Instances, w.Epoch))
		if err != nil {
			t.Fatal(err)
		}
		near(t, fmt.Sprintf("step %d: CE loss", w.Step), st.CE, w.CE, tol*w.CE)
	}
}

func TestGoldenTrainTrajectoryLegacy(t *testing.T) {
	goldenTrajectories(t, true, func(t *testing.T, g *trajectory) {
		g.checkOrder(t, g.Train.LGlobal)
		s := newGoldenStepper[float64](t, g, g.Train.LMicro)
		tol := g.Tolerance
		for _, w := range g.Steps {
			st, err := s.step(g.batch(w.Instances, w.Epoch))
			if err != nil {
				t.Fatal(err)
			}
			at := fmt.Sprintf("step %d: ", w.Step)
			near(t, at+"lr", st.LR, w.LR, 1e-15)
			near(t, at+"CE loss", st.CE, w.CE, tol.Loss)
			near(t, at+"Z loss", st.Z*s.opts.zLoss, w.Z, tol.Loss)
			near(t, at+"grad norm", st.GradNorm, w.LNorm, tol.Params)
		}
		compareParams(t, "final", s.params, fromLegacyNames(t, g), tol.Params)
		t.Run("resume", func(t *testing.T) {
			g.Train.Micro = g.Train.LMicro
			resumeTrajectory(t, g)
		})
	})
}

// fromLegacyNames splits the fused tensors of the legacy names: att_proj is
// [q; k; v], ff_proj is [up; gate].
func fromLegacyNames(t *testing.T, g *trajectory) tensors {
	t.Helper()
	c, out := g.Config, tensors{}
	q, k, half := c.Heads*c.HeadDim*c.DModel, c.KVHeads*c.HeadDim*c.DModel, c.Hidden*c.DModel
	for name, v := range g.FinalLeg {
		parts := strings.Split(name, ".")
		layer := ""
		if parts[1] == "blocks" {
			layer = "model.layers." + parts[2] + "."
			parts = parts[2:]
		}
		switch parts[1] {
		case "wte":
			out["model.embed_tokens.weight"] = v
		case "ln_f":
			out["model.norm.weight"] = v
		case "att_proj":
			out[layer+"self_attn.q_proj.weight"] = v[:q]
			out[layer+"self_attn.k_proj.weight"] = v[q : q+k]
			out[layer+"self_attn.v_proj.weight"] = v[q+k:]
		case "attn_out":
			out[layer+"self_attn.o_proj.weight"] = v
		case "q_norm", "k_norm":
			out[layer+"self_attn."+parts[1]+".weight"] = v
		case "ff_proj":
			out[layer+"mlp.up_proj.weight"] = v[:half]
			out[layer+"mlp.gate_proj.weight"] = v[half:]
		case "ff_out":
			if layer == "" {
				out["lm_head.weight"] = v
			} else {
				out[layer+"mlp.down_proj.weight"] = v
			}
		case "attn_norm":
			out[layer+"post_attention_layernorm.weight"] = v
		case "ff_norm":
			out[layer+"post_feedforward_layernorm.weight"] = v
		default:
			t.Fatalf("unknown legacy name %q", name)
		}
	}
	return out
}
