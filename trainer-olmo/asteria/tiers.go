package asteria

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/asteria-runtime/asteria/nvmepage"
	"github.com/asteria-runtime/asteria/tierctl"
)

var _ tierctl.Backing = (*nvmepage.Store)(nil)

// Names of the tiers, fastest first, as statistics and [BlockHealth] use them.
const (
	TierDevice = "device"
	TierHost   = "host"
	TierNVMe   = "nvme"
)

// Tiers bounds the memory that the optimizer's state occupies, tier by tier. All
// sizes are bytes. Placement never changes a result.
//
// What is placed: the state of every block, the snapshot and the result of every
// refresh in flight, and the moments of every parameter that belongs to AdamW.
// Working memory of threads and solvers is not, nor are parameters and gradients.
type Tiers struct {
	// Device is the fastest tier, which factors prefer; 0 means that there is
	// none. On a machine without a GPU it is a part of RAM that stays resident.
	Device int64
	// Host is RAM; 0 means no limit, with which nothing ever goes to NVMe.
	Host int64
	// NVMe takes what fits in neither; nil means none. The runtime gives every
	// object an id of its own, and leaves the store open.
	NVMe tierctl.Backing
	// NVMeSize bounds what lies there; 0 means that NVMe's own limit is the only
	// one. Padding and headers are NVMe's and come on top.
	NVMeSize int64
	// Policy says what leaves first; the zero value is by next use.
	Policy tierctl.Policy
	// Staging is how many bytes are fetched ahead of their use, in memory that is part
	// of the addressable tiers; 0 means as many as do not fit there, at least an eighth
	// of their bytes and at most all.
	Staging int64
	// Pinned locks the memory of the addressable tiers into RAM. Where the system
	// refuses, ordinary memory is used, with one warning.
	Pinned bool
	// Pressure reports, between 0 and 1, which part of the budgets the system wants
	// back; nil means never any. See [tierctl.SystemPressure].
	Pressure func() float64
	// Logger is told of transitions: a tier degraded, memory over its budget,
	// memory lost to a refresh that was given up. nil discards.
	Logger *slog.Logger
}

// Validate reports every fault of t at once.
func (t Tiers) Validate() error {
	var errs []error
	bad := func(cond bool, format string, args ...any) {
		if cond {
			errs = append(errs, fmt.Errorf("asteria: "+format, args...))
		}
	}
	bad(t.Device < 0 || t.Host < 0 || t.NVMeSize < 0 || t.Staging < 0,
		"tiers: device %d, host %d, NVMe %d, staging %d bytes, want 0 (default) or more", t.Device, t.Host, t.NVMeSize, t.Staging)
	bad(t.NVMe == nil && t.NVMeSize > 0, "tiers: an NVMe size of %d bytes without NVMe", t.NVMeSize)
	bad(t.NVMe != nil && t.Host == 0, "tiers: NVMe below a host tier without a limit would never be used; set Host")
	bad(t.Policy > tierctl.LRU, "tiers: unknown policy %d", t.Policy)
	return errors.Join(errs...)
}

// TierUse describes one tier, in bytes of state.
type TierUse struct {
	Name     string
	Used     int64
	Peak     int64 // high-water mark
	Capacity int64 // 0: no limit
	Over     int64 // above the capacity now
	Degraded bool  // a write failed: what should leave the tier above stays there
	Failures int64 // writes that failed
}

// TierTotals are counts since the start. A lease is a block's step, an AdamW
// parameter's step, or a refresh.
type TierTotals struct {
	Tiers [3]TierUse // the first N, fastest first
	N     int        // 0: the state is not in tiers

	Leases  int64
	Hits    int64         // leases that waited less than a millisecond
	Waited  time.Duration // by leases; several may wait at once
	Read    int64         // bytes fetched from NVMe
	Written int64         // bytes written to NVMe
	Lost    int64         // bytes held for ever by refreshes that were given up

	// The same for the leases of steps alone, without those of workers.
	StepLeases, StepHits int64
	StepWaited           time.Duration

	Above    int64         // bytes of the state that the addressable tiers cannot hold
	Stepping time.Duration // within Step, waits included
}

// HitRate is the part of the steps' leases that waited less than a millisecond, 1
// before the first.
func (t TierTotals) HitRate() float64 {
	if t.StepLeases == 0 {
		return 1
	}
	return float64(t.StepHits) / float64(t.StepLeases)
}
