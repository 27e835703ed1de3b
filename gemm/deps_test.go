package gemm

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// allowed lists, by folder, the imports outside the standard library.
var allowed = map[string][]string{
	".":          {"github.com/klauspost/cpuid/v2"},
	"vec":        {"github.com/asteria-runtime/asteria/gemm", "github.com/klauspost/cpuid/v2"},
	"gonumblas":  {"github.com/asteria-runtime/asteria/gemm", "gonum.org/v1/gonum/blas", "gonum.org/v1/gonum/blas/gonum"},
	"(in tests)": {"github.com/asteria-runtime/asteria/gemm", "github.com/asteria-runtime/asteria/gemm/", "gonum.org/v1/gonum/", "github.com/google/go-cmp/"},
}

func TestImports(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), "_") {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, ".go") {
			checkImports(t, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func checkImports(t *testing.T, path string) {
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	ok := allowed[filepath.Dir(path)]
	if strings.HasSuffix(path, "_test.go") {
		ok = append(append([]string{}, ok...), allowed["(in tests)"]...)
	}
	for _, i := range f.Imports {
		name, _ := strconv.Unquote(i.Path.Value)
		if strings.Contains(strings.Split(name, "/")[0], ".") && !permitted(name, ok) {
			t.Errorf("%s imports %s", path, name)
		}
	}
}

// permitted reports whether name is in the list; an entry that ends in a slash
// covers what is below it.
func permitted(name string, list []string) bool {
	for _, p := range list {
		if name == p || strings.HasSuffix(p, "/") && strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}
