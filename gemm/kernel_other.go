//go:build (!amd64 && !arm64) || noasm

package gemm

// best is the fastest kernel set of this build.
func best() Kernel { return Generic }

// families returns the kernels of k.
func families(Kernel) (*family[float32], *family[float64]) {
	return genericFamily[float32](), genericFamily[float64]()
}
