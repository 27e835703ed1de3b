package kron_test

import (
	"math"
	"testing"

	"github.com/asteria-runtime/asteria/kron"
)

// plain is Shampoo without factors: the direction is the filtered gradient.
func plain(o kron.Options) kron.Options {
	o.Method = kron.Shampoo
	o.Start = 1
	o.Exponents[2] = [3]float64{-1, -1}
	if o.Graft == (kron.Graft{}) {
		o.Graft.Type = kron.GraftNone
	}
	return o
}

// Two steps at different learning rates, against each decay type written out.
func TestDecayTypes(t *testing.T) {
	const wd, peak = 0.3, 0.5
	lrs := []float64{0.2, 0.05}
	for _, c := range []struct {
		name  string
		decay kron.Decay
		move  func(w, g, lr float64) float64 // W after one step, betas zero
	}{
		{"decoupled", kron.Decoupled, func(w, g, lr float64) float64 { return w - lr*(g+wd*w) }},
		{"l2", kron.L2, func(w, g, lr float64) float64 { return w - lr*(g+wd*w) }},
		{"corrected", kron.Corrected, func(w, g, lr float64) float64 { return w - lr*(g+wd*lr/peak*w) }},
		{"independent", kron.Independent, func(w, g, lr float64) float64 { return w - lr*(g+wd/peak*w) }},
	} {
		o := plain(kron.Options{Betas: [2]float64{0, 0.9}, WeightDecay: wd, Decay: c.decay, PeakLR: peak})
		r := newRig[float64](t, []int{3, 2}, o)
		want := append([]float64(nil), r.param...)
		for i, g := range gradients[float64](61, 2, 6) {
			r.step(g, lrs[i])
			for j := range want {
				want[j] = c.move(want[j], g[j], lrs[i])
			}
		}
		if d := diff(want, r.param); !(d < 1e-15) {
			t.Errorf("%s: differs by %g", c.name, d)
		}
	}
}

// Before Start the step is the grafted method's own; two steps of each.
func TestGraftTypes(t *testing.T) {
	const beta, eps, lr = 0.8, 1e-3, 0.1
	for _, c := range []struct {
		name  string
		graft kron.GraftType
		unit  func(g1, g2 float64) float64 // second direction over the gradient g2
	}{
		{"sgd", kron.GraftSGD, func(_, _ float64) float64 { return 1 }},
		{"adagrad", kron.GraftAdagrad, func(g1, g2 float64) float64 { return 1 / (math.Sqrt(g1*g1+g2*g2) + eps) }},
		{"rmsprop", kron.GraftRMSprop, func(g1, g2 float64) float64 {
			return 1 / (math.Sqrt((1-beta)*(beta*g1*g1+g2*g2)) + eps)
		}},
		{"adam", kron.GraftAdam, func(g1, g2 float64) float64 {
			return 1 / (math.Sqrt((1-beta)*(beta*g1*g1+g2*g2)/(1-beta*beta)) + eps)
		}},
	} {
		o := kron.Options{Method: kron.Shampoo, Betas: [2]float64{0, 0.9}, Start: 9, Graft: kron.Graft{Type: c.graft, Beta: beta, Epsilon: eps}}
		r := newRig[float64](t, []int{3, 2}, o)
		g := gradients[float64](62, 2, 6)
		r.step(g[0], lr)
		before := append([]float64(nil), r.param...)
		r.step(g[1], lr)
		for j := range before {
			before[j] -= lr * g[1][j] * c.unit(g[0][j], g[1][j])
		}
		if d := diff(before, r.param); !(d < 1e-15) {
			t.Errorf("%s: differs by %g", c.name, d)
		}
	}
}

// From Start on the direction is the roots' and the length the graft's.
func TestGraftingKeepsTheLength(t *testing.T) {
	const lr = 0.1
	for _, graft := range []kron.GraftType{kron.GraftAdam, kron.GraftSGD, kron.GraftRMSprop, kron.GraftAdagrad} {
		o := kron.Options{Method: kron.Shampoo, Every: 1, Graft: kron.Graft{Type: graft}}
		both := newRig[float64](t, []int{4, 4}, o)
		o.Start = 100
		only := newRig[float64](t, []int{4, 4}, o)
		for step, g := range gradients[float64](63, 5, 16) {
			a, b := append([]float64(nil), both.param...), append([]float64(nil), only.param...)
			both.step(g, lr)
			only.step(g, lr)
			la, lb, same := 0.0, 0.0, true
			for i := range a {
				da, db := both.param[i]-a[i], only.param[i]-b[i]
				la, lb = la+da*da, lb+db*db
				same = same && math.Abs(da-db) < 1e-6
			}
			if !(math.Abs(math.Sqrt(la/lb)-1) < 1e-12) || same {
				t.Errorf("graft %d: step %d has length %g, want %g in another direction", graft, step, math.Sqrt(la), math.Sqrt(lb))
			}
		}
	}
}

// While a mode has no root yet, FirstGraft takes the grafting direction for the
// whole block, and FirstIdentity multiplies by what there is.
func TestBeforeTheFirstRoot(t *testing.T) {
	fail := &flaky{fail: func(int) error { return errSolver }}
	o := kron.Options{Method: kron.Shampoo, Every: 1, Betas: [2]float64{0, 0.9}, MaxFailures: -1}
	moved := func(first kron.BeforeFirst) []float64 {
		o.BeforeFirst = first
		r := newRigWith[float64](t, []int{3, 2}, o, fail)
		r.step(gradients[float64](64, 1, 6)[0], 1)
		for i := range r.param {
			r.param[i] = float64(i%7)/8 - r.param[i]
		}
		return r.param
	}
	g := gradients[float64](64, 1, 6)[0]
	// Adam's first direction is the sign; the identity's is the gradient, grafted
	// to the same length.
	norm := 0.0
	for _, v := range g {
		norm += v * v
	}
	graft, identity := moved(kron.FirstGraft), moved(kron.FirstIdentity)
	for i, v := range g {
		if math.Abs(graft[i]-math.Copysign(1, v)) > 1e-6 {
			t.Errorf("graft: entry %d moved by %g", i, graft[i])
		}
		if want := v * math.Sqrt(6/norm); math.Abs(identity[i]-want) > 1e-6 {
			t.Errorf("identity: entry %d moved by %g, want %g", i, identity[i], want)
		}
	}
}
