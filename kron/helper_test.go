package kron_test

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/kron/krontest"
)

// rig is one block with everything a step needs.
type rig[T gemm.Float] struct {
	t      testing.TB
	block  *kron.Block[T]
	state  *kron.State[T]
	worker *kron.Worker[T]
	param  []T
	dims   []int
}

func newRig[T gemm.Float](t testing.TB, dims []int, opts kron.Options) *rig[T] {
	return newRigWith[T](t, dims, opts, krontest.Reference[T]{Ridge: 1e-9})
}

func newRigWith[T gemm.Float](t testing.TB, dims []int, opts kron.Options, solver kron.Refresher[T]) *rig[T] {
	t.Helper()
	b, err := kron.NewBlock[T]("test", dims, opts)
	if err != nil {
		t.Fatal(err)
	}
	eng := gemm.New(1)
	t.Cleanup(eng.Close)
	r := &rig[T]{t: t, block: b, dims: dims, param: make([]T, b.Len())}
	r.state = bind(t, b)
	r.worker = kron.NewWorker[T](kron.NewCPU[T](eng), solver, b)
	for i := range r.param {
		r.param[i] = T(i%7) / 8
	}
	return r
}

// bind allocates and resets a state.
func bind[T gemm.Float](t testing.TB, b *kron.Block[T]) *kron.State[T] {
	t.Helper()
	l := b.Layout()
	st, err := b.Bind(kron.Cut(l, make([]T, l.Len())), new(kron.Meta))
	if err != nil {
		t.Fatal(err)
	}
	b.Reset(st)
	return st
}

// step runs one synchronous step with a packed gradient.
func (r *rig[T]) step(g []T, lr float64) {
	r.t.Helper()
	w, v := kron.ViewOf(r.param, r.dims...), kron.ViewOf(g, r.dims...)
	if _, err := r.worker.Step(context.Background(), r.block, r.state, w, v, lr); err != nil {
		r.t.Fatal(err)
	}
}

// gradients returns steps gradients of n normal numbers.
func gradients[T gemm.Float](seed uint64, steps, n int) [][]T {
	rng := rand.New(rand.NewPCG(seed, 1))
	out := make([][]T, steps)
	for i := range out {
		out[i] = make([]T, n)
		for j := range out[i] {
			out[i][j] = T(rng.NormFloat64())
		}
	}
	return out
}

// everyMethod lists options under which all code paths of a step run.
func everyMethod() map[string]kron.Options {
	return map[string]kron.Options{
		"soap":             {Every: 3, WeightDecay: 0.1},
		"soap eigen":       {Every: 3, Momentum: kron.MomentumEigen},
		"soap eigh":        {Every: 2, Basis: kron.RefreshEigh},
		"soap no moment":   {Every: 3, Betas: [2]float64{0, 0.9}, Momentum: kron.MomentumEigen},
		"kl no moment":     {Method: kron.KLShampoo, Every: 3, Betas: [2]float64{0, 0.9}},
		"soap normalized":  {Every: 3, NormalizeUpdate: true, NoBiasCorrection: true},
		"shampoo adam":     {Method: kron.Shampoo, Every: 3, WeightDecay: 0.1},
		"shampoo plain":    {Method: kron.Shampoo, Every: 3, Graft: kron.Graft{Type: kron.GraftNone}, Beta3: 0.5},
		"shampoo sgd l2":   {Method: kron.Shampoo, Every: 3, Graft: kron.Graft{Type: kron.GraftSGD}, Decay: kron.L2, WeightDecay: 0.1},
		"shampoo adagrad":  {Method: kron.Shampoo, Every: 3, Betas: [2]float64{0.9, 1}, Graft: kron.Graft{Type: kron.GraftAdagrad}},
		"shampoo whitened": {Method: kron.Shampoo, Every: 3, WhitenGram: true, Graft: kron.Graft{Type: kron.GraftRMSprop}},
		"kl-shampoo":       {Method: kron.KLShampoo, Every: 3, WeightDecay: 0.1},
		"kl-shampoo eigen": {Method: kron.KLShampoo, Every: 3, Momentum: kron.MomentumEigen, Damping: true},
		"kl-shampoo eigh":  {Method: kron.KLShampoo, Every: 3, Basis: kron.RefreshEigh},
		"kl-soap":          {Method: kron.KLSOAP, Every: 3},
		"kl-soap eigen":    {Method: kron.KLSOAP, Every: 3, Momentum: kron.MomentumEigen},
		"eigen-shampoo":    {Method: kron.EigenShampoo, Every: 3, Graft: kron.Graft{Type: kron.GraftNone}},
		"eigen-shampoo qr": {Method: kron.EigenShampoo, Every: 3, QRIterations: 2},
	}
}

// diff returns the largest absolute difference, +Inf for NaN or lengths.
func diff[T gemm.Float](a, b []T) float64 {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	d := 0.0
	for i := range a {
		if v := math.Abs(float64(a[i]) - float64(b[i])); !(v <= d) {
			d = v
		}
	}
	return d
}

// sameBits reports whether two slices are equal bit for bit.
func sameBits[T gemm.Float](a, b []T) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if math.Float64bits(float64(a[i])) != math.Float64bits(float64(b[i])) {
			return false
		}
	}
	return true
}
