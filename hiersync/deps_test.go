package hiersync

import (
	"go/build"
	"strings"
	"testing"
)

// A leaf: the standard library, and purego in the folder that loads MPI.
func TestImportsOnlyTheStandardLibraryAndPurego(t *testing.T) {
	allowed := map[string][]string{
		".":            {"github.com/asteria-runtime/asteria/hiersync/internal/mpi"},
		"hiersynctest": {"github.com/asteria-runtime/asteria/hiersync"},
		"internal/mpi": {"github.com/ebitengine/purego"},
	}
	for dir, list := range allowed {
		pkg, err := build.ImportDir(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range pkg.Imports {
			if strings.Contains(strings.Split(path, "/")[0], ".") && !contains(list, path) {
				t.Errorf("hiersync/%s imports %s; it is a leaf and may import %v only", dir, path, list)
			}
		}
	}
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}
