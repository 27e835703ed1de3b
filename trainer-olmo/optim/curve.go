package optim

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// CurveOptions are the arguments of a schedule as configuration files have them.
// A nil pointer means the default of the framework.
type CurveOptions struct {
	// Legacy selects the defaults of OLMo's first trainer: the warm-up starts at
	// a tenth of the peak, the inverse square root falls to zero.
	Legacy bool `json:"-"`
	// Warmup is the length of the warm-up in units. Default 0.
	Warmup int64 `json:"warmup"`
	// WarmupFraction is its length as a fraction of the run; it wins over Warmup.
	WarmupFraction float64 `json:"warmup_fraction"`
	// WarmupMinLR is the learning rate at position 0.
	WarmupMinLR *float64 `json:"warmup_min_lr"`
	// AlphaF is the final fraction of the peak. Default 0.1.
	AlphaF *float64 `json:"alpha_f"`
	// TMax is where the curve ends, in units; 0 is the end of the run.
	TMax int64 `json:"t_max"`
	// Decay is the length of the final decay in units.
	Decay *int64 `json:"decay"`
	// DecayFraction is its length as a fraction of the run, when Decay is nil.
	// Default 0.1.
	DecayFraction *float64 `json:"decay_fraction"`
	// DecayMinLR is the learning rate at the end of the decay. Default 0.
	DecayMinLR float64 `json:"decay_min_lr"`
	// B is the exponent of the power law. Default -0.51.
	B *float64 `json:"b"`
	// Periods are the lengths of the periods of wsds.
	Periods []int64 `json:"period_lengths"`
	// LRMin is the start of the exponential curve. Default 1e-9.
	LRMin float64 `json:"lr_min"`
}

// Validate reports all faults together.
func (o CurveOptions) Validate() error {
	var errs []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("optim: "+format, args...))
		}
	}
	unit := func(name string, v float64) {
		fault(!(v >= 0 && v <= 1), "%s is %v, allowed is [0, 1]", name, v)
	}
	finite := func(name string, v float64) {
		fault(!(v >= 0) || math.IsInf(v, 0), "%s is %v, allowed are finite values >= 0", name, v)
	}
	fault(o.Warmup < 0, "warm-up is %d, allowed is >= 0", o.Warmup)
	fault(o.TMax < 0, "t_max is %d, allowed is >= 0", o.TMax)
	fault(o.Decay != nil && *o.Decay < 0, "decay is %d, allowed is >= 0", deref(o.Decay, 0))
	unit("warm-up fraction", o.WarmupFraction)
	unit("decay fraction", deref(o.DecayFraction, 0))
	finite("warm-up min lr", deref(o.WarmupMinLR, 0))
	finite("alpha_f", deref(o.AlphaF, 0))
	finite("decay min lr", o.DecayMinLR)
	finite("lr_min", o.LRMin)
	for i, p := range o.Periods {
		fault(p <= 0, "period %d is %d, allowed is > 0", i, p)
	}
	return errors.Join(errs...)
}

func deref[T any](p *T, or T) T {
	if p == nil {
		return or
	}
	return *p
}

func (o CurveOptions) warmup() Warmup {
	w := Warmup{Span: Span{Count: o.Warmup, Fraction: o.WarmupFraction}, MinLR: deref(o.WarmupMinLR, 0)}
	if o.Legacy && o.WarmupMinLR == nil {
		w.MinRatio = 0.1
	}
	return w
}

func (o CurveOptions) decay() Decay {
	d := Decay{MinLR: o.DecayMinLR}
	if o.Decay != nil {
		d.Count = *o.Decay
	} else {
		d.Fraction = deref(o.DecayFraction, 0.1)
	}
	return d
}

// invSqrt has the floor of the framework.
func (o CurveOptions) invSqrt() Curve {
	if o.Legacy {
		return InvSqrt{Warmup: o.warmup()}
	}
	return InvSqrt{Warmup: o.warmup(), AlphaF: deref(o.AlphaF, 0.1)}
}

