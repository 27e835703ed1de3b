module github.com/asteria-runtime/asteria/coherreg

go 1.25.0
