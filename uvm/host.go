package uvm

import (
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
)

// hugePage is the size from which a mapping asks for huge pages.
const hugePage = 2 << 20

// Host allocates ordinary memory outside the Go heap. The zero value is ready.
type Host struct{}

// Alloc maps n bytes of zeroed memory.
func (Host) Alloc(n int64) (*Buffer, error) {
	if n <= 0 || n > math.MaxInt {
		return nil, fmt.Errorf("%w: %d bytes: want 1 or more", ErrSize, n)
	}
	mem, err := mapMemory(int(n))
	if err != nil {
		return nil, fmt.Errorf("uvm: map %d bytes: %w", n, err)
	}
	return &Buffer{mem: mem[:n:n], whole: mem, free: unmapBuffer}, nil
}

func unmapBuffer(b *Buffer) error {
	whole := b.whole
	b.mem, b.whole = nil, nil
	if err := unmapMemory(whole); err != nil {
		return fmt.Errorf("uvm: unmap %d bytes: %w", len(whole), err)
	}
	return nil
}

// Pinned allocates memory locked into RAM, so that a device can read it without
// the system's help. Where locking is refused (no right, no room) the buffer is
// ordinary memory: slower, never wrong.
type Pinned struct {
	logger  *slog.Logger
	warned  atomic.Bool
	refused atomic.Int64
}

// NewPinned returns a pinned allocator; a nil logger discards the one warning.
func NewPinned(logger *slog.Logger) *Pinned {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Pinned{logger: logger}
}

// Alloc maps and locks n bytes; see Buffer.Pinned for whether locking worked.
func (p *Pinned) Alloc(n int64) (*Buffer, error) {
	b, err := Host{}.Alloc(n)
	if err != nil {
		return nil, err
	}
	if err := lock(b.whole); err != nil {
		p.refused.Add(1)
		if p.warned.CompareAndSwap(false, true) {
			p.logger.Warn("memory is not locked; ordinary memory is used instead", "bytes", n, "err", err)
		}
		return b, nil
	}
	b.pinned = true
	return b, nil
}

// Refused counts the buffers that could not be locked.
func (p *Pinned) Refused() int64 { return p.refused.Load() }
