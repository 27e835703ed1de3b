package nvmepage

import (
	"errors"

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

// moveBoth moves both pieces of a request in one call. What the system moves less
// is the request's error.
func (f osFile) moveBoth(r *request) (n int, err error) {
	call := unix.Preadv
	if r.write {
		call = unix.Pwritev
	}
	fd, pieces := int(f.Fd()), [][]byte{r.head, r.buf}
	for {
		n, err = call(fd, pieces, r.off)
		if !errors.Is(err, unix.EINTR) {
			return max(n, 0), err
		}
	}
}

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
