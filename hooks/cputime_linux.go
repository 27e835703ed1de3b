package hooks

import (
	"syscall"
	"time"
	"unsafe"
)

// clockThread is CLOCK_THREAD_CPUTIME_ID of clock_gettime(2).
const clockThread = 3

// threadTime returns the processor time that the calling thread has used.
// Time in which it was ready to run and had no core does not count, which is what
// a job that competes with training needs to know of itself. (getrusage(2) would
// do without unsafe, but lags by up to a timer tick.)
func threadTime(*Turn) time.Duration {
	var ts syscall.Timespec
	if _, _, e := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockThread, uintptr(unsafe.Pointer(&ts)), 0); e != 0 {
		panic("hooks: no thread clock") // Linux has had it since 2.6.12
	}
	return time.Duration(ts.Nano())
}
