package cudasim

import (
	"errors"
	"os"
	"testing"

	"github.com/asteria-runtime/asteria/streams"
	"github.com/asteria-runtime/asteria/streams/internal/cuda"
)

// Device opens accelerator 0 and closes it with the test. Where there is none it
// skips, with the reason, or fails when the environment sets ASTERIA_REQUIRE_GPU.
func Device(t testing.TB) *streams.Device {
	t.Helper()
	d, err := streams.Open(0)
	if errors.Is(err, errors.ErrUnsupported) && os.Getenv("ASTERIA_REQUIRE_GPU") == "" {
		t.Skipf("no accelerator, nor the simulated one of make cudasim on LD_LIBRARY_PATH: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return d
}

// Loaded reports whether the driver is the simulated one.
func Loaded() bool { return cuda.Simulator("") }

// Count returns how often the simulated driver saw something since it was loaded:
// faults (a kernel or a library touched managed memory on the host's side), launches,
// prefetches, copies. It is -1 under a real driver.
func Count(name string) int64 { return cuda.SimulatorCount(name) }

// Configure gives the simulated driver KEY=VALUE settings until the test ends; see
// src/driver.cc. It skips the test under a real driver.
func Configure(t testing.TB, settings ...string) {
	t.Helper()
	if !Loaded() {
		t.Skip("needs the simulated driver: make cudasim, then LD_LIBRARY_PATH=.cache/cudasim")
	}
	for _, s := range settings {
		cuda.Simulator(s)
	}
	t.Cleanup(func() {
		for _, s := range []string{
			"CUDASIM_FAIL=", "CUDASIM_KIND=discrete", "CUDASIM_MEMORY=1073741824",
			"CUDASIM_DELAY=0", "CUDASIM_VERSION=12040", "CUDASIM_DEVICES=1",
		} {
			cuda.Simulator(s)
		}
	})
}
