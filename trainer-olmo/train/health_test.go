package train

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/asteria-runtime/asteria/trainer-olmo/asteria"
)

// readHealth reads health.json of a run.
func readHealth(t *testing.T, folder string) (h health) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(folder, healthName))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &h); err != nil {
		t.Fatal(err)
	}
	return h
}

func TestHealthIsGoodWhenNothingIsLost(t *testing.T) {
	folder := t.TempDir()
	mustRun(t, testConfig(t, folder, "optimizer.name=soap"), Options{})
	h := readHealth(t, folder)
	if h.Degraded || h.Reasons == nil || len(h.Reasons) != 0 || h.Step != 40 || h.Optimizer != "soap" {
		t.Errorf("got %+v", h)
	}
	blocks, ok := h.Blocks.([]any)
	if !ok || len(blocks) == 0 {
		t.Fatalf("blocks %v", h.Blocks)
	}
	for _, b := range blocks {
		for _, key := range []string{"block", "age", "residual", "condition", "damping", "solver", "retries"} {
			if _, ok := b.(map[string]any)[key]; !ok {
				t.Errorf("block %v lacks %q", b, key)
			}
		}
	}
}

// A first-order method has no blocks, as an empty list and not as null.
func TestHealthWithoutBlocks(t *testing.T) {
	folder := t.TempDir()
	mustRun(t, testConfig(t, folder, "train.stop_at=2"), Options{})
	if h := readHealth(t, folder); h.Blocks == nil || len(h.Blocks.([]any)) != 0 || h.Degraded {
		t.Errorf("got %+v", h)
	}
}

func TestHealthTellsOfSavesThatFailed(t *testing.T) {
	folder := t.TempDir()
	o := Options{FS: fullDisk{steps: []string{"step10"}}}
	if _, err := runOn[float32](context.Background(), testConfig(t, folder, "checkpoint.interval=10"), o, openText); err != nil {
		t.Fatal(err)
	}
	if h := readHealth(t, folder); !h.Degraded || len(h.Reasons) != 1 || h.Reasons[0] != "1 checkpoints could not be saved" {
		t.Errorf("got %+v", h)
	}
}

func TestHealthNamesTheFailingBlocks(t *testing.T) {
	got := failingBlocks([]asteria.BlockHealth{{Block: "fine", Failed: 7}, {Block: "ill", Consecutive: 2, Age: 31}})
	if len(got) != 1 || !strings.Contains(got[0], "block ill: the last 2 refreshes failed; the result in use is 31 steps old") {
		t.Errorf("got %q", got)
	}
	if got := failingBlocks(nil); got == nil || len(got) != 0 {
		t.Errorf("no blocks: %#v", got)
	}
}
