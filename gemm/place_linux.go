package gemm

import (
	"runtime"
	"syscall"
	"unsafe"
)

// stepAside moves the calling thread to another processor than the one it runs on,
// where it may run on others, and leaves it free to run on all that it could before.
func stepAside() {
	runtime.LockOSThread() // also keeps the narrow set from threads that start meanwhile
	defer runtime.UnlockOSThread()
	var all, others processors
	cpu, ok := thisProcessor()
	if !ok || !all.get() {
		return
	}
	others = all
	others[cpu/64] &^= 1 << (cpu % 64)
	if others == (processors{}) {
		return
	}
	if others.set() {
		all.set() // fails only where it could not have been read
	}
}

// prepareStepAside lets the runtime start the thread that it starts when a goroutine is
// first locked to its own, so that no later call allocates.
func prepareStepAside() {
	runtime.LockOSThread()
	runtime.UnlockOSThread()
}

// processors is a set of processors as the system has it.
type processors [16]uint64

// get reads the set of the calling thread.
func (s *processors) get() bool {
	_, _, err := syscall.RawSyscall(syscall.SYS_SCHED_GETAFFINITY, 0, unsafe.Sizeof(*s), uintptr(unsafe.Pointer(s)))
	return err == 0
}

// set makes s the set of the calling thread.
func (s *processors) set() bool {
	_, _, err := syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, 0, unsafe.Sizeof(*s), uintptr(unsafe.Pointer(s)))
	return err == 0
}

// thisProcessor is the number of the processor that the calling thread runs on.
func thisProcessor() (cpu uint32, ok bool) {
	call := getcpuCall()
	if call == 0 {
		return 0, false
	}
	_, _, err := syscall.RawSyscall(call, uintptr(unsafe.Pointer(&cpu)), 0, 0)
	return cpu, err == 0 && cpu < 64*uint32(len(processors{}))
}

// getcpuCall is the number of the system call getcpu, which package syscall lacks on
// some processors, or 0 where it is not known here.
func getcpuCall() uintptr {
	switch runtime.GOARCH {
	case "amd64":
		return 309
	case "arm64", "riscv64", "loong64":
		return 168
	}
	return 0
}
