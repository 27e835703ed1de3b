package hiersync

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Defaults of [Options].
const (
	DefaultDeadline = 60 * time.Second
	DefaultSegment  = 256 << 10
	maxBeat         = time.Second
)

// Options configures a [Comm]. The zero value is the documented default. All
// ranks of a world must use the same values, Node and Address excepted.
type Options struct {
	// Deadline bounds every wait: how long an operation may take from its start
	// on a rank to its end, and how long a rank may be silent. It must exceed the
	// time by which ranks run apart. 0 means DefaultDeadline.
	Deadline time.Duration
	// Beat is the time between two heartbeats; at most a quarter of Deadline.
	// 0 means an eighth of Deadline, but not more than a second.
	Beat time.Duration
	// Segment is the size of a message's payload in bytes, a multiple of 8 from
	// 64 B to 64 MiB. 0 means DefaultSegment.
	Segment int
	// Flat ignores nodes in the choice of who sends to whom. Results are the
	// same to the bit.
	Flat bool
	// Node overrides discovery: ranks with equal names form a node. Either all
	// ranks set it or none does.
	Node string
	// Address is the host or address under which other nodes reach this rank's
	// heartbeat listener. Empty means all global addresses of the machine, tried
	// in turn.
	Address string
	// Logger is told about failures. nil discards.
	Logger *slog.Logger
}

// Validate reports every fault of o together.
func (o Options) Validate() error {
	var errs []error
	if o.Deadline < 0 {
		errs = append(errs, fmt.Errorf("hiersync: deadline %v: want 0 for the default or more", o.Deadline))
	}
	if d := o.withDefaults().Deadline; o.Beat < 0 || o.Beat > d/4 {
		errs = append(errs, fmt.Errorf("hiersync: beat %v: want 0 to a quarter of the deadline, %v", o.Beat, d/4))
	}
	if o.Segment != 0 && (o.Segment < 64 || o.Segment > 64<<20 || o.Segment%8 != 0) {
		errs = append(errs, fmt.Errorf("hiersync: segment of %d bytes: want a multiple of 8 from 64 to %d", o.Segment, 64<<20))
	}
	if len(o.Node) > maxName || len(o.Address) > maxName {
		errs = append(errs, fmt.Errorf("hiersync: node %q, address %q: want at most %d bytes each", o.Node, o.Address, maxName))
	}
	return errors.Join(errs...)
}

func (o Options) withDefaults() Options {
	if o.Deadline == 0 {
		o.Deadline = DefaultDeadline
	}
	if o.Beat == 0 {
		o.Beat = min(o.Deadline/8, maxBeat)
	}
	if o.Segment == 0 {
		o.Segment = DefaultSegment
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}
