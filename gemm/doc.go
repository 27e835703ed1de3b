// Package gemm provides dense level-3 kernels for float32 and float64.
package gemm
