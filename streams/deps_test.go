package streams

import (
	"go/build"
	"strings"
	"testing"
)

// Allowed beyond the standard library: the system calls.
func TestImportsOnlyWhatIsAllowed(t *testing.T) {
	for _, goos := range []string{"linux", "darwin", "windows"} {
		ctx := build.Default
		ctx.GOOS = goos
		pkg, err := ctx.ImportDir(".", 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range pkg.Imports {
			if strings.Contains(strings.Split(path, "/")[0], ".") && path != "golang.org/x/sys/unix" {
				t.Errorf("streams imports %s on %s; allowed: the standard library and golang.org/x/sys/unix", path, goos)
			}
		}
	}
}
