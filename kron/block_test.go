package kron_test

import (
	"context"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/kron/krontest"
)

// Field failure A11: scalars and sides of length one have no factor; whatever
// the shape, the update has the parameter's shape.
func TestA11_UnitSidesHaveNoFactor(t *testing.T) {
	for _, c := range []struct {
		dims    []int
		factors []int // orders per counted side, 0 for none, with vectors preconditioned
	}{
		{nil, nil}, {[]int{1}, nil}, {[]int{1, 1}, nil}, {[]int{1, 9}, []int{9}}, {[]int{9, 1}, []int{9}},
		{[]int{7}, []int{7}}, {[]int{3, 5, 7}, []int{3, 5, 7}}, {[]int{3, 1, 7}, []int{3, 7}},
		{[]int{0, 4}, []int{0, 0}}, {[]int{4, 30}, []int{4, 0}},
	} {
		for name, o := range everyMethod() {
			o.MaxDim = 20
			o.Precondition1D = true
			r := newRig[float64](t, c.dims, o)
			kl := o.Method == kron.KLShampoo || o.Method == kron.KLSOAP
			for k, want := range c.factors {
				if kl && len(c.factors) < 2 {
					want = 0 // KL has no equations for vectors
				}
				if got := r.block.FactorOrder(k); got != want {
					t.Errorf("%s %v: side %d has a factor of order %d, want %d", name, c.dims, k, got, want)
				}
			}
			before := append([]float64(nil), r.param...)
			for _, g := range gradients[float64](3, 5, r.block.Len()) {
				r.step(g, 0.01)
			}
			if r.block.Len() > 0 && sameBits(before, r.param) {
				t.Errorf("%s %v: five steps changed nothing", name, c.dims)
			}
			// A rank-deficient factor without grafting may take long steps, but
			// none that is not a number.
			if !(diff(before, r.param) < 1e4) {
				t.Errorf("%s %v: moved by %g", name, c.dims, diff(before, r.param))
			}
		}
	}
}

func TestVectorsNeedPrecondition1DUnderSOAPOnly(t *testing.T) {
	for m, want := range map[kron.Method]int{kron.SOAP: 0, kron.Shampoo: 5, kron.EigenShampoo: 5} {
		b, err := kron.NewBlock[float32]("b", []int{5}, kron.Options{Method: m})
		if err != nil {
			t.Fatal(err)
		}
		if got := b.FactorOrder(0); got != want {
			t.Errorf("%v: factor of order %d, want %d", m, got, want)
		}
	}
}

func TestNoFactorMakesAMethodOneSided(t *testing.T) {
	o := kron.Options{NoFactor: [3]bool{true}}
	b, err := kron.NewBlock[float32]("b", []int{5, 3}, o)
	if err != nil {
		t.Fatal(err)
	}
	if b.FactorOrder(0) != 0 || b.FactorOrder(1) != 3 || b.RefreshCost() != 27 {
		t.Errorf("factors %d and %d, cost %d", b.FactorOrder(0), b.FactorOrder(1), b.RefreshCost())
	}
}

// What a refresh costs the steps around it: copies of the matrices, and the products
// that move a momentum kept in the eigenbasis, two of them where the job supplies no
// rotation.
func TestAdoptionCost(t *testing.T) {
	eigen := kron.Options{Momentum: kron.MomentumEigen}
	for _, c := range []struct {
		opts kron.Options
		dims []int
		want float64
	}{
		{eigen, []int{4, 4}, 2*(16+16) + 2*(2*4*16)},
		{eigen, []int{5, 3}, 2*(25+9) + 2*(2*5*15) + 2*3*15},
		{kron.Options{}, []int{5, 3}, 2 * (25 + 9)},
		{kron.Options{Method: kron.Shampoo}, []int{5, 3}, 2 * (25 + 9)},
		{kron.Options{MaxDim: 4, Momentum: kron.MomentumEigen}, []int{5, 3}, 2*9 + 2*3*15},
		{kron.Options{MaxDim: 2, Momentum: kron.MomentumEigen}, []int{5, 3}, 0},
	} {
		b, err := kron.NewBlock[float32]("b", c.dims, c.opts)
		if err != nil {
			t.Fatal(err)
		}
		if got := b.AdoptionCost(); got != c.want {
			t.Errorf("%v of %v: %v, want %v", c.opts.Method, c.dims, got, c.want)
		}
	}
}

