package config

import (
	"slices"

	"github.com/asteria-runtime/asteria/invroot"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/trainer-olmo/asteria"
	"github.com/asteria-runtime/asteria/trainer-olmo/optim"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// SecondOrder reports whether the method keeps Kronecker factors; the others are
// first-order rules of package optim.
func (o *Optimizer) SecondOrder() bool { return o.Name != "adamw" && o.Name != "lionw" }

// DecayRule says what weight decay leaves alone.
func (o *Optimizer) DecayRule() optim.DecayRule {
	var r optim.DecayRule
	if !o.DecayEmbeddings {
		r.NoDecayRoles = append(r.NoDecayRoles, param.Embedding)
	}
	if !o.DecayNorms {
		r.NoDecayRoles = append(r.NoDecayRoles, param.Norm)
	}
	return r
}

// AsteriaOptions are the options of the runtime for a second-order method.
func (c *Config) AsteriaOptions() (asteria.Options, error) {
	o, err := c.Optimizer.options()
	o.Tiers = c.tiers()
	o.Mode, o.Async = c.async()
	c.Parallel.Share(&o, c.Parallel.Ranks)
	return o, err
}

// Share adds to o what the section says about a number of ranks; who trains adds the
// communicator to o.Peers. With parallel.shard each owner adopts alone, so that there
// is nothing to share and no peer.
func (p *Parallel) Share(o *asteria.Options, ranks int) {
	o.Peers, o.Async.Selective = nil, ranks > 1 && p.Sync == "selective"
	if ranks > 1 && !p.Shard {
		o.Peers = &asteria.Peers{Ranks: ranks, Roots: asteria.Roots(index(p.Roots, "owner", "average"))}
	}
}

func (o *Optimizer) options() (asteria.Options, error) {
	method, err := kron.ParseMethod(o.Name)
	if err != nil {
		return asteria.Options{}, err
	}
	out := asteria.Options{
		Method: method, Betas: o.Betas, Eps: o.Eps, WeightDecay: o.WeightDecay, NoDecay: o.DecayRule(),
		Frequency: int64(o.PreconditionFrequency), Stagger: o.Stagger, MaxPrecondDim: o.MaxPrecondDim,
		OneSidedEmbeddings: o.OneSidedEmbeddings,
		Kron: kron.Options{
			FactorBeta: negativeZero(o.FactorBeta), Start: int64(o.StartStep), InitFactor: o.InitFactor,
			Graft:       kron.Graft{Type: kron.GraftType(index(o.Grafting, "adam", "none", "sgd", "rmsprop", "adagrad"))},
			BeforeFirst: kron.BeforeFirst(index(o.BeforeFirst, "graft", "identity")),
			Basis:       kron.BasisRefresh(index(o.BasisRefresh, "qr", "eigh")),
			MaxFailures: o.MaxFailures, NullTolerance: o.NullTolerance,
		},
		Solver: invroot.Options{
			Method:    invroot.Method(index(o.RootMethod, "eigen", "coupled-newton", "higher-order")),
			Precision: invroot.Precision(index(o.RefreshPrecision, "auto", "single", "double")),
			Ridge:     invroot.Ridge{Kind: invroot.Relative, Value: o.Ridge},
		},
	}
	if o.MaxFailures == 0 {
		out.Kron.MaxFailures = -1 // any number
	}
	if o.AuxLR > 0 {
		out.AuxLR = o.AuxLR / o.LR
	}
	return out, out.Validate()
}

// negativeZero turns our "-1 = take the default, 0 = zero" into kron's "0 = take
// the default, negative = zero".
func negativeZero[V float64 | int64](v V) V {
	switch {
	case v < 0:
		return 0
	case v == 0:
		return -1
	}
	return v
}

// index is the place of a word in the order of the other package's constants.
func index(word string, words ...string) int { return max(0, slices.Index(words, word)) }
