// Package testkernels embeds kernels that only tests launch.
package testkernels

import _ "embed"

// SM80 and SM90 are test.cu for compute capability 8.0 and 9.0; make ptx writes them.
var (
	//go:embed test_sm80.ptx
	SM80 []byte
	//go:embed test_sm90.ptx
	SM90 []byte
)
