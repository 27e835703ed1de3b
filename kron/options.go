package kron

import (
	"errors"
	"fmt"
	"math"
)

// MaxOrder is the highest tensor order that a block may have.
const MaxOrder = 3

// Method selects the per-step mathematics of a block.
type Method uint8

const (
	// SOAP runs Adam in the eigenbasis of the factors (Vyas et al., arXiv
	// 2409.11321; semantics of nikhilvyas/SOAP).
	SOAP Method = iota
	// Shampoo multiplies by inverse roots of the factors (Gupta et al., arXiv
	// 1802.09568; semantics of facebookresearch/optimizers).
	Shampoo
	// KLShampoo whitens each factor by the other ones (Lin et al., arXiv
	// 2509.03378; semantics of KL-Methods in the element type of the block).
	KLShampoo
	// KLSOAP is KLShampoo's factors with SOAP's second moment.
	KLSOAP
	// EigenShampoo corrects the eigenvalues in the basis of the factors every
	// step (eigenvalue-corrected Shampoo of facebookresearch/optimizers).
	EigenShampoo
)

var methodNames = [...]string{"soap", "shampoo", "kl-shampoo", "kl-soap", "eigen-shampoo"}

// String returns the name used in configuration files.
func (m Method) String() string {
	if int(m) < len(methodNames) {
		return methodNames[m]
	}
	return fmt.Sprintf("method(%d)", uint8(m))
}

// ParseMethod is the inverse of [Method.String].
func ParseMethod(name string) (Method, error) {
	for i, s := range methodNames {
		if s == name {
			return Method(i), nil
		}
	}
	return 0, fmt.Errorf("kron: method %q, want one of %v", name, methodNames)
}

// kl reports whether the statistics are whitened and eigenvalues tracked.
func (m Method) kl() bool { return m == KLShampoo || m == KLSOAP }

// basis reports whether the block keeps eigenvectors rather than inverse roots.
func (m Method) basis() bool { return m != Shampoo }

// late reports whether the parameter is updated before the adoption point.
func (m Method) late() bool { return m == SOAP || m.kl() }

// Decay says how weight decay enters a Shampoo or EigenShampoo step. The other
// methods always shrink the parameter by lr*decay after the update.
type Decay uint8

const (
	Decoupled   Decay = iota // direction += decay*W
	L2                       // gradient += decay*W, before all statistics
	Corrected                // direction += decay*(lr/PeakLR)*W
	Independent              // direction += (decay/PeakLR)*W
)

// GraftType names the first-order method that lends its step size per block.
type GraftType uint8

const (
	GraftAdam    GraftType = iota // bias-corrected second moment
	GraftNone                     // keep Shampoo's own scale
	GraftSGD                      // norm of the filtered gradient
	GraftRMSprop                  // second moment without bias correction
	GraftAdagrad                  // sum of squares
)

// Graft configures grafting for [Shampoo] and [EigenShampoo]: the direction is
// rescaled to the Frobenius norm of the named method's direction.
type Graft struct {
	Type    GraftType
	Beta    float64 // second-moment decay, in (0,1]; 0 means Betas[1] (0.999 where that is 1)
	Epsilon float64 // added to the root of the second moment; 0 means 1e-8
}

// BeforeFirst says what Shampoo multiplies by while a mode has no root yet.
type BeforeFirst uint8

const (
	FirstGraft    BeforeFirst = iota // the grafting direction for the whole block
	FirstIdentity                    // the identity for that mode, as the reference does
)

// BasisRefresh is the method of a basis refresh after the first.
type BasisRefresh uint8

const (
	RefreshQR   BasisRefresh = iota // one step of orthogonal iteration (EigenShampoo: QR algorithm)
	RefreshEigh                     // a full eigendecomposition
)

// MomentumSpace says where the basis methods keep the first moment. Both give
// the same trajectory up to rounding.
type MomentumSpace uint8

const (
	// MomentumOriginal keeps it in the parameter's space: an adoption moves
	// nothing, every step pays one more rotation.
	MomentumOriginal MomentumSpace = iota
	// MomentumEigen keeps it in the eigenbasis: a step is one rotation cheaper,
	// and an adoption rotates it by Qᵀ·Q' that the refresh job supplies.
	MomentumEigen
)

