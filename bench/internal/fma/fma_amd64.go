package fma

import "github.com/klauspost/cpuid/v2"

// accumulators is the number of independent chains in a loop: latency 4 times
// two units, and some more.
const accumulators = 12

//go:noescape
func loopAVX512(n int)

//go:noescape
func loopAVX2(n int)

func best() (isa string, lanes int, loop func(n int)) {
	switch {
	case cpuid.CPU.Has(cpuid.AVX512F):
		return "avx512", 16, loopAVX512
	case cpuid.CPU.Has(cpuid.AVX2) && cpuid.CPU.Has(cpuid.FMA3):
		return "avx2", 8, loopAVX2
	}
	return "none", 0, nil
}
