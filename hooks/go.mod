module github.com/asteria-runtime/asteria/hooks

go 1.25.0
