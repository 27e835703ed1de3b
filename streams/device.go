package streams

import (
	"errors"
	"fmt"
	"sync"
)

// Priority orders streams of a device against each other.
type Priority int8

// The priorities. The zero value is Normal.
const (
	Low    Priority = -1 // background: must not slow the others
	Normal Priority = 0
	High   Priority = 1 // on a host device the same as Normal: raising it needs rights
)

// ErrClosed is returned for work that was enqueued on a closed stream.
var ErrClosed = errors.New("streams: stream is closed")

// ErrForeignEvent is wrapped when a stream of an accelerator shall wait for an
// event of another kind of device: the driver knows no such wait. The other way
// round works.
var ErrForeignEvent = errors.New("streams: event of another device")

// Device makes streams and owns them.
type Device struct {
	name string
	acc  *accelerator // nil for the host

	mu      sync.Mutex
	streams map[*Stream]struct{}
	closed  bool
}

// Host returns a device whose streams run on goroutines of this process.
func Host() *Device { return &Device{name: "host", streams: map[*Stream]struct{}{}} }

// Open returns CUDA device number ordinal, through the driver that it loads from
// libcuda.so.1. Several may be open at once; those of one ordinal share the
// primary context. The error matches errors.ErrUnsupported where there is no
// driver, no such function in it, or no device at all; see also [Error].
func Open(ordinal int) (*Device, error) { return open(ordinal, 0) }

// OpenContext is Open in a context of somebody else's, by the driver's name of it:
// both then share memory, streams and events. Close leaves the context alone; its
// owner must not end it before.
func OpenContext(ordinal int, ctx uintptr) (*Device, error) {
	if ctx == 0 {
		return nil, fmt.Errorf("streams: device %d: no context", ordinal)
	}
	return open(ordinal, ctx)
}

func open(ordinal int, ctx uintptr) (*Device, error) {
	a, err := openAccelerator(ordinal, ctx)
	if err != nil {
		return nil, fmt.Errorf("streams: device %d: %w", ordinal, err)
	}
	return &Device{name: fmt.Sprintf("cuda:%d", ordinal), acc: a, streams: map[*Stream]struct{}{}}, nil
}

// Name says what the device is, for reports: host, cuda:0 and so on.
func (d *Device) Name() string { return d.name }

// NewStream starts a stream. Close ends it.
func (d *Device) NewStream(p Priority) (*Stream, error) {
	if p < Low || p > High {
		return nil, fmt.Errorf("streams: priority %d: want Low (-1), Normal (0) or High (1)", p)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("streams: new stream on a closed device: %w", ErrClosed)
	}
	s := &Stream{device: d, priority: p}
	if d.acc == nil {
		s.lane = newHostLane(p)
	} else {
		l, err := d.acc.newLane(p)
		if err != nil {
			return nil, fmt.Errorf("streams: %s: new stream: %w", d.name, err)
		}
		s.lane = l
	}
	d.streams[s] = struct{}{}
	return s, nil
}

// Borrow makes a Stream of somebody else's, by the driver's name of it. Close waits
// for its work and leaves it open. Errors of host functions are known for what goes
// through the Stream, not for what its owner enqueues beside it.
func (d *Device) Borrow(handle uintptr, p Priority) (*Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.acc == nil:
		return nil, fmt.Errorf("streams: borrow a stream: the host device has none: %w", errors.ErrUnsupported)
	case d.closed:
		return nil, fmt.Errorf("streams: borrow a stream on a closed device: %w", ErrClosed)
	case handle == 0:
		return nil, fmt.Errorf("streams: %s: borrow the default stream: its implicit order is not that of this package", d.name)
	}
	s := &Stream{device: d, priority: p, lane: d.acc.borrow(handle)}
	d.streams[s] = struct{}{}
	return s, nil
}

// Close closes every stream that is still open, waits for their work, and gives
// back what the device holds: modules and events. Memory is its allocator's.
func (d *Device) Close() error {
	d.mu.Lock()
	closed := d.closed
	d.closed = true
	open := make([]*Stream, 0, len(d.streams))
	for s := range d.streams {
		open = append(open, s)
	}
	d.mu.Unlock()
	var errs []error
	for _, s := range open {
		errs = append(errs, s.Close())
	}
	if d.acc != nil && !closed {
		errs = append(errs, d.acc.close())
	}
	return errors.Join(errs...)
}

func (d *Device) forget(s *Stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.streams, s)
}
