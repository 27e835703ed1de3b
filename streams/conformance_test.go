package streams_test

import (
	"os"
	"testing"

	"github.com/asteria-runtime/asteria/streams"
	"github.com/asteria-runtime/asteria/streams/streamstest"
)

// programs is how many random programs a conformance run does.
func programs() uint64 {
	switch {
	case os.Getenv("ASTERIA_LONG") != "":
		return 10000
	case testing.Short():
		return 60
	}
	return 300
}

func TestHostConformance(t *testing.T) {
	streamstest.Run(t, func(t *testing.T) *streams.Device {
		d := streams.Host()
		t.Cleanup(func() { _ = d.Close() })
		return d
	}, streamstest.Options{Programs: programs()})
}
