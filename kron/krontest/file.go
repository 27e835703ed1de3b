package krontest

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/asteria-runtime/asteria/kron"
)

// file is one golden file; fields of other kinds of file stay zero.
type file struct {
	Kind      string                     `json:"kind"`
	Tolerance map[string]json.RawMessage `json:"tolerance"`
	Cases     []testCase                 `json:"cases"`
}

// testCase is one recorded run. Calls and steps are 1-based in the file.
type testCase struct {
	Name        string      `json:"name"`
	Optimizer   string      `json:"optimizer"`
	CompareMode string      `json:"compare_mode"`
	Settings    settings    `json:"settings"`
	Shape       []int       `json:"shape"`
	WorkShape   []int       `json:"work_shape"`
	MergedShape []int       `json:"merged_shape"`
	BlockShapes [][]int     `json:"block_shapes"`
	Param0      []float64   `json:"param0"`
	Grads       [][]float64 `json:"grads"`

	AfterCall [][]float64 `json:"params_after_call"`
	AfterStep [][]float64 `json:"params_after_step"`
	Tolerance float64     `json:"tolerance_float64_max_abs"`

	Refreshes []struct {
		Call int         `json:"call"`
		Q    [][]float64 `json:"Q"`
	} `json:"refreshes"`
	QAfter []struct {
		Step int         `json:"step"`
		Q    [][]float64 `json:"Q"`
	} `json:"Q_after_refresh"`
	Roots []struct {
		Step   int           `json:"step"`
		Blocks [][][]float64 `json:"blocks"`
	} `json:"inverse_roots_after_refresh"`
	RefreshSteps []int         `json:"refresh_steps"`
	Factors      [][][]float64 `json:"GG_after_call"`
	Gains        [][][]float64 `json:"eigen_sqrt_inv_after_call"`

	InitialQ   [][]float64                `json:"initial_Q_injected"`
	DelayCalls int                        `json:"delay_calls"`
	DelaySteps int                        `json:"delay_steps"`
	Final      map[string]json.RawMessage `json:"final_state"`
}

// settings are the options of all references together; pointers tell an absent
// key, which means the reference's default, from a zero.
type settings struct {
	LR          *float64    `json:"lr"`
	Betas       *[2]float64 `json:"betas"`
	Beta3       *float64    `json:"beta3"`
	ShampooBeta *float64    `json:"shampoo_beta"`
	Eps         *float64    `json:"eps"`
	Epsilon     *float64    `json:"epsilon"`
	WeightDecay *float64    `json:"weight_decay"`
	DecayType   string      `json:"weight_decay_type"`
	PeakLR      *float64    `json:"peak_lr"`
	Frequency   *int64      `json:"precondition_frequency"`
	Start       *int64      `json:"start_preconditioning_step"`

	MaxPrecondDim    *int                       `json:"max_precond_dim"`
	MaxBlockDim      *int                       `json:"max_preconditioner_dim"`
	Target           any                        `json:"target_parameter_dimensionality"`
	MergeDims        bool                       `json:"merge_dims"`
	Precondition1D   bool                       `json:"precondition_1d"`
	NormalizeGrads   bool                       `json:"normalize_grads"`
	CorrectBias      *bool                      `json:"correct_bias"`
	UseBiasCorrect   *bool                      `json:"use_bias_correction"`
	Variant          string                     `json:"variant"`
	Amortized        string                     `json:"amortized"`
	UseTraceScaling  bool                       `json:"use_trace_scaling"`
	UsingKLSOAP      bool                       `json:"using_klsoap"`
	UsingDamping     bool                       `json:"using_damping"`
	InitFactor       *float64                   `json:"init_factor"`
	UsingClamping    *bool                      `json:"using_clamping"`
	MaxClamp         *float64                   `json:"max_clamp_value"`
	Grafting         *grafting                  `json:"grafting"`
	ExponentOverride map[string]json.RawMessage `json:"inverse_exponent_override"`
}

type grafting struct {
	Type  string   `json:"type"`
	Beta2 *float64 `json:"beta2"`
	Eps   *float64 `json:"eps"`
}