// The first refresh comes at the first call (SOAP, KL) or at Start (Shampoo),
// the following ones where step mod Every is Phase.
func TestDueFollowsIntervalAndPhase(t *testing.T) {
	for _, c := range []struct {
		name string
		opts kron.Options
		want string // per call: D due, . not
	}{
		{"soap", kron.Options{Every: 3}, "D..D..D..D"},
		{"soap phase", kron.Options{Every: 3, Phase: 1}, "DD..D..D.."},
		{"kl", kron.Options{Method: kron.KLShampoo, Every: 4}, "D...D...D."},
		{"shampoo", kron.Options{Method: kron.Shampoo, Every: 3}, "..D..D..D."},
		{"shampoo start", kron.Options{Method: kron.Shampoo, Every: 2, Start: 5}, "....DD.D.D"},
		{"shampoo phase", kron.Options{Method: kron.Shampoo, Every: 4, Phase: 1}, "...DD...D."},
		{"eigen", kron.Options{Method: kron.EigenShampoo, Every: 3, Start: 1}, "D.D..D..D."},
	} {
		r := newRig[float64](t, []int{3, 2}, c.opts)
		got := ""
		for _, g := range gradients[float64](5, len(c.want), 6) {
			w, v := kron.ViewOf(r.param, 3, 2), kron.ViewOf(g, 3, 2)
			due, err := r.worker.Step(context.Background(), r.block, r.state, w, v, 0.01)
			if err != nil {
				t.Fatal(err)
			}
			got += map[bool]string{true: "D", false: "."}[due]
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// powers records the exponents that blocks ask for.
type powers struct {
	krontest.Reference[float64]
	seen []float64
}

func (p *powers) Root(ctx context.Context, dst, a gemm.Matrix[float64], exponent float64) error {
	p.seen = append(p.seen, exponent)
	return p.Reference.Root(ctx, dst, a, exponent)
}

// Field failure A4: Shampoo multiplies by the power -1/4 on each side of a
// matrix, -1/2 for vectors and -1/6 for tensors of order 3.
func TestA04_ShampooExponents(t *testing.T) {
	override := kron.Options{Method: kron.Shampoo, Every: 1}
	override.Exponents[2] = [3]float64{0.5, -1}
	for _, c := range []struct {
		dims []int
		opts kron.Options
		want []float64
	}{
		{[]int{4, 3}, kron.Options{Method: kron.Shampoo, Every: 1}, []float64{0.25, 0.25}},
		{[]int{4}, kron.Options{Method: kron.Shampoo, Every: 1}, []float64{0.5}},
		{[]int{4, 3, 2}, kron.Options{Method: kron.Shampoo, Every: 1}, []float64{1. / 6, 1. / 6, 1. / 6}},
		{[]int{4, 1, 2}, kron.Options{Method: kron.Shampoo, Every: 1}, []float64{0.25, 0.25}},
		{[]int{4, 3}, override, []float64{0.5}},
	} {
		solver := &powers{Reference: krontest.Reference[float64]{Ridge: 1e-6}}
		r := newRigWith[float64](t, c.dims, c.opts, solver)
		r.step(gradients[float64](7, 1, r.block.Len())[0], 0.1)
		if diff(solver.seen, c.want) != 0 {
			t.Errorf("%v: exponents %v, want %v", c.dims, solver.seen, c.want)
		}
	}
}

// Field failure A4 for KL-Shampoo: with factors at rest, the direction is
// S0^(-1/2) M S1^(-1/2) with S0 (x) S1 the second moment of the gradient. A
// gradient that is the same matrix every step has S0 (x) S1 = vec(G)vec(G)ᵀ up
// to the scale split, so that the direction has unit singular values up to the
// dimensions: compare with the closed form of a diagonal gradient.
func TestA04_KLShampooExponents(t *testing.T) {
	const n = 3
	g := make([]float64, n*n)
	d := []float64{1, 0.25, 4}
	for i, v := range d {
		g[i*n+i] = v
	}
	o := kron.Options{Method: kron.KLShampoo, Every: 1, Betas: [2]float64{0, 0.5}, NoClamp: true, Epsilon: -1}
	r := newRig[float64](t, []int{n, n}, o)
	for range 400 {
		r.step(g, 0)
	}
	r.step(g, 1)
	// At rest λ0_i λ1_i = g_i²/n: each eigenvalue averages over n entries of
	// which one is not zero. So the direction has entries g_i/sqrt(g_i²/n).
	for i := range n {
		start := float64((i*n+i)%7) / 8
		want := start - math.Sqrt(n)
		if got := r.param[i*n+i]; !(math.Abs(got-want) < 1e-6) {
			t.Errorf("entry %d moved to %v, want %v", i, got, want)
		}
	}
}

func TestBindChecksSections(t *testing.T) {
	b, err := kron.NewBlock[float32]("layer.weight", []int{3, 2}, kron.Options{})
	if err != nil {
		t.Fatal(err)
	}
	good := kron.Cut(b.Layout(), make([]float32, b.Layout().Len()))
	if _, err := b.Bind(good[:2], new(kron.Meta)); err == nil {
		t.Error("accepted too few sections")
	}
	if _, err := b.Bind(good, nil); err == nil {
		t.Error("accepted nil counters")
	}
	good[1] = good[1][:1]
	_, err = b.Bind(good, new(kron.Meta))
	if err == nil || !strings.Contains(err.Error(), "layer.weight") || !strings.Contains(err.Error(), "basis.0") {
		t.Errorf("short section: %v, want block and section named", err)
	}
}

func TestLayoutsHoldWhatTheMethodNeeds(t *testing.T) {
	const m, n = 5, 3
	square, block := m*m+n*n, m*n
	for _, c := range []struct {
		opts kron.Options
		want int
	}{
		{kron.Options{}, 2*block + 2*square},
		{kron.Options{Betas: [2]float64{0, 0.9}}, block + 2*square},
		{kron.Options{Method: kron.Shampoo}, 2*block + 2*square},
		{kron.Options{Method: kron.Shampoo, Graft: kron.Graft{Type: kron.GraftSGD}}, block + 2*square},
		{kron.Options{Method: kron.KLShampoo}, block + 2*square + m + n},
		{kron.Options{Method: kron.KLSOAP}, 2*block + 2*square + m + n},
		{kron.Options{Method: kron.EigenShampoo}, 3*block + 2*square},
	} {
		b, err := kron.NewBlock[float32]("b", []int{m, n}, c.opts)
		if err != nil {
			t.Fatal(err)
		}
		if got := b.Layout().Len(); got != c.want {
			t.Errorf("%v: %d elements, want %d", c.opts.Method, got, c.want)
		}
		names := map[string]bool{}
		for _, s := range b.Layout().Sections {
			if names[s.Name()] {
				t.Errorf("%v: two sections %s", c.opts.Method, s.Name())
			}
			names[s.Name()] = true
		}
	}
}

func TestMetaCheckRefusesWhatNoRunProduces(t *testing.T) {
	var good kron.Meta
	good[0], good[1], good[5] = 4, 3, 4
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(m *kron.Meta){
		"negative":            func(m *kron.Meta) { m[9] = -1 },
		"steps without calls": func(m *kron.Meta) { m[1] = 5 },
		"result from later":   func(m *kron.Meta) { m[6] = 5 },
	} {
		m := good
		change(&m)
		if m.Check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestViewsMustHaveTheBlocksSides(t *testing.T) {
	r := newRig[float32](t, []int{3, 2}, kron.Options{})
	g := kron.ViewOf(make([]float32, 6), 2, 3)
	if !panics(func() {
		r.block.Begin(r.state, kron.ViewOf(r.param, 3, 2), g, 0.1, r.worker.Ops, r.worker.Scratch)
	}) {
		t.Error("accepted a transposed gradient")
	}
}

// A caller that must prepare memory for a snapshot asks before the step.
func TestDueNextForetellsDue(t *testing.T) {
	for name, opts := range everyMethod() {
		t.Run(name, func(t *testing.T) {
			opts.Every, opts.Phase = 4, 3
			r := newRig[float64](t, []int{6, 4}, opts)
			w := kron.ViewOf(r.param, r.dims...)
			for i, g := range gradients[float64](5, 17, r.block.Len()) {
				want := r.block.DueNext(r.state.Meta)
				due, err := r.worker.Step(context.Background(), r.block, r.state, w, kron.ViewOf(g, r.dims...), 1e-3)
				if err != nil {
					t.Fatal(err)
				}
				if due != want {
					t.Errorf("step %d: due is %v, foretold was %v", i+1, due, want)
				}
			}
		})
	}
}

// A snapshot and a result laid over memory of their own are those of a whole job.
func TestCutSnapshotAndResultMakeAJob(t *testing.T) {
	for name, opts := range everyMethod() {
		t.Run(name, func(t *testing.T) {
			b, err := kron.NewBlock[float32]("test", []int{7, 3, 2}, opts)
			if err != nil {
				t.Fatal(err)
			}
			var parts kron.Job[float32]
			n, indices := b.ResultLen()
			b.CutSnapshot(&parts.Snapshot, make([]float32, b.SnapshotLen()))
			b.CutResult(&parts.Result, make([]float32, n), make([]int, indices))
			if want := b.NewJob(); !reflect.DeepEqual(want, &parts) {
				t.Errorf("the parts are %+v, want %+v", parts, *want)
			}
		})
	}
}
