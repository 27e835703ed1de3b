package kron_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/kron/krontest"
)

// damped are the methods whose trajectories do not amplify rounding, so that two
// orders of the same arithmetic stay close: grafted, or with full-rank factors.
func damped() map[string]kron.Options {
	all := everyMethod()
	delete(all, "shampoo plain") // inverse roots of rank-deficient factors
	return all
}

// Transposing parameter and gradient transposes the trajectory: both sides are
// treated alike, with a factor on both or on one. The factors' null spaces are
// excluded by square shapes and by a factor on the shorter side only.
func TestTransposingCommutesWithAStep(t *testing.T) {
	const seed = 21
	for name, o := range damped() {
		for _, c := range []struct{ m, n, maxDim int }{{4, 4, 0}, {3, 5, 3}} {
			o.MaxDim = c.maxDim
			a, b := newRig[float64](t, []int{c.m, c.n}, o), newRig[float64](t, []int{c.n, c.m}, o)
			copy(b.param, transpose(a.param, c.m, c.n))
			for step, g := range gradients[float64](seed, 12, c.m*c.n) {
				a.step(g, 0.01)
				b.step(transpose(g, c.m, c.n), 0.01)
				if d := diff(a.param, transpose(b.param, c.n, c.m)); !(d < 1e-9) {
					t.Fatalf("seed %d %s: step %d of %d×%d differs by %g", seed, name, step, c.m, c.n, d)
				}
			}
		}
	}
}

func transpose[T gemm.Float](x []T, m, n int) []T {
	out := make([]T, m*n)
	for i := range m {
		for j := range n {
			out[j*m+i] = x[i*n+j]
		}
	}
	return out
}

// A side of length one changes nothing: a 4×1×3 tensor is a 4×3 matrix, bit for
// bit.
func TestUnitSidesDoNotMatter(t *testing.T) {
	for name, o := range everyMethod() {
		want := newRig[float64](t, []int{4, 3}, o)
		for _, dims := range [][]int{{4, 1, 3}, {1, 4, 3}, {4, 3, 1}} {
			got := newRig[float64](t, dims, o)
			for i := range got.param {
				got.param[i] = T64(i)
				want.param[i] = T64(i)
			}
			want.block.Reset(want.state)
			for _, g := range gradients[float64](22, 8, 12) {
				want.step(g, 0.01)
				got.step(g, 0.01)
			}
			if !sameBits(got.param, want.param) {
				t.Errorf("%s: %v differs from [4 3] by %g", name, dims, diff(got.param, want.param))
			}
		}
	}
}

// T64 is an initial parameter.
func T64(i int) float64 { return float64(i%7) / 8 }

// Where the momentum is kept changes rounding only.
func TestMomentumSpacesAgree(t *testing.T) {
	for _, m := range []kron.Method{kron.SOAP, kron.KLShampoo, kron.KLSOAP} {
		for _, dims := range [][]int{{4, 4}, {3, 4, 3}, {6, 5}} {
			o := kron.Options{Method: m, Every: 2}
			a := newRig[float64](t, dims, o)
			o.Momentum = kron.MomentumEigen
			b := newRig[float64](t, dims, o)
			for _, g := range gradients[float64](23, 15, a.block.Len()) {
				a.step(g, 0.01)
				b.step(g, 0.01)
			}
			if d := diff(a.param, b.param); !(d < 1e-11) {
				t.Errorf("%v %v: parameters differ by %g", m, dims, d)
			}
			ma, mb := make([]float64, a.block.Len()), make([]float64, a.block.Len())
			if err := a.block.MomentumIn(ma, a.state, a.worker.Ops, a.worker.Scratch); err != nil {
				t.Fatal(err)
			}
			if err := b.block.MomentumIn(mb, b.state, b.worker.Ops, b.worker.Scratch); err != nil {
				t.Fatal(err)
			}
			if d := diff(ma, mb); !(d < 1e-11) {
				t.Errorf("%v %v: momenta differ by %g", m, dims, d)
			}
		}
	}
}

// float32 follows float64 while rounding has had no time to grow: the relative
// error of one step is a small multiple of the unit roundoff times the gain of
// the method.
func TestFloat32FollowsFloat64(t *testing.T) {
	for name, o := range damped() {
		wide, narrow := newRig[float64](t, []int{5, 5}, o), newRig[float32](t, []int{5, 5}, o)
		for _, g := range gradients[float32](24, 10, 25) {
			g64 := make([]float64, len(g))
			for i, v := range g {
				g64[i] = float64(v)
			}
			wide.step(g64, 0.01)
			narrow.step(g, 0.01)
		}
		got := make([]float64, 25)
		for i, v := range narrow.param {
			got[i] = float64(v)
		}
		if d := diff(got, wide.param); !(d < 2e-5) { // as the golden files have it
			t.Errorf("%s: differs by %g", name, d)
		}
	}
}

