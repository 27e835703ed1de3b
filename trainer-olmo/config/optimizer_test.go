package config

import (
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/asteria-runtime/asteria/invroot"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/trainer-olmo/asteria"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

func TestEverySecondOrderNameIsAMethod(t *testing.T) {
	f, _ := reflect.TypeFor[Optimizer]().FieldByName("Name")
	for _, name := range strings.Fields(f.Tag.Get("oneof")) {
		c := mustParse(t, base, "optimizer.name="+name)
		o, err := c.AsteriaOptions()
		if c.Optimizer.SecondOrder() != (err == nil) {
			t.Errorf("%s: second order %v, options %v", name, c.Optimizer.SecondOrder(), err)
		}
		if err == nil && o.Method.String() != name {
			t.Errorf("%s became %v", name, o.Method)
		}
	}
}

func TestTheRuntimesOptionsCarryTheKeys(t *testing.T) {
	c := mustParse(t, base, "optimizer={name: shampoo, lr: 2e-3, aux_lr: 1e-3, betas: [0.8, 0.9], eps: 1e-9, weight_decay: 0.2}",
		"optimizer={precondition_frequency: 7, max_precond_dim: 64, stagger: true, factor_beta: 0, start_step: 3, grafting: sgd}",
		"optimizer={before_first: identity, ridge: 1e-5, init_factor: 0.3, basis_refresh: eigh, root_method: higher-order}",
		"optimizer={refresh_precision: double, max_failures: 0, decay_norms: false}")
	o, err := c.AsteriaOptions()
	if err != nil {
		t.Fatal(err)
	}
	k, s := o.Kron, o.Solver
	if o.Method != kron.Shampoo || o.AuxLR != 0.5 || o.Betas != [2]float64{0.8, 0.9} || o.Eps != 1e-9 || o.WeightDecay != 0.2 ||
		o.Frequency != 7 || o.MaxPrecondDim != 64 || !o.Stagger || k.FactorBeta != -1 || k.Start != 3 || k.Graft.Type != kron.GraftSGD ||
		k.BeforeFirst != kron.FirstIdentity || k.InitFactor != 0.3 || k.Basis != kron.RefreshEigh || k.MaxFailures != -1 ||
		s.Method != invroot.HigherOrder || s.Precision != invroot.Double || s.Ridge != (invroot.Ridge{Kind: invroot.Relative, Value: 1e-5}) {
		t.Errorf("got %+v", o)
	}
	if o.NoDecay.Decays("x", param.Norm) || o.NoDecay.Decays("x", param.Embedding) || !o.NoDecay.Decays("x", param.Head) {
		t.Errorf("weight decay of the roles: %+v", o.NoDecay)
	}
}

func TestTheRuntimesKeysReachTheRuntime(t *testing.T) {
	c := mustParse(t, base, "optimizer.name=soap", "train.threads=1",
		"runtime={mode: asteria, staleness: 7, lag: 0, lag_start: -1, adopt: ready, ready_share: 0.5, workers: 3, job_timeout: 2m}")
	o, err := c.AsteriaOptions()
	if err != nil {
		t.Fatal(err)
	}
	a := o.Async
	if o.Mode != asteria.Asteria || a.Staleness != 7 || a.Lag != -1 || a.LagStart != 0 || a.Adopt != asteria.Ready || a.ReadyShare != 0.5 || a.Workers != 3 || a.JobTimeout != 2*time.Minute {
		t.Errorf("got %v %+v", o.Mode, a)
	}
	if c.RefreshWorkers() != 3 || !a.Paced || (runtime.NumCPU() < 4) == (a.Nice > 0) {
		t.Errorf("%d workers, paced %v, nice %d", c.RefreshWorkers(), a.Paced, a.Nice)
	}
	c = mustParse(t, base, "optimizer.name=soap", "runtime={mode: asteria, staleness: 0}")
	if o, _ := c.AsteriaOptions(); o.Async.Staleness != -1 || o.Async.Lag != 0 || c.RefreshWorkers() < 1 {
		t.Errorf("got %+v, %d workers", o.Async, c.RefreshWorkers())
	}
	for _, none := range []string{"runtime.mode=native", "optimizer.name=adamw"} {
		if n := mustParse(t, base, "optimizer.name=soap", none).RefreshWorkers(); n != 0 {
			t.Errorf("%s: %d workers", none, n)
		}
	}
}
