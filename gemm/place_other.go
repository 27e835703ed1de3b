//go:build !linux

package gemm

func stepAside() {}
