package trainerolmo

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const (
	prefix = "github.com/asteria-runtime/asteria/"
	own    = prefix + "trainer-olmo/"
)

// allowed lists, by folder, what may be imported outside the standard library.
// The order is that of the dependencies: nothing imports what stands below it.
var allowed = map[string][]string{
	".":                      {},
	"internal/testdata":      {},
	"param":                  {prefix + "gemm"},
	"tokenizer":              {"golang.org/x/text/"},
	"data":                   {own + "tokenizer", "github.com/klauspost/compress/"},
	"model":                  {prefix + "gemm", prefix + "gemm/vec", own + "param"},
	"optim":                  {prefix + "gemm", prefix + "gemm/vec", own + "param"},
	"checkpoint":             {prefix + "gemm", own + "checkpoint/safetensors", own + "param", "golang.org/x/sys/"},
	"checkpoint/safetensors": {prefix + "gemm", own + "param", own + "model"},
	"parallel":               {prefix + "gemm", prefix + "hiersync", own + "param"},
	"asteria":                {prefix + "coherreg", prefix + "gemm", prefix + "gemm/vec", prefix + "hiersync", prefix + "hooks", prefix + "invroot", prefix + "kron", prefix + "nvmepage", prefix + "tierctl", prefix + "uvm", own + "optim", own + "parallel", own + "param"},
	"cuda":                   {prefix + "gemm", prefix + "gemm/vec", prefix + "invroot", prefix + "kron", prefix + "streams", prefix + "uvm", own + "asteria"},
	"config":                 {prefix + "invroot", prefix + "kron", own + "asteria", own + "data", own + "model", own + "optim", own + "param", own + "tokenizer", "github.com/goccy/go-yaml", "github.com/goccy/go-yaml/"},
	"plan":                   {prefix + "gemm", own + "asteria", own + "config", own + "data", own + "model", own + "optim", own + "parallel"},
	"train":                  {prefix + "coherreg", prefix + "streams", own + "cuda", prefix + "gemm", prefix + "gemm/vec", prefix + "hiersync", prefix + "hooks", prefix + "nvmepage", prefix + "tierctl", own + "asteria", own + "checkpoint", own + "checkpoint/safetensors", own + "config", own + "data", own + "energy", own + "model", own + "optim", own + "parallel", own + "param", own + "plan", own + "tokenizer", "golang.org/x/sys/"},
	"report":                 {"gonum.org/v1/plot", "gonum.org/v1/plot/"},
	"energy":                 {own + "energy/internal/nvml"},
	"energy/internal/nvml":   {"github.com/ebitengine/purego"},
	"doctor":                 {prefix + "hiersync", prefix + "streams", prefix + "uvm", prefix + "gemm", own + "energy", "github.com/klauspost/cpuid/v2", "golang.org/x/sys/"},
	"cmd/trainer-olmo":       {prefix + "gemm", prefix + "hiersync", own, "github.com/spf13/pflag"},
	"(in tests)":             {prefix, "gonum.org/v1/gonum/", "github.com/google/go-cmp/", "golang.org/x/sys/"},
}

// A leaf that grows a dependency, or a package that reaches upwards, fails here.
func TestImports(t *testing.T) {
	seen := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") {
			seen[filepath.ToSlash(filepath.Dir(path))] = true
			checkImports(t, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for folder := range seen {
		if _, ok := allowed[folder]; !ok {
			t.Errorf("folder %s has no list of allowed imports", folder)
		}
	}
}

func checkImports(t *testing.T, path string) {
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.ToSlash(filepath.Dir(path))
	list := allowed[folder]
	if strings.HasSuffix(path, "_test.go") {
		list = append(append([]string{}, list...), allowed["(in tests)"]...)
	}
	for _, i := range f.Imports {
		name, _ := strconv.Unquote(i.Path.Value)
		if strings.Contains(strings.Split(name, "/")[0], ".") && !permitted(name, list) {
			t.Errorf("%s imports %s, allowed are %v", path, name, list)
		}
	}
}

// permitted looks name up; an entry that ends in a slash covers what is below it.
func permitted(name string, list []string) bool {
	for _, p := range list {
		if name == p || strings.HasSuffix(p, "/") && strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}
