package streams

import "golang.org/x/sys/unix"

// lowerThread gives the calling thread the lowest ordinary priority. Lowering
// needs no rights; a system that refuses leaves the priority as it was, which
// costs speed and nothing else.
func lowerThread() { _ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 19) }

// threadNice returns the nice value of the calling thread.
func threadNice() (int, error) {
	n, err := unix.Getpriority(unix.PRIO_PROCESS, unix.Gettid())
	return 20 - n, err // the system call answers 20 - nice
}
