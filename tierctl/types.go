package tierctl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
)

// Tick is logical time. It only needs to grow along the run: a step number times
// the number of blocks plus the block's place, for instance.
type Tick = int64

// Nowhere is the tier of an object that has no contents; see AddEmpty.
const Nowhere = -1

// Never is the next use of an object that nobody announced.
const Never Tick = math.MaxInt64

// Errors that callers branch on.
var (
	// ErrFull is wrapped when a group cannot fit even with everything else gone.
	ErrFull = errors.New("tierctl: group larger than the addressable tiers")
	// ErrUnknown is wrapped when an object was never added.
	ErrUnknown = errors.New("tierctl: unknown object")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("tierctl: controller is closed")
)

// Memory is what an addressable tier gives for one object.
type Memory interface {
	Bytes() []byte
	Close() error
}

// Backing stores the objects of a tier that is not addressable. Save returns when
// the write is confirmed. Calls for different objects may overlap.
type Backing interface {
	Save(ctx context.Context, id uint64, src []byte) error
	Load(ctx context.Context, id uint64, dst []byte) error
	Drop(id uint64) error
}

// Tier describes one level.
type Tier struct {
	// Name appears in errors, logs and statistics.
	Name string
	// Capacity in bytes; 0 means no limit.
	Capacity int64
	// Alloc gives memory of exactly n bytes, whatever they hold; nil takes it from
	// the Go heap.
	Alloc func(n int64) (Memory, error)
	// Backing makes this a tier that is not addressable. Only the last may have one.
	Backing Backing
}

// Policy orders objects for eviction.
type Policy uint8

const (
	// NextUse evicts what is needed last.
	NextUse Policy = iota
	// LRU evicts what was used longest ago.
	LRU
)

// Options configures a Controller.
type Options struct {
	Tiers  []Tier
	Policy Policy
	// Queue is how many prefetched objects may wait for their turn; further hints
	// are dropped and counted. Default 16.
	Queue int
	// Movers is how many goroutines serve prefetches, so that what leaves and what
	// comes may overlap. Default 1.
	Movers int
	// Staging bounds the bytes that prefetches may hold in flight. Default: an
	// eighth of the last addressable tier's capacity.
	Staging int64
	// Pressure reports, between 0 and 1, which part of the addressable capacity the
	// system wants back. nil means never any. See SystemPressure.
	Pressure func() float64
	// Logger gets transitions: tier degraded, memory over capacity. nil discards.
	Logger *slog.Logger
}

// Validate reports every fault of o together.
func (o Options) Validate() error {
	var errs []error
	if len(o.Tiers) == 0 {
		errs = append(errs, errors.New("tierctl: no tiers: want 1 or more"))
	}
	for i, t := range o.Tiers {
		if t.Capacity < 0 {
			errs = append(errs, fmt.Errorf("tierctl: tier %s: capacity %d: want 0 (no limit) or more bytes", t.Name, t.Capacity))
		}
		if t.Backing != nil && (i == 0 || i < len(o.Tiers)-1) {
			errs = append(errs, fmt.Errorf("tierctl: tier %s is not addressable: want it last, after one that is", t.Name))
		}
		if t.Backing != nil && t.Alloc != nil {
			errs = append(errs, fmt.Errorf("tierctl: tier %s has both a backing and memory: want one", t.Name))
		}
	}
	if o.Policy > LRU {
		errs = append(errs, fmt.Errorf("tierctl: policy %d: want NextUse (0) or LRU (1)", o.Policy))
	}
	if o.Queue < 0 || o.Staging < 0 || o.Movers < 0 {
		errs = append(errs, fmt.Errorf("tierctl: queue %d, movers %d, staging %d bytes: want 0 (default) or more", o.Queue, o.Movers, o.Staging))
	}
	return errors.Join(errs...)
}

// Stats is a copy of the controller's counters. Bytes are of objects' sizes.
type Stats struct {
	Tiers []TierStats

	Hits   int64 // leased objects that were addressable already
	Misses int64 // leased objects that had to be fetched first

	Prefetched   int64 // objects brought in by hints
	HintsDropped int64 // hints without room in queue, staging or tier

	Promoted, Demoted           int64 // objects moved up, down
	BytesPromoted, BytesDemoted int64
	WritesSaved                 int64 // evictions that needed no write: the backing's copy was current

	Lost int64 // bytes of objects that were abandoned in use, and still are

	StagingPeak int64 // high-water mark of bytes in flight for hints
}

// TierStats describes one tier.
type TierStats struct {
	Name     string
	Objects  int
	Used     int64
	Peak     int64
	Capacity int64 // as configured; 0 means no limit
	Over     int64 // bytes above the capacity, when the tier below is degraded
	Degraded bool
	Failures int64 // writes that failed
}