func (o CurveOptions) cosine() Cosine {
	return Cosine{Warmup: o.warmup(), AlphaF: deref(o.AlphaF, 0.1), TMax: o.TMax}
}

// curves maps each name to its constructor. Aliases, the class names and the
// names of the older trainer, are in curveAliases.
var curves = map[string]func(CurveOptions) Curve{
	"constant":             func(CurveOptions) Curve { return Constant{} },
	"constant_with_warmup": func(o CurveOptions) Curve { return ConstantWithWarmup{o.warmup()} },
	"cosine":               func(o CurveOptions) Curve { return o.cosine() },
	"half_cosine": func(o CurveOptions) Curve {
		return HalfCosine{Warmup: o.warmup(), AlphaF: deref(o.AlphaF, 0.1), TMax: o.TMax}
	},
	"linear": func(o CurveOptions) Curve {
		return Linear{Warmup: o.warmup(), AlphaF: deref(o.AlphaF, 0.1), TMax: o.TMax}
	},
	"inverse_sqrt": func(o CurveOptions) Curve { return o.invSqrt() },
	"cosine_linear_envelope": func(o CurveOptions) Curve {
		return CosineEnvelope{Warmup: o.warmup(), AlphaF: deref(o.AlphaF, 0.1), TMax: o.TMax}
	},
	"max":                 func(o CurveOptions) Curve { return Larger{A: o.cosine(), B: o.invSqrt()} },
	"wsd":                 func(o CurveOptions) Curve { return WSD{Warmup: o.warmup(), Decay: o.decay()} },
	"wsds":                func(o CurveOptions) Curve { return WSDS{Warmup: o.warmup(), Decay: o.decay(), Periods: o.Periods} },
	"cosine_linear_decay": func(o CurveOptions) Curve { return CosineThenLinear{Cosine: o.cosine(), Decay: o.decay()} },
	"power": func(o CurveOptions) Curve {
		return Power{Warmup: o.warmup(), B: deref(o.B, -0.51), Decay: o.decay()}
	},
	"exponential": func(o CurveOptions) Curve {
		if o.LRMin == 0 {
			o.LRMin = 1e-9
		}
		return Exponential{Min: o.LRMin}
	},
}

var curveAliases = map[string]string{
	"constantscheduler": "constant", "constantwithwarmup": "constant_with_warmup",
	"constantwithwarmupscheduler": "constant_with_warmup",
	"coswithwarmup":               "cosine", "cosine_with_warmup": "cosine", "cos_with_warmup": "cosine",
	"halfcoswithwarmup": "half_cosine", "half_cos": "half_cosine", "half_cos_with_warmup": "half_cosine",
	"linearwithwarmup": "linear", "linear_with_warmup": "linear",
	"invsqrtwithwarmup": "inverse_sqrt", "inverse_sqrt_with_warmup": "inverse_sqrt", "inv_sqrt": "inverse_sqrt",
	"inv_sqrt_with_warmup": "inverse_sqrt",
	"coslinearenvelope":    "cosine_linear_envelope",
	"maxscheduler":         "max", "max_scheduler": "max",
	"coswithwarmupandlineardecay": "cosine_linear_decay", "cos_with_warmup_and_linear_decay": "cosine_linear_decay",
	"powerlr": "power", "power_lr": "power",
	"exponentialscheduler": "exponential",
}

// CurveNames are the names that [NewCurve] takes, sorted; it takes the class
// names of both trainers as well.
func CurveNames() []string { return slices.Sorted(maps.Keys(curves)) }

// NewCurve returns the curve of a name. [Sequential] and [Rewarm] contain other
// curves and are composed in code.
func NewCurve(name string, o CurveOptions) (Curve, error) {
	key := strings.ToLower(name)
	if alias, ok := curveAliases[key]; ok {
		key = alias
	}
	build, ok := curves[key]
	if !ok {
		return nil, fmt.Errorf("optim: schedule %q is unknown, allowed are %s", name, strings.Join(CurveNames(), ", "))
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if key == "wsds" && len(o.Periods) == 0 {
		return nil, errors.New("optim: wsds needs period lengths")
	}
	return build(o), nil
}
