package gemm

import "syscall"

// adviseHuge asks for huge pages under b: a panel that is streamed from the
// second-level cache crosses a page every few hundred cycles. What the kernel refuses
// stays as it was.
func adviseHuge(b []byte) {
	const hugePage = 14 // MADV_HUGEPAGE, which package syscall lacks on some processors
	_ = syscall.Madvise(b, hugePage)
}
