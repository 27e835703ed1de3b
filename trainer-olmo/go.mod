module github.com/asteria-runtime/asteria/trainer-olmo

go 1.25.0

require (
	github.com/asteria-runtime/asteria/gemm v0.1.0
	github.com/asteria-runtime/asteria/hooks v0.1.0
	github.com/asteria-runtime/asteria/invroot v0.1.0
	github.com/asteria-runtime/asteria/kron v0.1.0
)
