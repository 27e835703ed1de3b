module github.com/asteria-runtime/asteria/tierctl

go 1.25.0
