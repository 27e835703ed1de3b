//go:build !amd64

package fma

const accumulators = 1

func best() (isa string, lanes int, loop func(n int)) { return "none", 0, nil }
