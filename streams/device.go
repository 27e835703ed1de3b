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

// Device makes streams and owns them.
type Device struct {
	name string

	mu      sync.Mutex
	streams map[*Stream]struct{}
	closed  bool
}

// Host returns a device whose streams run on goroutines of this process.
func Host() *Device { return &Device{name: "host", streams: map[*Stream]struct{}{}} }

// Open returns accelerator number ordinal.
func Open(ordinal int) (*Device, error) {
	return nil, fmt.Errorf("streams: device %d: this build has no accelerator driver: %w", ordinal, errors.ErrUnsupported)
}

// Name says what the device is, for reports.
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
	s := newStream(d, p)
	d.streams[s] = struct{}{}
	return s, nil
}

// Close closes every stream that is still open and waits for their work.
func (d *Device) Close() error {
	d.mu.Lock()
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
	return errors.Join(errs...)
}

func (d *Device) forget(s *Stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.streams, s)
}
