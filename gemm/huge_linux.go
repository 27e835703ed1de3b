package gemm

import "syscall"

// adviseHuge asks for huge pages under n bytes from an address on: a panel that is
// streamed from the second-level cache crosses a page every few hundred cycles. The
// addresses are numbers and not a slice, because they may reach beyond one object of
// the heap; the advice reads and writes nothing. What the kernel refuses stays as it
// was.
func adviseHuge(start, n uintptr) {
	const hugePage = 14 // MADV_HUGEPAGE, which package syscall lacks on some processors
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, start, n, hugePage)
}
