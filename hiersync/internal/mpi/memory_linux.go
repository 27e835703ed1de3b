//go:build linux

package mpi

import "syscall"

// Memory returns zeroed memory outside of the Go heap, aligned to a page. It is
// never freed: after a failure the library may still write to it.
func Memory(bytes int) ([]byte, error) {
	return syscall.Mmap(-1, 0, bytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
}
