package nvmepage

import (
	"errors"
	"fmt"
	"io"
	"os"
	"unsafe"
)

// File is a data file. The system's own files satisfy it through Options.Open's
// default; package nvmetest wraps one with faults.
type File interface {
	io.ReaderAt
	io.WriterAt
	// Allocate reserves n bytes at off on the drive and makes the file that long.
	Allocate(off, n int64) error
	// Size returns the length in bytes.
	Size() (int64, error)
	Sync() error
	Close() error
}

// osFile is a file of the system.
type osFile struct{ *os.File }

// Size returns the length in bytes.
func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// OpenFile opens or creates a data file of the system; direct asks for I/O past the
// page cache and fails where that is refused.
func OpenFile(name string, direct bool) (File, error) {
	flags := os.O_RDWR | os.O_CREATE
	if direct {
		if directFlag == 0 {
			return nil, fmt.Errorf("nvmepage: direct I/O on %s: %w", name, errors.ErrUnsupported)
		}
		flags |= directFlag
	}
	f, err := os.OpenFile(name, flags, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// hugePage is the size of the pages that Aligned asks for where it can use them.
const hugePage = 2 << 20

// Aligned returns n bytes whose address is a multiple of align, a power of two. From
// 2 MiB on the memory is asked to lie on huge pages, of which a request for the
// drive has fewer to pin.
func Aligned(n, align int) []byte {
	if n >= hugePage {
		align = max(align, hugePage)
	}
	raw := make([]byte, n+align)
	skip := 0
	if r := int(uintptr(unsafe.Pointer(unsafe.SliceData(raw))) & uintptr(align-1)); r != 0 {
		skip = align - r
	}
	b := raw[skip : skip+n : skip+n]
	if n >= hugePage {
		adviseHuge(b[:n/hugePage*hugePage])
	}
	return b
}

func isAligned(b []byte, align int) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))&uintptr(align-1) == 0
}