// Field failure A12: a gradient given as a transposed view, as every second row,
// or as a slice of a fused buffer gives the same bits as a packed copy; so does
// a parameter that lies so, whose neighbours stay untouched.
func TestA12_StridedViewsGiveTheSameBits(t *testing.T) {
	const m, n = 5, 18
	layouts := map[string]kron.View[float32]{
		"transposed":       {Data: make([]float32, m*n), Dims: [3]int{1, m, n}, Strides: [3]int{0, 1, m}},
		"every second row": {Data: make([]float32, 2*m*n), Dims: [3]int{1, m, n}, Strides: [3]int{0, 2 * n, 1}},
		"slice of a fused": {Data: make([]float32, m*3*n)[n:], Dims: [3]int{1, m, n}, Strides: [3]int{0, 3 * n, 1}},
		"every third":      {Data: make([]float32, 3*m*n), Dims: [3]int{1, m, n}, Strides: [3]int{0, 3 * n, 3}},
	}
	for name, o := range everyMethod() {
		for layout, view := range layouts {
			want := newRig[float32](t, []int{m, n}, o)
			got := newRig[float32](t, []int{m, n}, o)
			const guard = 1234.5
			g, w := like(view, guard), like(view, guard)
			scatter(w, got.param)
			for _, packed := range gradients[float32](25, 7, m*n) {
				want.step(packed, 0.01)
				scatter(g, packed)
				if _, err := got.worker.Step(context.Background(), got.block, got.state, w, g, 0.01); err != nil {
					t.Fatal(err)
				}
			}
			if !sameBits(collect(w), want.param) {
				t.Errorf("%s, %s: differs by %g", name, layout, diff(collect(w), want.param))
			}
			if n := outside(w, guard) + outside(g, guard); n > 0 {
				t.Errorf("%s, %s: wrote %d neighbours", name, layout, n)
			}
		}
	}
}

// like returns a view of the same geometry over fresh memory full of fill.
func like(v kron.View[float32], fill float32) kron.View[float32] {
	v.Data = make([]float32, len(v.Data))
	for i := range v.Data {
		v.Data[i] = fill
	}
	return v
}

// at calls f with the index into Data of each element, in row-major order.
func at(v kron.View[float32], f func(i int)) {
	for i := range v.Dims[0] {
		for j := range v.Dims[1] {
			for k := range v.Dims[2] {
				f(i*v.Strides[0] + j*v.Strides[1] + k*v.Strides[2])
			}
		}
	}
}

func scatter(v kron.View[float32], x []float32) {
	e := 0
	at(v, func(i int) { v.Data[i] = x[e]; e++ })
}

func collect(v kron.View[float32]) []float32 {
	var out []float32
	at(v, func(i int) { out = append(out, v.Data[i]) })
	return out
}

// outside counts elements outside the view that are not fill any more.
func outside(v kron.View[float32], fill float32) int {
	inside := map[int]bool{}
	at(v, func(i int) { inside[i] = true })
	n := 0
	for i, x := range v.Data {
		if !inside[i] && x != fill {
			n++
		}
	}
	return n
}

