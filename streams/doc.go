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
// On an accelerator the driver does the ordering. Host functions are skipped after
// a failure as above; kernels and copies that were enqueued before the failure was
// known do run, so what they wrote means nothing until Synchronize has said nil. A
// failure inside a kernel breaks the device's context for good: every later call
// returns it.
//
// # Devices
//
// [Host] is a device whose streams are goroutines: what runs above it is tested
// without a GPU. A low-priority host stream is served by an operating-system thread
// of low priority (nice 19 on Linux), where the system has such a thing.
//
// [Open] is for CUDA devices. The driver is loaded at run time from libcuda.so.1
// (Linux, amd64 and arm64; CUDA 11 and newer), so a binary needs no CUDA to build or
// to start; where something is missing the error matches errors.ErrUnsupported and
// says what was looked for. Priorities are spread over the driver's range. Beside
// the common operations there are memory of every kind, prefetch and advice,
// programs in PTX ([Device.Load]) and launches ([Stream.Launch]); the host device
// answers those with errors.ErrUnsupported. cuBLAS and cuSOLVER are used where
// their libraries are found ([Stream.BLAS], [Stream.Solver]).
//
// The primary context is retained, so other users of the process share it, and made
// current around each call only; whatever the thread had current stays so.
//
// # Concurrency
//
// Devices, streams and events are safe for concurrent use. The order of operations
// that two goroutines enqueue on one stream is the order in which their calls took
// effect.
package streams
