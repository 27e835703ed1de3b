package kron

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The module needs gemm and nothing else beside the standard library: who takes
// the mathematics must not get a solver, a runtime or a test framework with it.
func TestImportsStayWithinGemm(t *testing.T) {
	const prefix = "github.com/asteria-runtime/asteria/"
	allowed := map[string]bool{prefix + "gemm": true, prefix + "gemm/vec": true, prefix + "kron": true, prefix + "kron/krontest": true}
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no sources: %v", err)
	}
	more, err := filepath.Glob("*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(files, more...) {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range f.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			first, _, _ := strings.Cut(path, "/")
			if strings.Contains(first, ".") && !allowed[path] {
				t.Errorf("%s imports %s, allowed are gemm and gemm/vec", name, path)
			}
			test := strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "krontest")
			if (path == "testing" || path == prefix+"kron/krontest") && !test {
				t.Errorf("%s imports %s outside tests", name, path)
			}
		}
	}
}
