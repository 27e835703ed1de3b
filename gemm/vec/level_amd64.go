//go:build amd64 && gc && !noasm

package vec

import "github.com/klauspost/cpuid/v2"

// level picks the kernels. cpuid has asked the processor and the system once, in
// its own init; here only its bits are read, so that a test can switch features
// off with cpuid.CPU.Disable.
func level() isa {
	c := &cpuid.CPU
	if !c.Has(cpuid.AVX2) || !c.Has(cpuid.BMI2) {
		return portable
	}
	if c.Has(cpuid.AVX512F) && c.Has(cpuid.AVX512DQ) && c.Has(cpuid.AVX512VL) {
		return wide
	}
	return narrow
}

var levelNames = [...]string{portable: "portable", narrow: "avx2", wide: "avx512"}
