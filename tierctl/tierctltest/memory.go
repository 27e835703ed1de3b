package tierctltest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrNoSpace is what a full Memory returns.
var ErrNoSpace = errors.New("tierctltest: no space left")

// Memory is a backing that keeps objects in memory. Its fields are set before use.
type Memory struct {
	// Capacity in bytes; 0 means no limit. A Save beyond it fails with ErrNoSpace.
	Capacity int64
	// Delay is how long each Save and Load takes.
	Delay time.Duration
	// Fault, when set, is asked before each operation ("save", "load", "drop"); its
	// error is returned and the operation not done.
	Fault func(op string, id uint64) error

	mu      sync.Mutex
	objects map[uint64][]byte
	used    int64
}

func (m *Memory) before(ctx context.Context, op string, id uint64) error {
	if m.Delay > 0 {
		select {
		case <-time.After(m.Delay):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if m.Fault != nil {
		return m.Fault(op, id)
	}
	return nil
}

// Save keeps a copy of src.
func (m *Memory) Save(ctx context.Context, id uint64, src []byte) error {
	if err := m.before(ctx, "save", id); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	grow := int64(len(src) - len(m.objects[id]))
	if m.Capacity > 0 && m.used+grow > m.Capacity {
		return fmt.Errorf("%w: %d bytes used of %d, %d more asked for", ErrNoSpace, m.used, m.Capacity, grow)
	}
	if m.objects == nil {
		m.objects = map[uint64][]byte{}
	}
	m.objects[id] = append([]byte(nil), src...)
	m.used += grow
	return nil
}

// Load copies the object to dst, which must have its length.
func (m *Memory) Load(ctx context.Context, id uint64, dst []byte) error {
	if err := m.before(ctx, "load", id); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	src, ok := m.objects[id]
	if !ok || len(src) != len(dst) {
		return fmt.Errorf("tierctltest: load %d: %d bytes kept, %d asked for", id, len(src), len(dst))
	}
	copy(dst, src)
	return nil
}

// Drop forgets the object.
func (m *Memory) Drop(id uint64) error {
	if m.Fault != nil {
		if err := m.Fault("drop", id); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= int64(len(m.objects[id]))
	delete(m.objects, id)
	return nil
}

// Used returns the bytes kept.
func (m *Memory) Used() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}
