module github.com/asteria-runtime/asteria/streams

go 1.25.0

require (
	github.com/ebitengine/purego v0.11.3
	golang.org/x/sys v0.41.0
)
