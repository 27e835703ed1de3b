//go:build !linux

package doctor

import "runtime"

func disk(Options) []Finding {
	return one("disk", Missing, "not examined on "+runtime.GOOS, "statfs")
}

func directIO(Options) []Finding {
	return one("direct I/O", Missing, "not examined on "+runtime.GOOS, "O_DIRECT")
}

func ioUring(Options) []Finding {
	return one("io_uring", Missing, runtime.GOOS+" has none", "io_uring_setup")
}
