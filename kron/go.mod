module github.com/asteria-runtime/asteria/kron

go 1.25.0

require github.com/asteria-runtime/asteria/gemm v0.1.0