// Options configures a [Block]. The zero value is SOAP with the defaults named
// at each field. It is comparable and holds no pointers.
type Options struct {
	Method Method

	// Betas are the decays of the first and second moment, in [0,1]; Betas[1]
	// is also the factors' decay, where 1 means a sum (Shampoo only). {0,0}
	// means {.95,.95} for SOAP, {.9,.98} for KL, {.9,.95} for the others.
	Betas [2]float64
	// FactorBeta overrides Betas[1] for the factors of SOAP and KL; 0 means no,
	// negative means a decay of zero.
	FactorBeta float64
	// Beta3 weighs the gradient in Shampoo's filtered gradient; 0 means
	// Betas[0], negative means zero.
	Beta3 float64
	// Epsilon is added to denominators as each method has it; 0 means 1e-8
	// (1e-12 for Shampoo, where it only bounds the trace), negative means zero.
	Epsilon float64
	// WeightDecay is per unit learning rate; 0 means none.
	WeightDecay float64
	Decay       Decay   // where it enters; see [Decay]
	PeakLR      float64 // learning rate that Corrected and Independent divide by

	// Every is the interval between refreshes in effective steps; 0 means 10.
	Every int64
	// Phase shifts the due steps: due when step mod Every == Phase; in [0,Every).
	Phase int64
	// Start is the first preconditioned step of Shampoo and EigenShampoo, which
	// always refreshes; 0 means Every.
	Start int64

	// MaxDim is the longest side that gets a factor; 0 means 2048.
	MaxDim int
	// NoFactor names sides that get no factor whatever their length, counted
	// after unit sides are dropped: one-sided methods.
	NoFactor [MaxOrder]bool
	// Precondition1D gives vectors a factor under SOAP; the others always do.
	Precondition1D bool
	// UnitFactors keeps 1×1 factors for sides of length one and counts those
	// sides in the order, as the reference does for blocks cut by its limit.
	UnitFactors bool

	NoBiasCorrection bool // omit Adam's (SOAP) or all (Shampoo) bias corrections
	NormalizeUpdate  bool // divide the update by its root mean square (SOAP, KL)
	Momentum         MomentumSpace
	Basis            BasisRefresh
	QRIterations     int     // EigenShampoo's QR algorithm: most steps; 0 means 1
	QRTolerance      float64 // and relative off-diagonal norm that stops it

	Graft       Graft
	BeforeFirst BeforeFirst
	// Exponents overrides Shampoo's power per side: Exponents[order][mode];
	// 0 means 1/(2*order), negative means that the mode has no factor.
	Exponents    [MaxOrder + 1][MaxOrder]float64
	TraceScaling bool // multiply a factor by max(trace,Epsilon)^(-1/2) before its root
	WhitenGram   bool // Shampoo's factors see the gradient whitened along the other modes

	InitFactor float64 // KL: first eigenvalue of every factor; 0 means 0.1
	MaxClamp   float64 // KL: upper limit of the gain bound max(10, min(side, MaxClamp)); 0 means 4000
	NoClamp    bool    // KL: no gain bound
	Damping    bool    // KL: add Epsilon times the other modes' mean squared gains

	// NullTolerance bounds, as a part of the largest, the eigenvalues of a first
	// factor that count as zero under SOAP and KLSOAP: their eigenvectors are then
	// chosen by convention and not by rounding, see Note: the null space. 0 leaves
	// them to the solver.
	NullTolerance float64

	// MaxFailures is how many consecutive refreshes of a block may fail before
	// [Block.Install] returns an error; 0 means 3, negative means any number.
	MaxFailures int
}

