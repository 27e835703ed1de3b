module github.com/asteria-runtime/asteria/invroot

go 1.25.0

require github.com/asteria-runtime/asteria/gemm v0.1.0

require (
	github.com/klauspost/cpuid/v2 v2.4.2 // indirect
	golang.org/x/sys v0.41.0 // indirect
)
