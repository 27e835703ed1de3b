//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package train

import (
	"os"
	"syscall"
)

// lock takes an exclusive lock or fails at once.
func lock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
