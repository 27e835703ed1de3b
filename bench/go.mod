module github.com/asteria-runtime/asteria/bench

go 1.25.0

require (
	github.com/asteria-runtime/asteria/gemm v0.1.0
	github.com/asteria-runtime/asteria/invroot v0.1.0
	github.com/asteria-runtime/asteria/nvmepage v0.1.0
	github.com/asteria-runtime/asteria/trainer-olmo v0.1.0
	github.com/ebitengine/purego v0.11.3
	github.com/klauspost/cpuid/v2 v2.4.2
)
