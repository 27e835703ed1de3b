module github.com/asteria-runtime/asteria/streams

go 1.25.0

require golang.org/x/sys v0.41.0
