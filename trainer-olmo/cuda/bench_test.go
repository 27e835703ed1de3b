package cuda_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/invroot"
	"github.com/asteria-runtime/asteria/streams"
	"github.com/asteria-runtime/asteria/streams/cudasim"
)

// orders are those of the refresh benchmarks: small on the simulator, whose times
// mean nothing.
func orders() []int {
	if cudasim.Loaded() {
		return []int{64}
	}
	return []int{512, 1024, 2048}
}

// factor is a random positive definite matrix, as XᵀX of a long X gives it.
func factor(n int) gemm.Matrix[float32] {
	g := rand.New(rand.NewPCG(1, uint64(n)))
	x, a := gemm.NewMatrix[float32](2*n, n), gemm.NewMatrix[float32](n, n)
	for i := range x.Data {
		x.Data[i] = float32(g.NormFloat64())
	}
	eng := gemm.New(1)
	defer eng.Close()
	gemm.Mul(eng, true, false, 1/float32(2*n), x, x, 0, a)
	return a
}

func BenchmarkRefresh(b *testing.B) {
	for _, n := range orders() {
		c := newContext(b, false)
		r := newRefresher[float32](b, c, n, invroot.Options{})
		a, x, w := factor(n), gemm.NewMatrix[float32](n, n), make([]float32, n)
		for name, f := range map[string]func() error{
			"root4": func() error { return r.Root(b.Context(), x, a, 0.25) },
			"eigen": func() error { return r.Eigen(b.Context(), x, w, a, true) },
			"iterate": func() error {
				clear(x.Data)
				for i := range n {
					x.Set(i, i, 1)
				}
				return r.Iterate(b.Context(), x, a, nil)
			},
		} {
			b.Run(fmt.Sprintf("%s/n=%d", name, n), func(b *testing.B) {
				before := r.Stats()
				for b.Loop() {
					if err := f(); err != nil {
						b.Fatal(err)
					}
				}
				done := r.Stats()
				b.ReportMetric(r.Report().Residual, "residual")
				b.ReportMetric(float64(done.Device-before.Device)/float64(done.Device+done.Host-before.Device-before.Host), "on-device")
			})
		}
	}
}

// BenchmarkThreshold measures where the device overtakes the host: the smallest order
// for which it is faster is the machine's runtime.device_min_order.
func BenchmarkThreshold(b *testing.B) {
	sizes := []int{64, 128, 256, 512}
	if cudasim.Loaded() {
		sizes = []int{16}
	}
	for _, n := range sizes {
		a, x := factor(n), gemm.NewMatrix[float32](n, n)
		eng := gemm.New(1)
		host, err := invroot.NewSolver[float32](eng, n, invroot.Options{})
		if err != nil {
			b.Fatal(err)
		}
		device := newRefresher[float32](b, newContext(b, false), n, invroot.Options{})
		for name, r := range map[string]interface {
			Root(ctx context.Context, dst, a gemm.Matrix[float32], exponent float64) error
		}{"host": invroot.NewRefresher(host), "device": device} {
			b.Run(fmt.Sprintf("%s/n=%d", name, n), func(b *testing.B) {
				for b.Loop() {
					if err := r.Root(b.Context(), x, a, 0.25); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		host.Close()
		eng.Close()
	}
}

func BenchmarkProduct(b *testing.B) {
	for _, own := range []bool{true, false} {
		for _, n := range orders() {
			b.Run(fmt.Sprintf("own=%v/n=%d", own, n), func(b *testing.B) {
				c := newContext(b, own)
				o := newOps[float32](b, c)
				a, y := factor(n), gemm.NewMatrix[float32](n, n)
				o.Gemm(false, false, 1, a, a, 0, y) // operands stay on the device until Sync
				for b.Loop() {
					for range 10 {
						o.Gemm(false, false, 1, a, a, 0, y)
					}
					o.SumSquares(y.Data[:1]) // waits
				}
				b.ReportMetric(20*float64(n)*float64(n)*float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}

// BenchmarkMove measures copies from pinned memory and the prefetch of managed memory.
func BenchmarkMove(b *testing.B) {
	n := int64(256 << 20)
	if cudasim.Loaded() {
		n = 1 << 20
	}
	d := cudasim.Device(b)
	s, err := d.NewStream(streams.Normal)
	if err != nil {
		b.Fatal(err)
	}
	device, err1 := d.AllocDevice(n)
	pinned, err2 := d.AllocPinned(n)
	managed, err3 := d.AllocManaged(n)
	if err1 != nil || err2 != nil || err3 != nil {
		b.Fatal(err1, err2, err3)
	}
	defer func() { _, _, _ = d.Free(device), d.FreePinned(pinned), d.Free(managed) }()
	_, _, concurrent := d.MemoryAccess()
	for name, f := range map[string]func() error{
		"upload":   func() error { return s.CopyBytes(device, pinned, n) },
		"download": func() error { return s.CopyBytes(pinned, device, n) },
		"prefetch": func() error {
			if !concurrent {
				return nil
			}
			if err := d.Prefetch(managed, n, true, s.Handle()); err != nil {
				return err
			}
			return d.Prefetch(managed, n, false, s.Handle())
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(n)
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
				if err := s.Synchronize(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
