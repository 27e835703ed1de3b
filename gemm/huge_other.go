//go:build !linux

package gemm

func adviseHuge([]byte) {}
