package kron_test

import (
	"fmt"
	"testing"

	"github.com/asteria-runtime/asteria/kron"
)

// BenchmarkStep is a step without refresh on one thread. GFLOP/s counts the
// products that the method needs, half of each Gram matrix included.
func BenchmarkStep(b *testing.B) {
	methods := []struct {
		name     string
		opts     kron.Options
		products float64 // of m·n·side, beside the factors
	}{
		{"soap", kron.Options{Momentum: kron.MomentumEigen}, 4},
		{"soap-original", kron.Options{}, 6},
		{"shampoo", kron.Options{Method: kron.Shampoo}, 2},
		{"kl-shampoo", kron.Options{Method: kron.KLShampoo, Momentum: kron.MomentumEigen}, 5},
	}
	for _, m := range methods {
		for _, dims := range [][]int{{256, 256}, {688, 256}, {1024, 1024}} {
			b.Run(fmt.Sprintf("%s/%dx%d", m.name, dims[0], dims[1]), func(b *testing.B) {
				m.opts.Every = 1 << 40
				m.opts.Start = 1
				benchStep(b, dims, m.opts, m.products)
			})
		}
	}
}

func benchStep(b *testing.B, dims []int, o kron.Options, products float64) {
	r := newRigWith[float32](b, dims, o, still{})
	g := gradients[float32](1, 1, r.block.Len())[0]
	for range 3 {
		r.step(g, 1e-3)
	}
	b.ReportAllocs()
	for b.Loop() {
		r.step(g, 1e-3)
	}
	m, n := float64(dims[0]), float64(dims[1])
	flop := (products + 1) * m * n * (m + n)
	b.ReportMetric(flop*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}

// BenchmarkInstall is the adoption of a basis: what a late result costs the step
// that adopts it.
func BenchmarkInstall(b *testing.B) {
	for _, space := range []kron.MomentumSpace{kron.MomentumOriginal, kron.MomentumEigen} {
		b.Run(fmt.Sprintf("momentum%d", space), func(b *testing.B) {
			r := newRigWith[float32](b, []int{688, 256}, kron.Options{Momentum: space}, still{})
			for _, g := range gradients[float32](2, 2, r.block.Len()) {
				r.step(g, 1e-3)
			}
			job := r.finishedJob()
			job.Result.Shared = true
			b.ReportAllocs()
			for b.Loop() {
				for k := range r.block.Modes() {
					job.Result.Base[k] = r.state.Meta.Version(k)
				}
				r.install(job)
			}
		})
	}
}

// BenchmarkSnapshot is the copy that a refresh job starts from.
func BenchmarkSnapshot(b *testing.B) {
	r := newRigWith[float32](b, []int{688, 256}, kron.Options{}, still{})
	job := r.block.NewJob()
	b.SetBytes(4 * 2 * (688*688 + 256*256))
	for b.Loop() {
		if err := r.block.Snapshot(r.state, &job.Snapshot); err != nil {
			b.Fatal(err)
		}
	}
}

var _ kron.Refresher[float32] = still{}

// BenchmarkStepFloat64 is SOAP in the reference mode.
func BenchmarkStepFloat64(b *testing.B) {
	r := newRig[float64](b, []int{256, 256}, kron.Options{Every: 1 << 40, Momentum: kron.MomentumEigen})
	g := gradients[float64](3, 1, r.block.Len())[0]
	w, v := kron.ViewOf(r.param, 256, 256), kron.ViewOf(g, 256, 256)
	for b.Loop() {
		r.block.Begin(r.state, w, v, 1e-3, r.worker.Ops, r.worker.Scratch)
	}
}
