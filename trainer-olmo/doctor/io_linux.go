package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// disk tells how much room there is below the run folder.
func disk(o Options) []Finding {
	var s unix.Statfs_t
	folder := existing(o.Folder)
	if err := unix.Statfs(folder, &s); err != nil {
		return one("disk", Missing, "unknown: "+err.Error(), "statfs of "+folder)
	}
	free, total := int64(s.Bavail)*int64(s.Bsize), int64(s.Blocks)*int64(s.Bsize)
	status := OK
	if free < 1<<30 {
		status = Warn
	}
	return one("disk", status, fmt.Sprintf("%s free of %s", bytes(free), bytes(total)), "statfs of "+folder)
}

// existing is the nearest folder at or above the given one that is there.
func existing(folder string) string {
	for !exists(folder) {
		up := filepath.Dir(folder)
		if up == folder {
			break
		}
		folder = up
	}
	return folder
}

// directIO writes one aligned page past the page cache and removes it.
func directIO(o Options) []Finding {
	folder := existing(o.Folder)
	looked := "O_DIRECT and statx(STATX_DIOALIGN) on a file in " + folder
	f, err := os.CreateTemp(folder, ".doctor-")
	if err != nil {
		return one("direct I/O", Missing, "cannot write there: "+reason(err), looked)
	}
	name := f.Name()
	defer os.Remove(name)
	defer f.Close()
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		return one("direct I/O", Missing, "refused by this file system: "+err.Error(), looked)
	}
	defer unix.Close(fd)
	const page = 4096
	raw := make([]byte, 2*page)
	shift := page - int(uintptr(unsafe.Pointer(&raw[0]))%page)
	if _, err := unix.Pwrite(fd, raw[shift:shift+page], 0); err != nil {
		return one("direct I/O", Missing, "opened, but a page was refused: "+err.Error(), looked)
	}
	found := "works"
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st); err == nil && st.Mask&unix.STATX_DIOALIGN != 0 {
		found = fmt.Sprintf("works, alignment %d bytes in memory, %d on disk", st.Dio_mem_align, st.Dio_offset_align)
	}
	return one("direct I/O", OK, found, looked)
}

// ringParams is struct io_uring_params of the kernel: 120 bytes, zero for
// defaults; Features is at offset 20.
type ringParams struct {
	_        [5]uint32
	Features uint32
	_        [24]uint32
}

// ioUring sets up a ring of four entries and closes it.
func ioUring(o Options) []Finding {
	looked := "io_uring_setup(4) and /proc/sys/kernel/io_uring_disabled"
	var p ringParams
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		why := errno.Error()
		if errors.Is(errno, unix.ENOSYS) {
			why = "this kernel has none, or a sandbox hides it"
		}
		if v, err := o.read("/proc/sys/kernel/io_uring_disabled"); err == nil && v != "0" {
			why += fmt.Sprintf(" (io_uring_disabled is %s)", v)
		}
		return one("io_uring", Missing, why, looked)
	}
	unix.Close(int(fd))
	return one("io_uring", OK, fmt.Sprintf("works, features %#x", p.Features), looked)
}
