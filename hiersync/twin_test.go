package hiersync_test

import (
	"testing"
	"time"

	"github.com/asteria-runtime/asteria/hiersync"
	"github.com/asteria-runtime/asteria/hiersync/hiersynctest"
)

// openTwin makes a world that is closed by the test or at its end.
func openTwin(t testing.TB, o hiersync.TwinOptions) *hiersync.Twin {
	t.Helper()
	w, err := hiersync.NewTwin(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		done := make(chan struct{}, o.Ranks)
		for _, c := range w.Comms() {
			go func() { c.Close(); done <- struct{}{} }()
		}
		for range w.Comms() {
			<-done
		}
	})
	return w
}

func TestTwinConforms(t *testing.T) {
	variants := map[string]hiersync.TwinOptions{
		"at once":      {},
		"late payload": {Faults: hiersync.Faults{Seed: 1, LatePayload: true}},
		"delays":       {Faults: hiersync.Faults{Seed: 2, MaxDelay: 200 * time.Microsecond, LatePayload: true}},
	}
	for name, o := range variants {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name == "delays" {
				t.Skip("the simulation has delays too")
			}
			hiersynctest.Run(t, func(t *testing.T, nodes []int) []*hiersync.Comm {
				o.Ranks, o.Nodes, o.Options.Segment = len(nodes), nodes, 2048
				return openTwin(t, o).Comms()
			})
		})
	}
}
