module github.com/asteria-runtime/asteria/trainer-olmo

go 1.25.0

require (
	golang.org/x/text v0.40.0
	github.com/klauspost/compress v1.20.4
	github.com/goccy/go-yaml v1.19.2
	github.com/google/go-cmp v0.7.0
	github.com/spf13/pflag v1.1.0
	gonum.org/v1/plot v0.17.0
	golang.org/x/sys v0.38.0
	github.com/asteria-runtime/asteria/gemm v0.1.0
	github.com/asteria-runtime/asteria/hooks v0.1.0
	github.com/asteria-runtime/asteria/invroot v0.1.0
	github.com/asteria-runtime/asteria/kron v0.1.0
)
