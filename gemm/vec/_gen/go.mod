module github.com/asteria-runtime/asteria/gemm/vec/_gen

go 1.25.0

require (
	github.com/asteria-runtime/asteria/gemm/_gen v0.0.0
	github.com/mmcloughlin/avo v0.6.0
)

require (
	golang.org/x/mod v0.29.0 // indirect
	golang.org/x/sync v0.17.0 // indirect
	golang.org/x/tools v0.38.0 // indirect
)

replace github.com/asteria-runtime/asteria/gemm/_gen => ../../_gen
