package streams

import (
	"go/build"
	"slices"
	"strings"
	"testing"
)

// allowed lists, by package, what may be imported beyond the standard library: the
// system calls, and the loader of native libraries in the one package that calls them.
var allowed = map[string][]string{
	".":                    {"golang.org/x/sys/unix", own + "/internal/cuda"},
	"internal/cuda":        {"github.com/ebitengine/purego"},
	"internal/testkernels": {},
	"streamstest":          {own},
	"cudasim":              {own, own + "/internal/cuda"},
}

const own = "github.com/asteria-runtime/asteria/streams"

func TestImportsOnlyWhatIsAllowed(t *testing.T) {
	for folder, list := range allowed {
		for _, goos := range []string{"linux", "darwin", "windows"} {
			ctx := build.Default
			ctx.GOOS = goos
			pkg, err := ctx.ImportDir(folder, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range pkg.Imports {
				if strings.Contains(strings.Split(path, "/")[0], ".") && !slices.Contains(list, path) {
					t.Errorf("%s imports %s on %s; allowed: the standard library and %v", folder, path, goos, list)
				}
			}
		}
	}
}
