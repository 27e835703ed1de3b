// Package fma measures the peak rate of fused multiply-adds: the ceiling that the
// kernels are compared with.
package fma

import (
	"sync"
	"time"
)

// Peak returns the float32 peak in GFLOP/s on the given number of threads, the
// best of several short runs, and the instruction set that reached it. The
// float64 peak is half of it. It is 0 where no loop is written for the processor.
func Peak(threads int) (gflops float64, isa string) {
	isa, lanes, loop := best()
	if loop == nil {
		return 0, isa
	}
	const rounds = 200_000
	flops := float64(rounds) * accumulators * float64(lanes) * 2 * float64(threads)
	for range 15 {
		start := time.Now()
		var wg sync.WaitGroup
		for range threads {
			wg.Go(func() { loop(rounds) })
		}
		wg.Wait()
		gflops = max(gflops, flops/time.Since(start).Seconds()/1e9)
	}
	return gflops, isa
}
