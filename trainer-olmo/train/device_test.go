package train

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
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

// Whatever reaches the device's memory, with refreshes on the device too, two
// threads, tiers and a resumed run, the losses are the CPU's, and no kernel has to
// wait for managed memory that nobody moved.
func TestAcceleratorKindsGiveTheLossesOfTheCPU(t *testing.T) {
	cudasim.Device(t)
	for i, x := range []struct {
		kind, name string
		set        []string
	}{
		{"discrete", "shampoo", []string{"runtime.mode=asteria", "train.threads=2"}},
		{"discrete", "soap", []string{"runtime.mode=asteria", "tiers.device=1MiB", "tiers.host=1GiB"}},
		{"discrete", "kl-shampoo", []string{"runtime.mode=native"}},
		{"basic", "soap", []string{"runtime.mode=asteria"}},
		{"integrated", "shampoo", []string{"runtime.mode=native"}},
		{"coherent", "soap", []string{"runtime.mode=asteria"}},
	} {
		if testing.Short() && i > 3 {
			continue
		}
		t.Run(fmt.Sprintf("%d %s %s", i, x.kind, x.name), func(t *testing.T) {
			cudasim.Configure(t, "CUDASIM_KIND="+x.kind)
			set := append(x.set, "optimizer.name="+x.name, "train.steps=12", "runtime.lag_start=0", "runtime.device_min_order=1")
			want := deviceLosses(t, append(set, "runtime.device=cpu"))
			faults := cudasim.Count("faults")
			folder := t.TempDir()
			mustRun(t, testConfig(t, folder, append(set, "runtime.device=cuda:0", "train.stop_at=7")...), Options{})
			mustRun(t, testConfig(t, folder, append(set, "runtime.device=cuda:0")...), Options{})
			got := losses(t, folder)
			if len(got) != len(want) || len(got) == 0 {
				t.Fatalf("%d losses, want %d", len(got), len(want))
			}
			for i := range want {
				if !(math.Abs(got[i]-want[i]) <= 1e-4) {
					t.Fatalf("loss %d is %v, on the CPU %v", i, got[i], want[i])
				}
			}
			if n := cudasim.Count("faults") - faults; n != 0 {
				t.Errorf("%d accesses had to wait for managed memory", n)
			}
			if ahead := sumOf(t, folder, mMovedAhead); (ahead > 0) != (x.kind == "discrete") {
				t.Errorf("%v bytes moved ahead", ahead)
			}
		})
	}
}

// sumOf adds up a metric over the steps of a run.
func sumOf(t *testing.T, folder, name string) (sum float64) {
	t.Helper()
	recs, err := ReadMetrics(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range recs {
		sum += r[name]
	}
	return sum
}

func TestAnAcceleratorThatIsTooSmallRefusesTheRun(t *testing.T) {
	cudasim.Configure(t, "CUDASIM_MEMORY=33554432") // the libraries alone need more
	c := testConfig(t, t.TempDir(), "optimizer.name=soap", "runtime.device=cuda:0")
	_, err := runOn[float32](t.Context(), c, Options{}, openText)
	if err == nil || !strings.Contains(err.Error(), "bytes free") || !strings.Contains(err.Error(), "libraries") {
		t.Errorf("err = %v", err)
	}
}
