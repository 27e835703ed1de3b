package tierctl

import (
	"go/build"
	"strings"
	"testing"
)

// A leaf: the standard library and nothing else.
func TestImportsOnlyWhatIsAllowed(t *testing.T) {
	for _, goos := range []string{"linux", "darwin", "windows"} {
		ctx := build.Default
		ctx.GOOS = goos
		pkg, err := ctx.ImportDir(".", 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range pkg.Imports {
			if strings.Contains(strings.Split(path, "/")[0], ".") {
				t.Errorf("tierctl imports %s on %s; allowed: the standard library", path, goos)
			}
		}
	}
}
