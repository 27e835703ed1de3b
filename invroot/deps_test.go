package invroot

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// allowedImports are the modules beside the standard library that may be imported: the
// matrix products, and the module's own packages.
var allowedImports = []string{
	"github.com/asteria-runtime/asteria/gemm",
	"github.com/asteria-runtime/asteria/gemm/vec",
	"github.com/asteria-runtime/asteria/invroot",
	"github.com/asteria-runtime/asteria/invroot/invroottest",
	"github.com/asteria-runtime/asteria/invroot/internal/jacobi",
}

func TestImports(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), "_"):
			return fs.SkipDir
		case strings.HasSuffix(path, ".go"):
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
	for _, spec := range f.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(name, "/")
		if strings.Contains(first, ".") && !slices.Contains(allowedImports, name) {
			t.Errorf("%s imports %s", path, name)
		}
	}
}
