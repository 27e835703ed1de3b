//go:build !linux

package gemm

func adviseHuge(start, n uintptr) {}
