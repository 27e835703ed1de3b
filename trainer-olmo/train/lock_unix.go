//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package train

import (
	"errors"
	"os"
	"syscall"
)

// lock takes an exclusive lock or fails at once. A file system that has no locks
// is no reason not to train.
func lock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return err
	}
	return nil
}
