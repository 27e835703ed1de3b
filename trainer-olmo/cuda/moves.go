package cuda

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/asteria-runtime/asteria/streams"
	"github.com/asteria-runtime/asteria/trainer-olmo/asteria"
	"github.com/asteria-runtime/asteria/uvm"
)

// Note: memory that moves
//
// Where host and device share managed memory by moving it ([uvm.Migrating]), a kernel
// that touches a page on the host's side stops until the page has come, page by page.
// So nothing is left to that: [Context.Ahead] moves a buffer on a stream of its own,
// of low priority, before the step needs it, and every stream waits for the moves so
// far before it uses memory that moves; what was not announced is moved by the stream
// that uses it, before the use. What the host reads in between goes back first.

// moves is the state of the moves of a context.
type moves struct {
	mu     sync.Mutex
	stream *streams.Stream // nil before the first move; ends with the device
	mark   streams.Event   // behind the latest move
	count  atomic.Uint64   // moves so far

	ahead, late, back atomic.Int64 // bytes
}

// start returns the stream of the moves. The caller holds mu.
func (c *Context) start() (*streams.Stream, error) {
	m := &c.moves
	if m.stream == nil {
		s, err := c.device.NewStream(streams.Low)
		if err != nil {
			return nil, fmt.Errorf("cuda: %w", err)
		}
		m.stream = s
	}
	return m.stream, nil
}

// Ahead implements [asteria.Backend].
func (c *Context) Ahead(mem []byte) error {
	if c.Access() != uvm.Migrating || len(mem) == 0 {
		return nil
	}
	m := &c.moves
	m.mu.Lock()
	defer m.mu.Unlock()
	s, err := c.start()
	if err != nil {
		return err
	}
	n, err := c.memory.ToDevice(spanOf(mem).lo, s.Handle())
	if err == nil && n > 0 {
		m.ahead.Add(n)
		err = s.Record(&m.mark)
		m.count.Add(1)
	}
	if err != nil {
		return fmt.Errorf("cuda: %s: prefetch %d bytes: %w", c.device.Name(), len(mem), err)
	}
	return nil
}

// Back implements [asteria.Backend].
func (c *Context) Back(mem []byte) error {
	if c.Access() != uvm.Migrating || len(mem) == 0 {
		return nil
	}
	m := &c.moves
	m.mu.Lock()
	s, err := c.start()
	if err == nil {
		var n int64
		n, err = c.memory.ToHost(spanOf(mem).lo, int64(len(mem)), s.Handle())
		m.back.Add(n)
	}
	m.mu.Unlock()
	if err == nil {
		err = s.Synchronize(context.Background())
	}
	if err != nil {
		return fmt.Errorf("cuda: %s: fetch %d bytes: %w", c.device.Name(), len(mem), err)
	}
	return nil
}

// HostUsed implements [asteria.Backend].
func (c *Context) HostUsed(mem []byte) {
	if len(mem) > 0 {
		c.memory.HostUsed(spanOf(mem).lo)
	}
}

// Moved implements [asteria.Backend].
func (c *Context) Moved() asteria.Moved {
	m := &c.moves
	return asteria.Moved{Ahead: m.ahead.Load(), Late: m.late.Load(), Back: m.back.Load()}
}

// Room implements [asteria.Backend].
func (c *Context) Room() (state, free int64, err error) {
	free, total, err := c.device.MemoryInfo()
	if err != nil {
		return 0, 0, fmt.Errorf("cuda: %w", err)
	}
	if c.Access() != uvm.Migrating {
		return math.MaxInt64, free, nil
	}
	return max(0, free-uvm.DefaultReserve(total)), free, nil
}

// arrive has what the stream does next wait for memory that is on its way, and moves
// the buffer at addr if nobody has.
func (l *lane) arrive(addr uintptr) {
	if l.c.Access() != uvm.Migrating || l.err != nil {
		return
	}
	m := &l.c.moves
	if n := m.count.Load(); n != l.moved {
		l.fail(l.stream.Wait(&m.mark))
		l.moved = n
	}
	n, err := l.c.memory.ToDevice(addr, l.stream.Handle())
	m.late.Add(n)
	l.fail(err)
}
