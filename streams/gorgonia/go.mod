module github.com/asteria-runtime/asteria/streams/gorgonia

go 1.25.0

require (
	github.com/asteria-runtime/asteria/streams v0.1.0
	gorgonia.org/cu v0.9.6
)
