package streams

import "context"

// Stream is an ordered queue of asynchronous work.
type Stream struct {
	device   *Device
	priority Priority
	lane     lane
}

// lane is what serves a stream: a goroutine for the host, the driver for an
// accelerator. The rules are those of the package comment.
type lane interface {
	do(f func() error) error
	copy(dst, src []byte) error
	record(e *Event) error
	wait(e *Event) error
	query() bool
	synchronize(ctx context.Context) error
	close() error
}

// Priority returns what the stream was made with.
func (s *Stream) Priority() Priority { return s.priority }

// Do enqueues a host function. f must not wait for this stream. On an accelerator
// it runs on a thread of the driver and must not use the device either.
func (s *Stream) Do(f func() error) error { return s.lane.do(f) }

// Copy enqueues a copy of src to dst, which must have the same length. Both must
// stay alone until the copy ran.
func (s *Stream) Copy(dst, src []byte) error {
	if len(dst) != len(src) {
		panic("streams: copy of slices that differ in length")
	}
	return s.lane.copy(dst, src)
}

// Record makes e mark the point after all operations enqueued so far.
func (s *Stream) Record(e *Event) error { return s.lane.record(e) }

// Wait holds back all operations enqueued later until the point that e's latest
// Record marked has been reached. Where that point carries an error, this stream
// fails with it. A stream of an accelerator cannot wait for an event that a host
// stream recorded: the error wraps [ErrForeignEvent].
func (s *Stream) Wait(e *Event) error { return s.lane.wait(e) }

// Query reports whether everything enqueued so far has run.
func (s *Stream) Query() bool { return s.lane.query() }

// Synchronize waits until everything enqueued has run, returns the first error
// since the last Synchronize and clears it. When ctx ends first it returns the
// cause, and the error stays for the next call.
func (s *Stream) Synchronize(ctx context.Context) error { return s.lane.synchronize(ctx) }

// Close runs what is enqueued, ends the stream, and returns an error that no
// Synchronize returned. A second Close does nothing.
func (s *Stream) Close() error {
	err := s.lane.close()
	s.device.forget(s)
	return err
}