// Validate reports every fault of o at once.
func (o Options) Validate() error {
	var errs []error
	bad := func(cond bool, format string, args ...any) {
		if cond {
			errs = append(errs, fmt.Errorf("kron: "+format, args...))
		}
	}
	unit := func(name string, v float64) { bad(!(v >= 0 && v <= 1), "%s %v, want 0..1", name, v) }
	bad(int(o.Method) >= len(methodNames), "unknown method %d", o.Method)
	unit("Betas[0]", o.Betas[0])
	unit("Betas[1]", o.Betas[1])
	unit("FactorBeta", max(0, o.FactorBeta))
	unit("Beta3", max(0, o.Beta3))
	unit("Graft.Beta", o.Graft.Beta)
	bad(o.Betas[0] == 1, "Betas[0] 1 never moves the momentum, want less than 1")
	sum := o.Betas[1] == 1 || o.FactorBeta == 1
	bad(sum && o.Method.late(), "beta 1 is a sum, which only shampoo and eigen-shampoo have")
	bad(o.Every < 0, "Every %d, want 0 (default) or more", o.Every)
	bad(o.Start < 0, "Start %d, want 0 (default) or more", o.Start)
	bad(o.Phase < 0 || o.Phase >= o.defaults().Every, "Phase %d, want 0..%d", o.Phase, o.defaults().Every-1)
	bad(o.MaxDim < 0, "MaxDim %d, want 0 (default) or more", o.MaxDim)
	bad(o.Decay > Independent, "unknown decay %d", o.Decay)
	bad(o.Decay != Decoupled && o.Method.late(), "decay %d needs shampoo or eigen-shampoo", o.Decay)
	bad(o.Decay >= Corrected && !(o.PeakLR > 0), "PeakLR %v, want more than 0 for this decay", o.PeakLR)
	bad(!(o.NullTolerance >= 0 && o.NullTolerance < 1), "NullTolerance %v, want 0 (none) to less than 1", o.NullTolerance)
	bad(o.Graft.Type > GraftAdagrad, "unknown graft %d", o.Graft.Type)
	bad(o.WhitenGram && o.Method != Shampoo, "WhitenGram needs shampoo")
	for _, v := range []float64{o.Epsilon, o.WeightDecay, o.PeakLR, o.InitFactor, o.MaxClamp, o.QRTolerance, o.Graft.Epsilon} {
		bad(math.IsNaN(v) || math.IsInf(v, 0), "non-finite option %v", v)
	}
	return errors.Join(errs...)
}

// defaultBetas lists what {0,0} stands for.
var defaultBetas = [...][2]float64{
	SOAP: {0.95, 0.95}, Shampoo: {0.9, 0.95}, KLShampoo: {0.9, 0.98}, KLSOAP: {0.9, 0.98}, EigenShampoo: {0.9, 0.95},
}

// defaults returns o with every zero replaced by what it stands for.
func (o Options) defaults() Options {
	if o.Betas == [2]float64{} && int(o.Method) < len(defaultBetas) {
		o.Betas = defaultBetas[o.Method]
	}
	o.FactorBeta = max(0, or(o.FactorBeta, o.Betas[1]))
	o.Beta3 = max(0, or(o.Beta3, o.Betas[0]))
	if o.Method == Shampoo {
		o.Epsilon = or(o.Epsilon, 1e-12)
	}
	o.Epsilon = max(0, or(o.Epsilon, 1e-8))
	o.Every = or(o.Every, 10)
	o.Start = or(o.Start, o.Every)
	o.MaxDim = or(o.MaxDim, 2048)
	o.QRIterations = or(o.QRIterations, 1)
	if o.Graft.Beta == 0 {
		o.Graft.Beta = o.Betas[1]
		if o.Graft.Beta == 1 {
			o.Graft.Beta = 0.999
		}
	}
	if o.Graft.Type == GraftAdagrad {
		o.Graft.Beta = 1
	}
	o.Graft.Epsilon = max(0, or(o.Graft.Epsilon, 1e-8))
	o.InitFactor = or(o.InitFactor, 0.1)
	o.MaxClamp = or(o.MaxClamp, 4000)
	o.MaxFailures = or(o.MaxFailures, 3)
	return o
}

// or returns v, or def when v is zero.
func or[V comparable](v, def V) V {
	var zero V
	if v == zero {
		return def
	}
	return v
}
