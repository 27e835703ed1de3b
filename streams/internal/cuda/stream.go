package cuda

import "unsafe"

// Flags of the calls below.
const (
	streamNonBlocking  = 1 // no implicit order against the default stream
	eventDisableTiming = 2
	attachGlobal       = 1 // managed memory that every stream may use
	hostAllocPortable  = 1 // pinned for every context
	hostAllocMapped    = 2 // with an address for the device
)

// NewStream makes a stream of the given priority number.
func (d *Driver) NewStream(priority int) (uintptr, error) {
	var s uintptr
	err := d.check("cuStreamCreateWithPriority", call(d.cuStreamCreateWithPriority, uintptr(unsafe.Pointer(&s)), streamNonBlocking, uintptr(priority)))
	return s, err
}

// CloseStream gives a stream back once its work is done.
func (d *Driver) CloseStream(s uintptr) error {
	return d.check("cuStreamDestroy_v2", plain(d.cuStreamDestroy, s))
}

// StreamDone reports whether the stream's work is done.
func (d *Driver) StreamDone(s uintptr) (bool, error) {
	return d.done("cuStreamQuery", plain(d.cuStreamQuery, s))
}

func (d *Driver) done(function string, status int) (bool, error) {
	if status == CodeNotReady {
		return false, nil
	}
	return true, d.check(function, status)
}

// AwaitStream waits until the stream's work is done.
func (d *Driver) AwaitStream(s uintptr) error {
	return d.check("cuStreamSynchronize", plain(d.cuStreamSynchronize, s))
}

// WaitEvent holds the stream back until the event's latest record was reached.
func (d *Driver) WaitEvent(s, event uintptr) error {
	return d.check("cuStreamWaitEvent", plain(d.cuStreamWaitEvent, s, event, 0))
}

// LaunchHost calls the C function f with the number id in stream order.
func (d *Driver) LaunchHost(s, f, id uintptr) error {
	return d.check("cuLaunchHostFunc", plain(d.cuLaunchHostFunc, s, f, id))
}

// NewEvent makes an event; one that measures costs a little more to record.
func (d *Driver) NewEvent(measures bool) (uintptr, error) {
	flags := uintptr(eventDisableTiming)
	if measures {
		flags = 0
	}
	var e uintptr
	err := d.check("cuEventCreate", call(d.cuEventCreate, uintptr(unsafe.Pointer(&e)), flags))
	return e, err
}

// CloseEvent gives an event back; waits already enqueued stay.
func (d *Driver) CloseEvent(e uintptr) error {
	return d.check("cuEventDestroy_v2", plain(d.cuEventDestroy, e))
}

// RecordEvent marks the stream's present end.
func (d *Driver) RecordEvent(e, s uintptr) error {
	return d.check("cuEventRecord", plain(d.cuEventRecord, e, s))
}

// EventDone reports whether the latest record was reached.
func (d *Driver) EventDone(e uintptr) (bool, error) {
	return d.done("cuEventQuery", plain(d.cuEventQuery, e))
}

// AwaitEvent waits until the latest record was reached.
func (d *Driver) AwaitEvent(e uintptr) error {
	return d.check("cuEventSynchronize", plain(d.cuEventSynchronize, e))
}

// Elapsed returns the milliseconds between the points of two measuring events.
func (d *Driver) Elapsed(from, to uintptr) (float32, error) {
	var ms float32
	err := d.check("cuEventElapsedTime", call(d.cuEventElapsedTime, uintptr(unsafe.Pointer(&ms)), from, to))
	return ms, err
}
