//go:build linux && !race

package uvm

import (
	"errors"

	"golang.org/x/sys/unix"
)

// mapMemory returns at least n zeroed bytes. The whole mapping is a multiple of
// the page size, so that release and advise may cover it.
func mapMemory(n int) ([]byte, error) {
	page := unix.Getpagesize()
	size := (n + page - 1) / page * page
	if size < n {
		return nil, unix.ENOMEM
	}
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, err
	}
	if size >= hugePage {
		// Only a wish: kernels without transparent huge pages say EINVAL.
		_ = unix.Madvise(mem, unix.MADV_HUGEPAGE)
	}
	return mem, nil
}

func unmapMemory(mem []byte) error { return unix.Munmap(mem) }

func lock(mem []byte) error { return unix.Mlock(mem) }

func unlock(mem []byte) error { return unix.Munlock(mem) }

func release(mem []byte) error { return unix.Madvise(mem, unix.MADV_DONTNEED) }

// advice maps hints to madvise. MADV_POPULATE_WRITE faults pages in at once;
// MADV_WILLNEED alone does nothing for anonymous memory.
var advice = [...]int{
	WillNeed:   unix.MADV_POPULATE_WRITE,
	Sequential: unix.MADV_SEQUENTIAL,
	Random:     unix.MADV_RANDOM,
	Cold:       unix.MADV_COLD,
}

func advise(mem []byte, h Hint) error {
	err := unix.Madvise(mem, advice[h])
	if errors.Is(err, unix.EINVAL) {
		return nil // a kernel older than the hint: hints are optional
	}
	return err
}
