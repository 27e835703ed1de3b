// Package streams runs ordered asynchronous work with priorities, by the rules
// that CUDA has for streams and events.
//
// # Rules
//
// Operations of one stream run one after the other, in the order in which they
// were enqueued. Operations of different streams run in any order and at the same
// time, unless an event orders them: [Stream.Record] marks a point of a stream,
// [Stream.Wait] holds back the later operations of another stream until the point
// that the event's latest Record (at the time of the Wait call) marked has been
// reached. Waiting for an event that was never recorded does not wait. There is no
// default stream and no implicit ordering between a device's streams: every stream
// behaves like one made with CU_STREAM_NON_BLOCKING.
//
// Enqueuing never waits for the work. [Stream.Synchronize] does.
//
// # Errors
//
// An operation that fails does so after the call that enqueued it returned. The
// stream then skips what follows in it, an event recorded later carries the error
// to the streams that wait for it, and the next Synchronize of each of those
// streams returns the error and clears it. A panic of a host function becomes its
// error. Nothing is lost silently: [Stream.Close] returns an error that nobody
// synchronised for.
//
// # Devices
//
// [Host] is a device whose streams are goroutines: what runs above it is tested
// without a GPU. A low-priority host stream is served by an operating-system thread
// of low priority (nice 19 on Linux), where the system has such a thing.
// [Open] is for accelerators; it returns an error that matches
// errors.ErrUnsupported where none is usable.
//
// # Concurrency
//
// Devices, streams and events are safe for concurrent use. The order of operations
// that two goroutines enqueue on one stream is the order in which their calls took
// effect.
package streams