func readFile(path string) (*file, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f := new(file)
	if err := json.Unmarshal(raw, f); err != nil {
		return nil, fmt.Errorf("krontest: %s: %w", path, err)
	}
	return f, nil
}

// number returns f.Tolerance[key] when it is a number.
func (f *file) number(key string) (float64, bool) {
	var v float64
	err := json.Unmarshal(f.Tolerance[key], &v)
	return v, err == nil && len(f.Tolerance[key]) > 0
}

// method tells the optimizer of c from its file's kind and its settings.
func (f *file) method(c *testCase) (kron.Method, error) {
	kind := or(c.Optimizer, f.Kind)
	switch {
	case kind == "soap":
		return kron.SOAP, nil
	case kind == "soap_facebook":
		return kron.EigenShampoo, nil
	case kind == "shampoo", kind == "klshampoo_facebook":
		return kron.Shampoo, nil
	case kind == "klsoap", c.Settings.UsingKLSOAP:
		return kron.KLSOAP, nil
	case kind == "klshampoo":
		return kron.KLShampoo, nil
	}
	return 0, fmt.Errorf("krontest: unknown kind of optimizer %q", kind)
}

// defaults are what an absent key means, per reference.
type defaults struct {
	lr, decay, eps float64
	betas          [2]float64
	every          int64
}

// defaultsOf returns the defaults of the reference that method m is compared
// with: nikhilvyas/SOAP, yorkerlin/KL-Methods, facebookresearch/optimizers.
func defaultsOf(m kron.Method) defaults {
	switch m {
	case kron.SOAP:
		return defaults{lr: 3e-3, decay: 0.01, eps: 1e-8, betas: [2]float64{0.95, 0.95}, every: 10}
	case kron.KLShampoo, kron.KLSOAP:
		return defaults{lr: 1e-4, decay: 0.01, eps: 1e-8, betas: [2]float64{0.9, 0.98}, every: 10}
	}
	return defaults{lr: 1e-2, eps: 1e-12, betas: [2]float64{0.9, 1}, every: 1}
}

// lr returns the case's learning rate.
func (c *testCase) lr(m kron.Method) float64 { return deref(c.Settings.LR, defaultsOf(m).lr) }

// options translates c's settings.
func (c *testCase) options(m kron.Method) (kron.Options, error) {
	s, d := &c.Settings, defaultsOf(m)
	o := kron.Options{
		Method:      m,
		Betas:       deref(s.Betas, d.betas),
		FactorBeta:  beta(s.ShampooBeta),
		Beta3:       beta(s.Beta3),
		WeightDecay: deref(s.WeightDecay, d.decay),
		PeakLR:      deref(s.PeakLR, c.lr(m)),
		Every:       deref(s.Frequency, d.every),
		Start:       max(0, deref(s.Start, 0)),
		MaxDim:      deref(s.MaxPrecondDim, 10000),
		UnitFactors: !kl(m), // KL-Methods squeezes, the others keep 1×1 factors

		NoBiasCorrection: !deref(s.CorrectBias, true) || !deref(s.UseBiasCorrect, true),
		NormalizeUpdate:  s.NormalizeGrads,
		Precondition1D:   s.Precondition1D,
		TraceScaling:     s.UseTraceScaling,
		InitFactor:       deref(s.InitFactor, 0),
		MaxClamp:         deref(s.MaxClamp, 0),
		NoClamp:          !deref(s.UsingClamping, true),
		Damping:          s.UsingDamping,
		MaxFailures:      -1,
	}
	o.Epsilon = zeroAsNegative(deref(s.Eps, deref(s.Epsilon, d.eps)))
	if m == kron.SOAP || kl(m) {
		return o, nil
	}
	return c.facebook(o)
}

func kl(m kron.Method) bool { return m == kron.KLShampoo || m == kron.KLSOAP }

