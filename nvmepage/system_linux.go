package nvmepage

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

const directFlag = unix.O_DIRECT

// Allocate reserves space so that a later write cannot meet a full drive; on file
// systems without that it only makes the file longer.
func (f osFile) Allocate(off, n int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, off, n)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			return f.Truncate(off + n)
		}
		return err
	}
}

// vector lists the pieces of a request for the system.
type vector [2]unix.Iovec

// fill makes v list the pieces that are not empty and returns how many those are.
func (v *vector) fill(head, buf []byte) (n int) {
	for _, piece := range [...][]byte{head, buf} {
		if len(piece) > 0 {
			v[n].Base = unsafe.SliceData(piece)
			v[n].SetLen(len(piece))
			n++
		}
	}
	return n
}

// runVector has room for the pieces of a run.
type runVector [2 * runRequests]unix.Iovec

// moveRun moves the pieces of all requests from first on in one call. What the system
// moves less is for the caller to see. It calls the system itself because the wrappers
// allocate.
func (f osFile) moveRun(first *request, room *runVector) (int, error) {
	call := uintptr(unix.SYS_PREADV)
	if first.write {
		call = unix.SYS_PWRITEV
	}
	count := 0
	for r := first; r != nil; r = r.next {
		count += copy(room[count:], r.vec[:r.vec.fill(r.head, r.buf)])
		r.vec = vector{}
	}
	defer clear(room[:count])
	low, high := uintptr(first.off), uintptr(uint64(first.off)>>32) // a kernel of 64 bits looks at the first alone
	for {
		n, _, errno := unix.Syscall6(call, f.Fd(), uintptr(unsafe.Pointer(room)), uintptr(count), low, high, 0)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
			continue
		}
		return 0, errno
	}
}

// adviseHuge asks for huge pages under b, which consists of such.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) } // it is for speed alone

// directAlign asks the system for the alignment of direct I/O on a file: the larger
// of what memory and what offsets need. Systems that do not say get a page.
func directAlign(f File) int {
	const page = 4096
	file, ok := f.(osFile)
	if !ok {
		return page
	}
	var st unix.Statx_t
	if err := unix.Statx(int(file.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st); err != nil {
		return page
	}
	if st.Mask&unix.STATX_DIOALIGN == 0 || st.Dio_offset_align == 0 {
		return page
	}
	return int(max(st.Dio_offset_align, st.Dio_mem_align, 512))
}
