package hooks

import "syscall"

// lower adds nice to that of the calling thread, to which the caller is locked.
// On Linux a thread's id names it alone, as nice values are per thread there
// (setpriority(2), "C library/kernel differences"). A refusal leaves the priority
// as it was, which is slower and never wrong.
func lower(nice int) {
	if nice == 0 {
		return
	}
	tid := syscall.Gettid()
	// The system call gives 20 minus the nice value, so that it is never negative.
	if was, err := syscall.Getpriority(syscall.PRIO_PROCESS, tid); err == nil {
		_ = syscall.Setpriority(syscall.PRIO_PROCESS, tid, min(19, 20-was+nice))
	}
}
