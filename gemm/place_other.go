//go:build !linux

package gemm

func stepAside() {}

func prepareStepAside() {}