// A parameter cut into tiles is as many independent blocks.
func TestTilesAreIndependentBlocks(t *testing.T) {
	const rows, cols = 5, 4
	tiles, err := kron.Partition([]int{rows, cols}, kron.Tiling{Limit: 3, Split: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range everyMethod() {
		param := gradients[float64](26, 1, rows*cols)[0]
		grads := gradients[float64](27, 6, rows*cols)
		for _, tile := range tiles {
			whole, alone := newRig[float64](t, tile.Dims, o), newRig[float64](t, tile.Dims, o)
			copy(alone.param, pack(kron.TileView(param, tile)))
			for _, g := range grads {
				view := kron.TileView(g, tile)
				if _, err := whole.worker.Step(context.Background(), whole.block, whole.state, kron.TileView(param, tile), view, 0.01); err != nil {
					t.Fatal(err)
				}
				alone.step(pack(view), 0.01)
			}
			if got := pack(kron.TileView(param, tile)); !sameBits(got, alone.param) {
				t.Errorf("%s: tile %v at %d differs by %g", name, tile.Dims, tile.Offset, diff(got, alone.param))
			}
		}
	}
}

func pack(v kron.View[float64]) []float64 {
	var out []float64
	visit(v, func(x *float64) { out = append(out, *x) })
	return out
}

// Field failure A24: where the state lies changes nothing. Here it is evicted to
// other slices and bound anew between all steps, and a run whose adoptions copy
// is compared with one whose adoptions exchange buffers.
func TestA24_PlacementDoesNotChangeTheBits(t *testing.T) {
	for name, o := range everyMethod() {
		t.Run(name, func(t *testing.T) {
			fixed, moved := newRig[float32](t, []int{6, 5}, o), newRig[float32](t, []int{6, 5}, o)
			swapped := newRig[float32](t, []int{6, 5}, o)
			for _, g := range gradients[float32](28, 20, 30) {
				fixed.step(g, 0.01)
				moved.step(g, 0.01)
				moved.state = rebind(t, moved.block, moved.state)
				swapped.stepSwapping(g, 0.01)
			}
			if !sameBits(fixed.param, moved.param) {
				t.Error("evicting the state changed the parameters")
			}
			if !sameBits(fixed.param, swapped.param) {
				t.Error("exchanging buffers changed the parameters")
			}
		})
	}
}

// rebind copies st into fresh memory.
func rebind[T gemm.Float](t testing.TB, b *kron.Block[T], st *kron.State[T]) *kron.State[T] {
	t.Helper()
	meta := *st.Meta
	var sections [][]T
	for _, s := range b.Layout().Sections {
		sections = append(sections, append([]T(nil), st.Section(s)...))
	}
	fresh, err := b.Bind(sections, &meta)
	if err != nil {
		t.Fatal(err)
	}
	return fresh
}

// stepSwapping is step with a job of its own for every refresh.
func (r *rig[T]) stepSwapping(g []T, lr float64) {
	r.t.Helper()
	w, v := kron.ViewOf(r.param, r.dims...), kron.ViewOf(g, r.dims...)
	ops, sc := r.worker.Ops, r.worker.Scratch
	r.block.Begin(r.state, w, v, lr, ops, sc)
	if r.block.Due(r.state.Meta) {
		job := r.block.NewJob()
		if err := r.block.Snapshot(r.state, &job.Snapshot); err != nil {
			r.t.Fatal(err)
		}
		if err := r.block.Refresh(context.Background(), r.worker.Solver, ops, &job.Snapshot, &job.Result); err != nil {
			r.t.Fatal(err)
		}
		if err := r.block.Install(r.state, &job.Result, ops, sc); err != nil {
			r.t.Fatal(err)
		}
	}
	r.block.Finish(r.state, w, v, lr, ops, sc)
}

// Threads inside the products change nothing.
func TestThreadsDoNotChangeTheBits(t *testing.T) {
	dims := []int{70, 33}
	for name, o := range everyMethod() {
		one := newRig[float32](t, dims, o)
		two := newRig[float32](t, dims, o)
		eng := gemm.New(3)
		defer eng.Close()
		two.worker = kron.NewWorker[float32](kron.NewCPU[float32](eng), krontest.Reference[float32]{Ridge: 1e-9}, two.block)
		for _, g := range gradients[float32](29, 4, 70*33) {
			one.step(g, 0.01)
			two.step(g, 0.01)
		}
		if !sameBits(one.param, two.param) {
			t.Errorf("%s: 3 threads differ from 1 by %g", name, diff(one.param, two.param))
		}
	}
}

// A step allocates nothing, with or without a refresh whose solver does not.
func TestStepDoesNotAllocate(t *testing.T) {
	for name, o := range everyMethod() {
		for _, dims := range [][]int{{9, 8}, {3, 4, 5}, {6}} {
			r := newRigWith[float32](t, dims, o, still{})
			g := gradients[float32](30, 1, r.block.Len())[0]
			w, v := kron.ViewOf(r.param, dims...), kron.ViewOf(g, dims...)
			step := func() {
				if _, err := r.worker.Step(context.Background(), r.block, r.state, w, v, 0.01); err != nil {
					t.Fatal(err)
				}
			}
			for range 4 {
				step()
			}
			if n := testing.AllocsPerRun(20, step); n != 0 {
				t.Errorf("%s %v: %v allocations a step", name, dims, n)
			}
		}
	}
}

// still is a solver that leaves bases alone and sets roots to the identity.
type still struct{}

func (still) Root(_ context.Context, dst, _ gemm.Matrix[float32], _ float64) error {
	clear(dst.Data)
	for i := range dst.Rows {
		dst.Set(i, i, 1)
	}
	return nil
}

func (still) Eigen(_ context.Context, _ gemm.Matrix[float32], w []float32, _ gemm.Matrix[float32], _ bool) error {
	for i := range w {
		w[i] = 1
	}
	return nil
}

func (still) Iterate(_ context.Context, _, _ gemm.Matrix[float32], perm []int) error {
	for i := range perm {
		perm[i] = i
	}
	return nil
}

func (still) Diagonalize(context.Context, gemm.Matrix[float32], []float32, gemm.Matrix[float32], int, float64) error {
	return nil
}

// Updates of SOAP and grafted Shampoo do not depend on the scale of the gradient.
func TestScalingTheGradientDoesNotScaleTheUpdate(t *testing.T) {
	const seed = 31
	rng := rand.New(rand.NewPCG(seed, 0))
	scale := 1 + 100*rng.Float64()
	for _, m := range []kron.Method{kron.SOAP, kron.Shampoo} {
		o := kron.Options{Method: m, Every: 2, Epsilon: -1, Graft: kron.Graft{Epsilon: -1}}
		a, b := newRigWith[float64](t, []int{4, 4}, o, krontest.Reference[float64]{}), newRigWith[float64](t, []int{4, 4}, o, krontest.Reference[float64]{})
		for _, g := range gradients[float64](seed, 9, 16) {
			a.step(g, 0.01)
			for i := range g {
				g[i] *= scale
			}
			b.step(g, 0.01)
		}
		if d := diff(a.param, b.param); !(d < 1e-9) {
			t.Errorf("seed %d %v: scale %g moves the parameters by %g", seed, m, scale, d)
		}
	}
}
