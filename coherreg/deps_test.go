package coherreg

import (
	"go/build"
	"strings"
	"testing"
)

// A leaf: the standard library and nothing else.
func TestImportsOnlyTheStandardLibrary(t *testing.T) {
	pkg, err := build.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range pkg.Imports {
		if strings.Contains(strings.Split(path, "/")[0], ".") {
			t.Errorf("coherreg imports %s; it is a leaf and may import the standard library only", path)
		}
	}
}