// facebook adds the options that only facebookresearch/optimizers has.
func (c *testCase) facebook(o kron.Options) (kron.Options, error) {
	s := &c.Settings
	o.BeforeFirst = kron.FirstIdentity
	o.WhitenGram = len(s.Variant) >= 2 && s.Variant[:2] == "kl"
	decays := map[string]kron.Decay{"": kron.Decoupled, "DECOUPLED": kron.Decoupled, "L2": kron.L2, "CORRECTED": kron.Corrected, "INDEPENDENT": kron.Independent}
	var ok bool
	if o.Decay, ok = decays[strings.ToUpper(s.DecayType)]; !ok {
		return o, fmt.Errorf("krontest: weight_decay_type %q", s.DecayType)
	}
	if s.Amortized == "eigh" {
		o.Basis = kron.RefreshEigh
	} else if s.Amortized != "" {
		_, err := fmt.Sscanf(s.Amortized, "QR algorithm, max_iterations=%d, tolerance=%g", &o.QRIterations, &o.QRTolerance)
		if err != nil {
			return o, fmt.Errorf("krontest: amortized %q: %w", s.Amortized, err)
		}
	}
	if err := c.graft(&o); err != nil {
		return o, err
	}
	return o, exponents(s.ExponentOverride, &o.Exponents)
}

func (c *testCase) graft(o *kron.Options) error {
	g := c.Settings.Grafting
	if g == nil {
		o.Graft.Type = kron.GraftNone
		return nil
	}
	types := map[string]kron.GraftType{"adam": kron.GraftAdam, "sgd": kron.GraftSGD, "rmsprop": kron.GraftRMSprop, "adagrad": kron.GraftAdagrad}
	var ok bool
	if o.Graft.Type, ok = types[strings.ToLower(g.Type)]; !ok {
		return fmt.Errorf("krontest: grafting type %q", g.Type)
	}
	o.Graft.Beta = deref(g.Beta2, 0.999)
	o.Graft.Epsilon = zeroAsNegative(deref(g.Eps, 1e-8))
	return nil
}

// exponents reads {order: exponent} or {order: {mode: exponent}}; 0 switches a
// mode off, which kron spells as a negative exponent.
func exponents(override map[string]json.RawMessage, dst *[kron.MaxOrder + 1][kron.MaxOrder]float64) error {
	for key, raw := range override {
		var order int
		if _, err := fmt.Sscan(key, &order); err != nil || order > kron.MaxOrder {
			return fmt.Errorf("krontest: exponent for order %q", key)
		}
		var all float64
		perMode := map[int]float64{}
		if json.Unmarshal(raw, &all) == nil {
			for k := range kron.MaxOrder {
				perMode[k] = all
			}
		} else if err := json.Unmarshal(raw, &perMode); err != nil {
			return fmt.Errorf("krontest: exponents of order %d: %w", order, err)
		}
		for k, v := range perMode {
			dst[order][k] = zeroAsNegative(v)
		}
	}
	return nil
}

// tiles cuts the parameter as the reference does.
func (c *testCase) tiles(m kron.Method) ([]kron.Tile, error) {
	t := kron.Tiling{}
	switch m {
	case kron.SOAP:
		if c.Settings.MergeDims {
			t = kron.Tiling{Merge: kron.MergeLeft, Limit: deref(c.Settings.MaxPrecondDim, 10000)}
		}
	case kron.Shampoo, kron.EigenShampoo:
		t = kron.Tiling{Merge: kron.MergeRight, Split: true, Target: target(c.Settings.Target), Limit: deref(c.Settings.MaxBlockDim, 1024)}
	}
	return kron.Partition(c.Shape, t)
}

// target reads an order, or "inf" for no merging; the reference's default is 1.
func target(v any) int {
	switch v := v.(type) {
	case float64:
		return int(v)
	case string:
		return math.MaxInt
	}
	return 1
}

func deref[V any](p *V, def V) V {
	if p == nil {
		return def
	}
	return *p
}

// beta maps an absent key and the references' -1 to kron's 0 for "default", and
// a zero to a negative number.
func beta(p *float64) float64 {
	v := deref(p, -1)
	if v < 0 {
		return 0
	}
	return zeroAsNegative(v)
}

func zeroAsNegative(v float64) float64 {
	if v == 0 {
		return -1
	}
	return v
}

func or[V comparable](v, def V) V {
	var zero V
	if v == zero {
		return def
	}
	return v
}
