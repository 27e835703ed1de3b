package gorgonia

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// used is what the adapter takes of gorgonia.org/cu.
var used = []string{"type CUContext", "type Stream", "func (*Ctx) CUDAContext", "func (Stream) Priority", "func StreamPriorityRange"}

// TestTheFakeIsLikeTheRealPackage compares what the adapter uses of the fake with
// the sources of the real one, which only need to be readable.
func TestTheFakeIsLikeTheRealPackage(t *testing.T) {
	real, fake := declarations(t, sources(t)), declarations(t, "fake")
	for _, name := range used {
		switch {
		case real[name] == "":
			t.Errorf("%s: gorgonia.org/cu has it no more", name)
		case fake[name] == "":
			t.Errorf("%s: the fake does not have it", name)
		case real[name] != fake[name]:
			t.Errorf("%s: %s in gorgonia.org/cu, %s in the fake", name, real[name], fake[name])
		default:
			t.Logf("%s: %s", name, real[name])
		}
	}
}

// sources returns the folder of the real package, or skips.
func sources(t *testing.T) string {
	cmd := exec.Command("go", "mod", "download", "-json", "gorgonia.org/cu@v0.9.6")
	cmd.Dir = t.TempDir() // outside of any module or workspace
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	out, err := cmd.Output()
	var m struct{ Dir, Error string }
	if json.Unmarshal(out, &m) != nil || m.Dir == "" {
		t.Skipf("the sources of gorgonia.org/cu cannot be had here: %v %s", err, m.Error)
	}
	return m.Dir
}

// declarations maps names to signatures. A struct is its fields' kinds alone: one
// C pointer is the same as one unsafe.Pointer.
func declarations(t *testing.T, dir string) map[string]string {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no sources in %s: %v", dir, err)
	}
	out, fset := map[string]string{}, token.NewFileSet()
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") || strings.HasSuffix(f, "ctx_debug.go") {
			continue // ctx_debug.go is the same under another tag
		}
		parsed, err := parser.ParseFile(fset, f, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			declare(out, fset, d)
		}
	}
	return out
}

func declare(out map[string]string, fset *token.FileSet, d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		name := "func " + d.Name.Name
		if d.Recv != nil {
			name = "func (" + text(fset, d.Recv.List[0].Type) + ") " + d.Name.Name
		}
		out[name] = types(fset, d.Type.Params) + " -> " + types(fset, d.Type.Results)
	case *ast.GenDecl:
		for _, s := range d.Specs {
			if spec, ok := s.(*ast.TypeSpec); ok {
				if st, ok := spec.Type.(*ast.StructType); ok {
					out["type "+spec.Name.Name] = types(fset, st.Fields)
				}
			}
		}
	}
}

// types lists the types of fields or parameters without their names.
func types(fset *token.FileSet, list *ast.FieldList) string {
	var all []string
	if list != nil {
		for _, f := range list.List {
			kind := text(fset, f.Type)
			if strings.HasPrefix(kind, "C.CU") || kind == "unsafe.Pointer" {
				kind = "pointer"
			}
			for range max(1, len(f.Names)) {
				all = append(all, kind)
			}
		}
	}
	return "(" + strings.Join(all, ", ") + ")"
}

func text(fset *token.FileSet, e ast.Expr) string {
	var b strings.Builder
	_ = printer.Fprint(&b, fset, e)
	return b.String()
}
