package invroot

import (
	"errors"
	"fmt"
	"math"
)

// Method selects how inverse roots are computed.
type Method uint8

const (
	// Eigen is Q*f(Λ)*Qᵀ from the eigendecomposition: any exponent, any spectrum.
	Eigen Method = iota
	// CoupledNewton is the coupled Newton iteration of facebookresearch/optimizers
	// (spec: z = (p+1)/(2‖A‖_F)): exponents 1/p only.
	CoupledNewton
	// HigherOrder is the coupled iteration with a polynomial of degree
	// Options.Order-1 of the same source: exponents q/p with small integers.
	HigherOrder
)

// String returns the method's name as reports print it.
func (m Method) String() string {
	return name(m, "eigen", "coupled-newton", "higher-order")
}

// Precision selects the arithmetic of a refresh.
type Precision uint8

const (
	// Auto is Single while κ = λmax/(λmin+ridge) ≤ 1e4 (1e3 for the iterative
	// methods) and, for a root, κ times its exponent ≤ 500, which keeps its error
	// below 1e-4; it is Double beyond. Refreshes by QR, which do not resolve the
	// small eigenvalues in any case, are computed in Single.
	Auto Precision = iota
	// Single is the element type of the solver.
	Single
	// Double is float64 whatever the element type.
	Double
)

// String returns the precision's name as reports print it.
func (p Precision) String() string { return name(p, "auto", "single", "double") }

// RidgeKind says what Ridge.Value means.
type RidgeKind uint8

const (
	// Relative raises the eigenvalues below Value*max|λ| to it. A floor and not
	// a sum: what lies below is noise of the storage, and a sum would pass it
	// on. The iterative methods, which see no eigenvalues, add the ridge, and
	// the magnitude of a negative λmin with it.
	Relative RidgeKind = iota
	// Absolute adds Value; should an eigenvalue still be below Value, all are
	// moved up together until the smallest equals Value (the shift of
	// facebookresearch/optimizers PerturbationConfig).
	Absolute
	// None adds nothing.
	None
)

// String returns the kind's name.
func (k RidgeKind) String() string { return name(k, "relative", "absolute", "none") }

// DefaultRidge is the relative ridge of a zero Ridge: just above the noise that
// float32 storage puts on the eigenvalues.
const DefaultRidge = 1e-7

// Ridge bounds the eigenvalues from below before inversion.
type Ridge struct {
	Kind RidgeKind
	// Value is the ridge, ≥ 0. For Relative, 0 means DefaultRidge.
	Value float64
}

// BasisRefresh selects what RefreshBasis does.
type BasisRefresh uint8

const (
	// QR is one step of orthogonal iteration, Householder QR of A*Q.
	QR BasisRefresh = iota
	// Eigh replaces the basis by the eigenvectors, descending. The permutation
	// still ranks the old columns, so that rank matches rank.
	Eigh
)

// String returns the refresh's name.
func (b BasisRefresh) String() string { return name(b, "qr", "eigh") }

// Options sets a solver. The zero value is the recommended setting.
type Options struct {
	// Method of inverse roots, default Eigen.
	Method Method
	// Ridge of inverse roots, default relative 1e-7.
	Ridge Ridge
	// Precision of the work, default Auto.
	Precision Precision
	// BasisRefresh of RefreshBasis and of Refresher.Iterate, default QR.
	BasisRefresh BasisRefresh
	// PseudoInverse maps eigenvalues ≤ n*u*λmax to 0 in place of inverting them.
	// It needs Method Eigen and takes no ridge: set Ridge.Kind to None.
	PseudoInverse bool
	// TraceScaling multiplies A by max(trace A, tiny)^(-1/2) before the root.
	TraceScaling bool
	// Tolerance of the iterative methods on max|M-I|; default 1e-6 for
	// CoupledNewton, 1e-20 (run to stagnation) for HigherOrder.
	Tolerance float64
	// MaxIterations of the iterative methods, default 100.
	MaxIterations int
	// Order of HigherOrder, 2 to 16, default 3.
	Order int
	// Pause, when not nil, is called again and again during a refresh, on the
	// goroutine that called the solver: it may sleep, so that a refresh takes no
	// more than a share of a core. The longest stretch without a call is one product
	// of the matrix's order; see BenchmarkPause. It must not use the solver. No
	// result depends on it.
	Pause func()
	// RidgeRetries is how often a failed root is tried again in float64 with a
	// ridge ten times larger: 0 means 6, negative none. Ridge None never grows one.
	RidgeRetries int
}

// Validate reports every fault of o, joined.
func (o Options) Validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("invroot: "+format, args...))
	}
	if o.Method > HigherOrder {
		bad("Method %d: want Eigen, CoupledNewton or HigherOrder", o.Method)
	}
	if o.Precision > Double {
		bad("Precision %d: want Auto, Single or Double", o.Precision)
	}
	if o.BasisRefresh > Eigh {
		bad("BasisRefresh %d: want QR or Eigh", o.BasisRefresh)
	}
	if o.Ridge.Kind > None {
		bad("Ridge.Kind %d: want Relative, Absolute or None", o.Ridge.Kind)
	}
	if !(o.Ridge.Value >= 0) || math.IsInf(o.Ridge.Value, 0) {
		bad("Ridge.Value %v: want finite and ≥ 0", o.Ridge.Value)
	}
	if !(o.Tolerance >= 0) {
		bad("Tolerance %v: want ≥ 0", o.Tolerance)
	}
	if o.MaxIterations < 0 {
		bad("MaxIterations %d: want ≥ 0", o.MaxIterations)
	}
	if o.Order != 0 && (o.Order < 2 || o.Order > maxOrder) {
		bad("Order %d: want 0 or 2 to %d", o.Order, maxOrder)
	}
	if o.PseudoInverse && (o.Method != Eigen || o.Ridge.Kind != None) {
		bad("PseudoInverse: want Method Eigen and Ridge None, have %v and %v", o.Method, o.Ridge.Kind)
	}
	return errors.Join(errs...)
}

// withDefaults returns o with every zero replaced by its documented default.
func (o Options) withDefaults() Options {
	if o.Ridge.Kind == Relative && o.Ridge.Value == 0 {
		o.Ridge.Value = DefaultRidge
	}
	if o.Tolerance == 0 && o.Method == CoupledNewton {
		o.Tolerance = 1e-6
	}
	if o.Tolerance == 0 {
		o.Tolerance = 1e-20
	}
	if o.MaxIterations == 0 {
		o.MaxIterations = 100
	}
	if o.Order == 0 {
		o.Order = 3
	}
	if o.RidgeRetries == 0 {
		o.RidgeRetries = 6 // init2winit and scalable_shampoo try 6 times
	}
	return o
}

// name returns the name of a value, or its number when it has none.
func name[E ~uint8](v E, names ...string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("unknown(%d)", uint8(v))
}
