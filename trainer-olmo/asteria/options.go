package asteria

import (
	"errors"
	"fmt"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/invroot"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/trainer-olmo/optim"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// Options configure a [Runtime]. The zero value is SOAP with the defaults named
// at each field, and AdamW for what is not a matrix.
type Options struct {
	// Method of the matrix parameters.
	Method kron.Method
	// Betas are the decays of the moments for both parts; {0,0} means those of
	// the method (SOAP .95,.95; KL .9,.98; Shampoo .9,.95) and .9,.95 for AdamW.
	Betas [2]float64
	// AuxBetas overrides Betas for the AdamW part; {0,0} means no.
	AuxBetas [2]float64
	// Eps is added to denominators of both parts; 0 means 1e-8, and 1e-12 inside
	// Shampoo.
	Eps float64
	// WeightDecay is per unit learning rate, decoupled; 0 means none.
	WeightDecay float64
	// NoDecay excludes parameters from weight decay.
	NoDecay optim.DecayRule
	// AuxLR is the learning rate of the AdamW part over that of the matrices;
	// 0 means 1.
	AuxLR float64

	// Frequency is the interval between refreshes in steps; 0 means 10.
	Frequency int64
	// Stagger spreads the blocks' refreshes over the interval, balanced by cost.
	// It changes which statistics a refresh sees, and so the trajectory.
	Stagger bool
	// MaxPrecondDim is the longest side with a factor; 0 means 2048. Longer ones
	// are cut into blocks by Shampoo and KL, and left without a factor by SOAP.
	MaxPrecondDim int
	// OneSidedEmbeddings gives embedding and head a factor on their last side
	// (SOAP and EigenShampoo only); otherwise they belong to AdamW.
	OneSidedEmbeddings bool

	// Kron holds further options of the methods. What the fields above say
	// takes precedence where they are not zero; its Phase is never used.
	Kron kron.Options
	// OriginalMomentum keeps the first moment of SOAP and KL in the parameters'
	// space, at one more rotation a step; see [kron.MomentumSpace].
	OriginalMomentum bool
	// Solver configures the refreshes: ridge, precision, retries.
	Solver invroot.Options
	// Mode says whether refreshes run inside the step or beside training.
	Mode Mode
	// Async configures the mode Asteria.
	Async Async
	// Peers are the ranks that train the same parameters and share the refreshes;
	// nil means that there are none.
	Peers *Peers
	// Tiers places the optimizer's state; nil keeps all of it in host memory.
	Tiers *Tiers
	// Backend is an accelerator for the dense work; nil computes on the host.
	Backend Backend
	// Solvers chooses what computes each block's refreshes; nil leaves it to the
	// runtime.
	Solvers Solvers
	// MemoryLimit refuses, before anything is allocated, a plan that needs more
	// bytes; 0 means none.
	MemoryLimit int64

	test testHooks
}

// Solvers stands between the refreshes and the solver that computes them: to
// measure it, to replace it, or to break it, as tests of faults do. It is asked once
// for every refresh which solver shall compute it; next is the runtime's own, and
// nil means that one. It is asked on several goroutines, and so are its answers,
// each by one at a time. Its answers must be as good as next's: what they return
// is checked for being finite, and for nothing else.
//
// The contexts of the calls end when nobody waits for them any more. A call that
// does not return then is left behind: see Async.JobTimeout and [Runtime.Hurry].
type Solvers interface {
	Solver32(block string, next kron.Refresher[float32]) kron.Refresher[float32]
	Solver64(block string, next kron.Refresher[float64]) kron.Refresher[float64]
}

// solverFor asks s for the solver of a block's refresh.
func solverFor[T gemm.Float](s Solvers, block string, next kron.Refresher[T]) kron.Refresher[T] {
	if s == nil {
		return next
	}
	var chosen any
	switch n := any(next).(type) {
	case kron.Refresher[float32]:
		chosen = s.Solver32(block, n)
	case kron.Refresher[float64]:
		chosen = s.Solver64(block, n)
	}
	if c, ok := chosen.(kron.Refresher[T]); ok {
		return c
	}
	return next
}

// testHooks let tests stand between a refresh and its solver.
type testHooks struct {
	// solver, when set, is a func(kron.Refresher[T]) kron.Refresher[T].
	solver any
	// lateFirst lets the first root of Shampoo be late too, as in the reference
	// data of delayed refreshes, where the identity stands in for it.
	lateFirst bool
}

// Validate reports every fault of o at once.
func (o Options) Validate() error {
	var errs []error
	bad := func(cond bool, format string, args ...any) {
		if cond {
			errs = append(errs, fmt.Errorf("asteria: "+format, args...))
		}
	}
	bad(!(o.AuxLR >= 0), "AuxLR %v, want 0 (default) or more", o.AuxLR)
	bad(o.Frequency < 0, "Frequency %d, want 0 (default) or more", o.Frequency)
	bad(o.MaxPrecondDim < 0, "MaxPrecondDim %d, want 0 (default) or more", o.MaxPrecondDim)
	bad(int(o.Mode) >= len(modeNames), "unknown mode %d", o.Mode)
	bad(o.MemoryLimit < 0, "MemoryLimit %d, want 0 (none) or more", o.MemoryLimit)
	bad(!(o.WeightDecay >= 0), "WeightDecay %v, want 0 or more", o.WeightDecay)
	oneSided := o.Method == kron.SOAP || o.Method == kron.EigenShampoo
	bad(o.OneSidedEmbeddings && !oneSided, "OneSidedEmbeddings with %v, want soap or eigen-shampoo", o.Method)
	if o.Mode == Asteria {
		errs = append(errs, o.Async.validate(o.block(0).Every))
	}
	if o.Tiers != nil {
		errs = append(errs, o.Tiers.Validate())
	}
	errs = append(errs, o.Peers.validate(o))
	errs = append(errs, o.block(0).Validate(), o.Solver.Validate(), o.aux(nil).Validate())
	return errors.Join(errs...)
}

// block returns the options of a block with the given phase.
func (o Options) block(phase int64) kron.Options {
	k := o.Kron
	k.Method = o.Method
	if o.Betas != [2]float64{} {
		k.Betas = o.Betas
	}
	k.Epsilon = or(o.Eps, k.Epsilon)
	if o.Method == kron.Shampoo {
		k.Epsilon = o.Kron.Epsilon
		k.Graft.Epsilon = or(k.Graft.Epsilon, o.Eps)
	}
	k.WeightDecay = or(o.WeightDecay, k.WeightDecay)
	k.Every = or(o.Frequency, or(k.Every, 10))
	k.MaxDim = or(o.MaxPrecondDim, or(k.MaxDim, 2048))
	k.Momentum = kron.MomentumEigen
	if o.OriginalMomentum {
		k.Momentum = kron.MomentumOriginal
	}
	k.Phase = phase
	return k
}

// aux returns the options of the AdamW part; the engine is set by the caller.
func (o Options) aux(decay *optim.DecayRule) optim.AdamWOptions {
	a := optim.AdamWOptions{Betas: or(o.AuxBetas, o.Betas), Eps: max(0, o.Eps), WeightDecay: or(o.WeightDecay, o.Kron.WeightDecay), Decay: o.NoDecay, Prefix: "aux"}
	if decay != nil {
		a.Decay = *decay
	}
	return a
}

// tiling returns how a parameter of the given order is cut.
func (o Options) tiling(order int) kron.Tiling {
	t := kron.Tiling{Limit: o.block(0).MaxDim, Split: o.Method == kron.Shampoo || o.Method == kron.KLShampoo || o.Method == kron.KLSOAP}
	if order > kron.MaxOrder {
		t.Merge, t.Target = kron.MergeRight, kron.MaxOrder
	}
	return t
}

// preconditions reports whether parameters of this role belong to the method
// rather than to AdamW.
func (o Options) preconditions(role param.Role) bool {
	switch role {
	case param.Matrix:
		return true
	case param.Embedding, param.Head:
		return o.OneSidedEmbeddings
	}
	return false
}

// or returns v, or def when v is zero.
func or[V comparable](v, def V) V {
	var zero V
	if v == zero {
		return def
	}
	return v
}
