module github.com/asteria-runtime/asteria/trainer-olmo

go 1.25.0

require (
	github.com/asteria-runtime/asteria/coherreg v0.1.0
	github.com/asteria-runtime/asteria/gemm v0.1.0
	github.com/asteria-runtime/asteria/hiersync v0.1.0
	github.com/asteria-runtime/asteria/hooks v0.1.0
	github.com/asteria-runtime/asteria/invroot v0.1.0
	github.com/asteria-runtime/asteria/kron v0.1.0
	github.com/asteria-runtime/asteria/nvmepage v0.1.0
	github.com/asteria-runtime/asteria/streams v0.1.0
	github.com/asteria-runtime/asteria/tierctl v0.1.0
	github.com/asteria-runtime/asteria/uvm v0.1.0
	github.com/ebitengine/purego v0.11.3
	github.com/goccy/go-yaml v1.19.2
	github.com/google/go-cmp v0.7.0
	github.com/klauspost/compress v1.20.4
	github.com/klauspost/cpuid/v2 v2.4.2
	github.com/spf13/pflag v1.1.0
	golang.org/x/sys v0.41.0
	golang.org/x/text v0.40.0
	gonum.org/v1/plot v0.17.0
)

require (
	codeberg.org/go-fonts/liberation v0.5.0 // indirect
	codeberg.org/go-latex/latex v0.2.0 // indirect
	codeberg.org/go-pdf/fpdf v0.11.1 // indirect
	git.sr.ht/~sbinet/gg v0.7.0 // indirect
	github.com/ajstarks/svgo v0.0.0-20211024235047-1546f124cd8b // indirect
	github.com/golang/freetype v0.0.0-20170609003504-e2365dfdc4a0 // indirect
	golang.org/x/image v0.30.0 // indirect
)
