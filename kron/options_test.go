package kron_test

import (
	"math"
	"strings"
	"testing"

	"github.com/asteria-runtime/asteria/kron"
)

func TestMethodNamesRoundTrip(t *testing.T) {
	for m := kron.SOAP; m <= kron.EigenShampoo; m++ {
		got, err := kron.ParseMethod(m.String())
		if err != nil || got != m {
			t.Errorf("ParseMethod(%q) = %v, %v", m, got, err)
		}
	}
	if _, err := kron.ParseMethod("adam"); err == nil || !strings.Contains(err.Error(), "soap") {
		t.Errorf("unknown method: %v, want the allowed names", err)
	}
	if s := kron.Method(77).String(); s != "method(77)" {
		t.Errorf("unknown method prints as %q", s)
	}
}

func TestZeroOptionsTakeTheDocumentedDefaults(t *testing.T) {
	want := map[kron.Method]kron.Options{
		kron.SOAP:      {Betas: [2]float64{0.95, 0.95}, Epsilon: 1e-8},
		kron.Shampoo:   {Betas: [2]float64{0.9, 0.95}, Epsilon: 1e-12},
		kron.KLShampoo: {Betas: [2]float64{0.9, 0.98}, Epsilon: 1e-8},
	}
	for m, w := range want {
		b, err := kron.NewBlock[float64]("b", []int{3, 4}, kron.Options{Method: m})
		if err != nil {
			t.Fatal(err)
		}
		o := b.Options()
		if o.Betas != w.Betas || o.Epsilon != w.Epsilon || o.FactorBeta != w.Betas[1] || o.Beta3 != w.Betas[0] {
			t.Errorf("%v: betas %v, factor %v, beta3 %v, epsilon %v", m, o.Betas, o.FactorBeta, o.Beta3, o.Epsilon)
		}
		if o.Every != 10 || o.Start != 10 || o.MaxDim != 2048 || o.MaxFailures != 3 || o.InitFactor != 0.1 || o.MaxClamp != 4000 {
			t.Errorf("%v: %+v", m, o)
		}
	}
}

func TestNegativeStandsForZero(t *testing.T) {
	o := kron.Options{Epsilon: -1, FactorBeta: -1, Beta3: -1, Graft: kron.Graft{Epsilon: -1}}
	b, err := kron.NewBlock[float64]("b", []int{3, 4}, o)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.Options(); got.Epsilon != 0 || got.FactorBeta != 0 || got.Beta3 != 0 || got.Graft.Epsilon != 0 {
		t.Errorf("%+v", got)
	}
}

func TestValidateReportsEveryFault(t *testing.T) {
	bad := kron.Options{
		Method: 99, Betas: [2]float64{-1, 2}, FactorBeta: 3, Beta3: math.NaN(), Every: -1, Start: -2,
		MaxDim: -3, Decay: 9, Graft: kron.Graft{Type: 9, Beta: 7}, WeightDecay: math.Inf(1),
	}
	err := bad.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"unknown method 99", "Betas[0] -1", "Betas[1] 2", "FactorBeta 3", "Beta3 NaN", "Every -1", "Start -2",
		"MaxDim -3", "unknown decay 9", "unknown graft 9", "Graft.Beta 7", "non-finite",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not mention %q:\n%v", want, err)
		}
	}
}

func TestValidateKnowsWhatBelongsTogether(t *testing.T) {
	for name, o := range map[string]kron.Options{
		"sum under soap":         {Betas: [2]float64{0.9, 1}},
		"sum under kl":           {Method: kron.KLShampoo, FactorBeta: 1},
		"momentum that stays":    {Betas: [2]float64{1, 0.9}},
		"phase beyond interval":  {Every: 3, Phase: 3},
		"decay type under soap":  {Decay: kron.L2},
		"corrected without peak": {Method: kron.Shampoo, Decay: kron.Corrected},
		"whitening under soap":   {WhitenGram: true},
	} {
		if o.Validate() == nil {
			t.Errorf("%s: accepted", name)
		}
		if _, err := kron.NewBlock[float32]("b", []int{2, 2}, o); err == nil || !strings.Contains(err.Error(), "block b") {
			t.Errorf("%s: NewBlock says %v", name, err)
		}
	}
}
