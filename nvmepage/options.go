package nvmepage

import (
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
)

// Engine says how requests reach the drive.
type Engine uint8

// The engines.
const (
	Auto  Engine = iota // io_uring where the kernel has it, else Pool
	Pool                // goroutines with pread and pwrite
	Uring               // io_uring; Open fails where it is not available
)

func (e Engine) String() string {
	switch e {
	case Auto:
		return "auto"
	case Pool:
		return "pool"
	case Uring:
		return "io_uring"
	}
	return fmt.Sprintf("engine %d", e)
}

// Options configures a Store.
type Options struct {
	// Paths are existing folders, one per drive. Required.
	Paths []string
	// Capacity bounds the data files' bytes, all paths together. 0 means the drives'.
	Capacity int64
	// Engine, default Auto.
	Engine Engine
	// Depth is how many requests may be in flight. Default 32.
	Depth int
	// Chunk is the largest request in bytes; larger objects are split. Default 4 MiB.
	Chunk int
	// Staging is how many buffers of Chunk bytes serve memory that is not aligned.
	// Default 4.
	Staging int
	// Align forces the alignment, a power of two; 0 asks the system.
	Align int
	// Buffered uses the page cache even where direct I/O is possible.
	Buffered bool
	// Recover takes over the dead store that was written last, from all of its paths,
	// instead of starting empty. Paths that it did not have are added.
	Recover bool
	// Open opens a data file; nil uses the system. Tests inject faults here. A file
	// that is not the system's own is served by the Pool engine.
	Open func(name string, direct bool) (File, error)
	// Logger gets transitions: direct I/O refused, folders reclaimed. nil discards.
	Logger *slog.Logger
}

// withDefaults fills zeros.
func (o Options) withDefaults() Options {
	if o.Depth == 0 {
		o.Depth = 32
	}
	if o.Chunk == 0 {
		o.Chunk = 4 << 20
	}
	if o.Staging == 0 {
		o.Staging = 4
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Validate reports every fault of o together.
func (o Options) Validate() error {
	var errs []error
	if len(o.Paths) == 0 {
		errs = append(errs, errors.New("nvmepage: no paths: want one folder or more"))
	}
	if o.Capacity < 0 || o.Depth < 0 || o.Staging < 0 || o.Chunk < 0 {
		errs = append(errs, fmt.Errorf("nvmepage: capacity %d, depth %d, staging %d, chunk %d: want 0 (default) or more",
			o.Capacity, o.Depth, o.Staging, o.Chunk))
	}
	if o.Align != 0 && (bits.OnesCount(uint(o.Align)) != 1 || o.Align < headerSize || o.Align > 1<<20) {
		errs = append(errs, fmt.Errorf("nvmepage: alignment %d: want a power of two from %d to 1 MiB", o.Align, headerSize))
	}
	if o.Engine > Uring {
		errs = append(errs, fmt.Errorf("nvmepage: engine %d: want auto (0), pool (1) or io_uring (2)", o.Engine))
	}
	return errors.Join(errs...)
}
