// Package testdata finds files that tests need and the repository does not
// hold, such as official tokenizers and texts.
package testdata

import (
	"os"
	"path/filepath"
	"testing"
)

// Path returns the path of a file below the folder that the environment variable
// ASTERIA_DATA names, and skips the test when it is not set or has no such file.
func Path(t testing.TB, name string) string {
	t.Helper()
	folder := os.Getenv("ASTERIA_DATA")
	if folder == "" {
		t.Skipf("ASTERIA_DATA is not set; it names the folder that holds %s", name)
	}
	file := filepath.Join(folder, filepath.FromSlash(name))
	if _, err := os.Stat(file); err != nil {
		t.Skipf("ASTERIA_DATA: %v", err)
	}
	return file
}
