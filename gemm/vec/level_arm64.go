//go:build arm64 && gc && !noasm

package vec

import "github.com/klauspost/cpuid/v2"

// level picks the kernels; see level_amd64.go.
func level() isa {
	if !cpuid.CPU.Has(cpuid.ASIMD) {
		return portable
	}
	return narrow
}

var levelNames = [...]string{portable: "portable", narrow: "neon"}
