module github.com/asteria-runtime/asteria/tools

go 1.25.0

require golang.org/x/mod v0.30.0
