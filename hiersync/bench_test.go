package hiersync_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/asteria-runtime/asteria/hiersync"
)

// BenchmarkAllreduce measures one sum over ranks in this process; B/s is the size
// of one rank's buffer per second.
func BenchmarkAllreduce(b *testing.B) {
	for _, nodes := range [][]int{{0, 0}, {0, 1}, {0, 0, 1, 1}} {
		for _, n := range []int{256, 64 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("nodes=%v/n=%d", nodes, n), func(b *testing.B) { benchAllreduce(b, nodes, n) })
		}
	}
}

func benchAllreduce(b *testing.B, nodes []int, n int) {
	w := openTwin(b, hiersync.TwinOptions{Ranks: len(nodes), Nodes: nodes})
	b.SetBytes(int64(4 * n))
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for _, c := range w.Comms() {
		wg.Go(func() {
			var h hiersync.Handle
			buf := make([]float32, n)
			for range b.N {
				err := hiersync.StartAllreduce(c, &h, hiersync.Average, buf)
				if err == nil {
					err = h.Wait(b.Context())
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkAgree is the latency of a small decision.
func BenchmarkAgree(b *testing.B) {
	w := openTwin(b, hiersync.TwinOptions{Ranks: 4, Nodes: []int{0, 0, 1, 1}})
	var wg sync.WaitGroup
	for _, c := range w.Comms() {
		wg.Go(func() {
			for range b.N {
				due := int64(c.Rank())
				if err := c.Agree(b.Context(), hiersync.Max, &due); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
