package profile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestRunWritesAProfileAndKeepsTheError(t *testing.T) {
	want := errors.New("the benchmark failed")
	file := filepath.Join(t.TempDir(), "cpu.prof")
	if err := Run(file, func() error { return want }); !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
	if info, err := os.Stat(file); err != nil || info.Size() == 0 {
		t.Errorf("no profile: %v", err)
	}
	if err := Run("", func() error { return want }); !errors.Is(err, want) {
		t.Errorf("without a profile: error %v, want %v", err, want)
	}
	if err := Run(filepath.Join(file, "x"), func() error { t.Error("ran without a file"); return nil }); err == nil {
		t.Error("a profile below a file was accepted")
	}
}
