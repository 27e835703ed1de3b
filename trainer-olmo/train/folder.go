package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const (
	lockName   = "run.lock"
	configName = "config.yaml"
	healthName = "health.json"
	storeName  = "checkpoints"
)

// lockFolder makes the run folder and takes it for this process. The lock is the
// operating system's, so it ends with the process however that ends.
func lockFolder(folder string) (*os.File, error) {
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return nil, fmt.Errorf("train: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(folder, lockName), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, fmt.Errorf("train: %w", err)
	}
	if err := lock(f); err != nil {
		return nil, errors.Join(fmt.Errorf("%w by another process: %s: %w", ErrInUse, folder, err), f.Close())
	}
	return f, nil
}

// replaceFile writes a file under another name first, so that a reader sees the
// old content or the new one.
func replaceFile(path string, content []byte) error {
	tmp := path + ".tmp"
	err := os.WriteFile(tmp, content, 0o666)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return fmt.Errorf("train: %w", err)
	}
	return nil
}

// health is the content of health.json.
type health struct {
	Step      int64  `json:"step"`
	Optimizer string `json:"optimizer"`
	// Degraded says that the run goes on with less than it was given: refreshes that
	// fail, a tier that lost its drive, saves that failed. Reasons says which.
	Degraded bool     `json:"degraded"`
	Reasons  []string `json:"reasons"`
	// Blocks holds one entry for each block of a second-order method.
	Blocks any `json:"blocks"`
	// Ranks holds one entry for each rank of a run on several, as of the last time
	// when all of them met for it: the last checkpoint, or the end of the run.
	Ranks []rankHealth `json:"ranks,omitempty"`
}

func writeHealth(folder string, h health) error {
	raw, err := json.MarshalIndent(h, "", "  ")
	if err != nil {
		return fmt.Errorf("train: health: %w", err)
	}
	return replaceFile(filepath.Join(folder, healthName), append(raw, '\n'))
}
