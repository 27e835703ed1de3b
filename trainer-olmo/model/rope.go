package model

import (
	"errors"
	"fmt"
	"math"

	"github.com/asteria-runtime/asteria/gemm"
)

// RopeScaling stretches rotary frequencies to contexts longer than those of
// training. It applies to layers with full attention only.
type RopeScaling struct {
	// Kind is "" or "none", "yarn", "linear" (position interpolation), "abf" (a
	// new base) or "llama3" (stepwise).
	Kind string `yaml:"kind"`
	// Factor is the ratio of the new to the old context (yarn, linear, llama3).
	Factor float64 `yaml:"factor"`
	// BetaFast and BetaSlow are the rotations over the old context above which a
	// frequency is kept and below which it is divided by Factor (yarn). Defaults
	// 32 and 1.
	BetaFast float64 `yaml:"beta_fast"`
	BetaSlow float64 `yaml:"beta_slow"`
	// OldContextLen is the context of training in tokens (yarn, llama3). Default
	// 8192.
	OldContextLen int `yaml:"old_context_len"`
	// AttentionFactor multiplies cos and sin (yarn). Default 0.1*ln(Factor)+1.
	AttentionFactor float64 `yaml:"attention_factor"`
	// NewTheta replaces the base (abf).
	NewTheta float64 `yaml:"new_theta"`
	// LowFreqProportion and HighFreqProportion bound the band in which llama3
	// interpolates: wavelengths from OldContextLen*HighFreqProportion to
	// OldContextLen*(1-LowFreqProportion). Defaults 0 and 0.25.
	LowFreqProportion  float64 `yaml:"low_freq_proportion"`
	HighFreqProportion float64 `yaml:"high_freq_proportion"`
}

func (s RopeScaling) resolved() RopeScaling {
	switch s.Kind {
	case "yarn":
		s.BetaFast = or(s.BetaFast, 32)
		s.BetaSlow = or(s.BetaSlow, 1)
		s.OldContextLen = or(s.OldContextLen, 8192)
		if s.Factor > 0 {
			s.AttentionFactor = or(s.AttentionFactor, 0.1*math.Log(s.Factor)+1)
		}
	case "llama3":
		s.OldContextLen = or(s.OldContextLen, 8192)
		s.HighFreqProportion = or(s.HighFreqProportion, 0.25)
	case "none":
		return RopeScaling{}
	}
	return s
}

func (s RopeScaling) validate() error {
	var errs []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("model: rope_scaling."+format, args...))
		}
	}
	switch s.Kind {
	case "":
	case "yarn", "linear", "llama3":
		fault(!(s.Factor >= 1), "factor %g must be at least 1", s.Factor)
	case "abf":
		fault(!(s.NewTheta > 0), "new_theta %g must be positive", s.NewTheta)
	default:
		fault(true, "kind %q is not yarn, linear, abf or llama3", s.Kind)
	}
	fault(s.Kind == "yarn" && !(s.BetaSlow > 0 && s.BetaFast >= s.BetaSlow), "beta_fast %g and beta_slow %g must be positive and in this order", s.BetaFast, s.BetaSlow)
	fault(s.OldContextLen < 0, "old_context_len %d is negative", s.OldContextLen)
	fault(s.Kind == "llama3" && !(s.LowFreqProportion >= 0 && s.HighFreqProportion > 0 && s.HighFreqProportion < 1-s.LowFreqProportion),
		"low_freq_proportion %g and high_freq_proportion %g leave no band", s.LowFreqProportion, s.HighFreqProportion)
	return errors.Join(errs...)
}

// InvFreq returns the headDim/2 angular frequencies for a base theta, and the
// factor by which cos and sin are multiplied.
func (s RopeScaling) InvFreq(headDim int, theta float64) (freq []float64, scale float64) {
	s = s.resolved()
	if s.Kind == "abf" {
		theta = s.NewTheta
	}
	freq = make([]float64, headDim/2)
	for j := range freq {
		freq[j] = math.Pow(theta, -2*float64(j)/float64(headDim))
	}
	switch s.Kind {
	case "linear":
		for j := range freq {
			freq[j] /= s.Factor
		}
	case "yarn":
		s.yarn(freq, headDim, theta)
		return freq, s.AttentionFactor
	case "llama3":
		s.stepwise(freq)
	}
	return freq, 1
}

// yarn interpolates between freq and freq/Factor by a ramp over the index: the
// index at which a frequency makes n turns over the old context is
// hd*ln(old/(2πn))/(2*ln theta) (Peng et al., arXiv:2309.00071).
func (s RopeScaling) yarn(freq []float64, headDim int, theta float64) {
	index := func(turns float64) float64 {
		return float64(headDim) * math.Log(float64(s.OldContextLen)/(2*math.Pi*turns)) / (2 * math.Log(theta))
	}
	low := max(math.Floor(index(s.BetaFast)), 0)
	high := min(math.Ceil(index(s.BetaSlow)), float64(headDim/2-1))
	for j, f := range freq {
		ramp := (float64(j) - low) / max(high-low, 1e-3)
		ramp = min(max(ramp, 0), 1)
		freq[j] = f/s.Factor*ramp + f*(1-ramp)
	}
}

// stepwise keeps short waves, divides long ones by Factor and interpolates
// between, linear in the reciprocal wavelength (Llama 3.1).
func (s RopeScaling) stepwise(freq []float64) {
	old := float64(s.OldContextLen)
	long, short := old*(1-s.LowFreqProportion), old*s.HighFreqProportion
	for j, f := range freq {
		wave := 2 * math.Pi / f
		switch {
		case wave > long:
			freq[j] = f / s.Factor
		case wave >= short:
			smooth := (old/wave - old/long) / (old/short - old/long)
			freq[j] = (1-smooth)*f/s.Factor + smooth*f
		}
	}
}

// ropeTable holds cos and sin for positions 0..rows-1, rows of half elements.
type ropeTable[T gemm.Float] struct {
	freq     []float64
	scale    float64
	rows     int
	cos, sin []T
}

func newRopeTable[T gemm.Float](s RopeScaling, headDim int, theta float64) *ropeTable[T] {
	freq, scale := s.InvFreq(headDim, theta)
	return &ropeTable[T]{freq: freq, scale: scale}
}

// grow makes room for positions below rows. Angles are computed in float64 and
// rounded once.
func (t *ropeTable[T]) grow(rows int) {
	if rows <= t.rows {
		return
	}
	half := len(t.freq)
	t.cos, t.sin = make([]T, rows*half), make([]T, rows*half)
	for p := range rows {
		for j, f := range t.freq {
			sin, cos := math.Sincos(float64(p) * f)
			t.cos[p*half+j], t.sin[p*half+j] = T(cos*t.scale), T(sin*t.scale)
		}
	}
	t.rows = rows
}

// at returns the tables of one position.
func (t *ropeTable[T]) at(pos int) (cos, sin []T) {
	half := len(t.freq)
	return t.cos[pos*half : (pos+1)*half], t.sin[pos*half : (pos+1)*half]
}
