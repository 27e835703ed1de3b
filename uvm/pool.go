package uvm

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
)

// ErrLimit is wrapped when a pool would exceed its byte limit.
var ErrLimit = errors.New("uvm: pool limit")

// Pool recycles buffers by size class and keeps what it took from its allocator
// under a limit. Closing a buffer returns it to the pool.
type Pool struct {
	source Allocator
	limit  int64 // bytes, 0 for none

	mu     sync.Mutex
	idle   map[int64][]*Buffer // size class -> closed buffers, ready for reuse
	stats  Stats
	closed bool
}

// Stats describes a pool, in bytes of its size classes. It is a copy.
type Stats struct {
	InUse  int64 // handed out
	Idle   int64 // kept for reuse
	Peak   int64 // high-water mark of InUse
	Limit  int64 // 0 for none
	Reused int64 // number of allocations served from idle buffers
	Fresh  int64 // number of allocations served by the allocator
}

// NewPool returns a pool over source that never holds more than limit bytes, in
// use and idle together; limit 0 means no limit.
func NewPool(source Allocator, limit int64) (*Pool, error) {
	if source == nil || limit < 0 {
		return nil, fmt.Errorf("uvm: pool over %T with limit %d: want an allocator and 0 or more bytes", source, limit)
	}
	return &Pool{source: source, limit: limit, idle: map[int64][]*Buffer{}}, nil
}

// class rounds n up to a size class: four classes per power of two, so that a
// buffer wastes a fifth at most.
func class(n int64) int64 {
	const least = 4096
	if n <= least {
		return least
	}
	step := int64(1) << (bits.Len64(uint64(n-1)) - 3)
	return (n + step - 1) / step * step
}

// Alloc returns a zeroed buffer of n bytes. When the limit is reached it gives idle
// buffers of other classes back first; if that is not enough the error wraps
// ErrLimit and names the numbers.
func (p *Pool) Alloc(n int64) (*Buffer, error) {
	if n <= 0 {
		return nil, fmt.Errorf("%w: %d bytes: want 1 or more", ErrSize, n)
	}
	size := class(n)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		panic("uvm: use of a closed pool")
	}
	inner, err := p.take(size)
	if err != nil {
		return nil, err
	}
	p.stats.InUse += size
	p.stats.Peak = max(p.stats.Peak, p.stats.InUse)
	return &Buffer{
		mem: inner.mem[:n:n], whole: inner.whole, pinned: inner.pinned,
		driver: inner.driver, managed: inner.managed, shared: inner.shared,
		free: func(b *Buffer) error { return p.giveBack(b, inner, size) },
	}, nil
}

// take returns an idle buffer of the class or a new one.
func (p *Pool) take(size int64) (*Buffer, error) {
	if list := p.idle[size]; len(list) > 0 {
		b := list[len(list)-1]
		p.idle[size] = list[:len(list)-1]
		p.stats.Idle -= size
		p.stats.Reused++
		clear(b.mem)
		return b, nil
	}
	if err := p.makeRoom(size); err != nil {
		return nil, err
	}
	b, err := p.source.Alloc(size)
	if err == nil {
		p.stats.Fresh++
	}
	return b, err
}

func (p *Pool) makeRoom(size int64) error {
	if p.limit == 0 || p.stats.InUse+p.stats.Idle+size <= p.limit {
		return nil
	}
	if p.stats.InUse+size > p.limit {
		return fmt.Errorf("%w: %d bytes in use + %d asked for > %d", ErrLimit, p.stats.InUse, size, p.limit)
	}
	return p.closeIdle()
}

func (p *Pool) closeIdle() error {
	var errs []error
	for size, list := range p.idle {
		for _, b := range list {
			errs = append(errs, b.Close())
		}
		p.stats.Idle -= size * int64(len(list))
		delete(p.idle, size)
	}
	return errors.Join(errs...)
}

func (p *Pool) giveBack(b, inner *Buffer, size int64) error {
	b.mem, b.whole = nil, nil
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.InUse -= size
	if p.closed {
		return inner.Close()
	}
	inner.pinned = b.pinned
	p.idle[size] = append(p.idle[size], inner)
	p.stats.Idle += size
	return nil
}

// Stats returns a copy of the counters.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Limit = p.limit
	return s
}

// Close gives idle buffers back. Buffers still in use go straight to the allocator
// when they are closed; the error names how many bytes those hold.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	err := p.closeIdle()
	if p.stats.InUse > 0 {
		err = errors.Join(err, fmt.Errorf("uvm: pool closed with %d bytes in use", p.stats.InUse))
	}
	return err
}
