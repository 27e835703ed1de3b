package train

import (
	"errors"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/asteria-runtime/asteria/streams"
	"github.com/asteria-runtime/asteria/streams/cudasim"
)

// Losses on an accelerator are those of the CPU, whatever reaches its memory, with
// refreshes in the step and beside it, with and without tiers.
func TestAnAcceleratorGivesTheLossesOfTheCPU(t *testing.T) {
	cudasim.Device(t) // skips, or fails where there must be one
	for _, name := range []string{"soap", "shampoo", "kl-shampoo"} {
		for _, mode := range []string{"native", "asteria"} {
			for _, tiers := range []string{"", "tiers.host=1GiB"} {
				if (mode == "native") != (tiers == "") || testing.Short() && name == "shampoo" {
					continue // two of the four pairs touch every path
				}
				t.Run(fmt.Sprintf("%s %s %s", name, mode, tiers), func(t *testing.T) {
					overrides := []string{"optimizer.name=" + name, "runtime.mode=" + mode, "train.steps=14", "runtime.lag_start=0"}
					if tiers != "" {
						overrides = append(overrides, tiers)
					}
					want := deviceLosses(t, append(overrides, "runtime.device=cpu"))
					devices := []string{"cuda:0"}
					if name == "soap" {
						devices = append(devices, "auto")
					}
					for _, device := range devices {
						got := deviceLosses(t, append(overrides, "runtime.device="+device))
						if len(got) != len(want) || len(got) == 0 {
							t.Fatalf("%d losses, want %d", len(got), len(want))
						}
						for i := range want {
							if !(math.Abs(got[i]-want[i]) <= 1e-4) {
								t.Fatalf("%s: loss %d is %v, on the CPU %v", device, i, got[i], want[i])
							}
						}
					}
				})
			}
		}
	}
}

func deviceLosses(t *testing.T, overrides []string) []float64 {
	t.Helper()
	folder := t.TempDir()
	mustRun(t, testConfig(t, folder, overrides...), Options{})
	return losses(t, folder)
}

func TestARunOnAMissingDeviceSaysWhatWasLookedFor(t *testing.T) {
	if _, err := streams.Open(0); err == nil && os.Getenv("LD_LIBRARY_PATH") != "" {
		t.Skip("there is a device")
	} else if err == nil || !errors.Is(err, errors.ErrUnsupported) {
		t.Skipf("there is a driver: %v", err)
	}
	c := testConfig(t, t.TempDir(), "optimizer.name=soap", "runtime.device=cuda:0")
	if _, err := runOn[float32](t.Context(), c, Options{}, openText); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("err = %v", err)
	}
}
