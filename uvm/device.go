package uvm

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"
)

// Driver is what device memory needs of an accelerator; *streams.Device is one. All
// methods are safe for concurrent use.
type Driver interface {
	// MemoryAccess tells whether the device shares the host's memory chips, whether
	// it reads all host memory through the host's page tables, and whether both
	// sides may use managed memory at the same time.
	MemoryAccess() (integrated, coherent, concurrent bool)
	// MemoryInfo returns the device's free and total bytes.
	MemoryInfo() (free, total int64, err error)
	AllocManaged(n int64) (addr uintptr, err error)
	AllocPinned(n int64) (addr uintptr, err error)
	Free(addr uintptr) error       // of AllocManaged
	FreePinned(addr uintptr) error // of AllocPinned
	// Prefetch moves managed memory to the device or the host in the order of the
	// stream with this handle.
	Prefetch(addr uintptr, n int64, toHost bool, stream uintptr) error
	// Advise passes an advice by its number in CUmem_advise, about the device or
	// the host.
	Advise(addr uintptr, n int64, advice int, host bool) error
}

// Access is how a device reaches a buffer.
type Access uint8

const (
	// Adaptive chooses by the device: the default.
	Adaptive Access = iota
	// Direct: host and device use the same bytes where they are. Nothing is copied
	// or moved: integrated and hardware-coherent devices.
	Direct
	// Migrating: managed memory, which moves to the side that uses it, by request
	// ahead of time ([Buffer.MoveTo]) or by page faults: devices with concurrent
	// managed access.
	Migrating
	// Staged: page-locked host memory, which somebody copies to the device and back.
	Staged
)

// String names the access as reports print it.
func (a Access) String() string {
	names := [...]string{"adaptive", "direct", "managed + prefetch", "staged through pinned memory"}
	if int(a) < len(names) {
		return names[a]
	}
	return fmt.Sprintf("access(%d)", uint8(a))
}

// Choose returns the access that fits a device with these properties; see
// [Driver]'s MemoryAccess.
func Choose(integrated, coherent, concurrent bool) Access {
	switch {
	case integrated || coherent:
		return Direct
	case concurrent:
		return Migrating
	}
	return Staged
}

// DeviceOptions sets [NewDeviceMemory].
type DeviceOptions struct {
	// Access overrides the choice; default Adaptive. Migrating needs a device with
	// concurrent managed access.
	Access Access
	// Reserve is how many bytes of the device managed memory leaves to others. The
	// default 0 stands for a sixteenth of the device's memory, negative for none.
	Reserve int64
}

// DeviceMemory allocates memory that a device uses too, the way that fits its
// architecture.
//
// Managed memory may exceed the device, and asking for too much of it can make a
// whole machine unresponsive, so it is never given beyond what was free when the
// first of it was allocated, less the reserve, nor beyond what is free now.
type DeviceMemory struct {
	driver  Driver
	access  Access
	mapped  bool // direct access goes through pinned memory: integrated, not coherent
	reserve int64

	mu    sync.Mutex
	given int64 // bytes of managed memory handed out
	base  int64 // free bytes before the first of them; meaningful while given > 0

	ranges sync.RWMutex
	shared []extent // what was handed out and the device addresses, by address
}

// extent is a range of addresses, and the side that managed memory was moved to last.
type extent struct {
	lo, hi uintptr
	device bool
}

// Addresses reports whether the device may use the n bytes at addr where they are:
// memory handed out here, or any memory where the device is coherent.
func (m *DeviceMemory) Addresses(addr uintptr, n int64) bool {
	if m.access == Direct && !m.mapped {
		return true
	}
	m.ranges.RLock()
	defer m.ranges.RUnlock()
	at := m.find(addr)
	return at >= 0 && addr+uintptr(n) <= m.shared[at].hi
}

// find returns the place of the last range that begins at addr or before, -1 where
// there is none. The caller holds ranges.
func (m *DeviceMemory) find(addr uintptr) int {
	lo, hi := 0, len(m.shared)
	for lo < hi {
		if mid := (lo + hi) / 2; m.shared[mid].lo <= addr {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo - 1
}

// ToDevice moves the whole managed buffer that addr lies in to the device, in the
// order of the stream with this handle, unless it was moved there last. It returns
// how many bytes it moves: 0 also for memory that does not move.
func (m *DeviceMemory) ToDevice(addr uintptr, stream uintptr) (int64, error) {
	e, ok := m.turn(addr, true)
	if !ok {
		return 0, nil
	}
	n := int64(e.hi - e.lo)
	return n, m.driver.Prefetch(e.lo, n, false, stream)
}

// ToHost moves n bytes at addr, a part of a managed buffer, to the host: the way
// back for what the host reads between two uses by the device. It returns how many
// bytes it moves: 0 for memory that does not move.
func (m *DeviceMemory) ToHost(addr uintptr, n int64, stream uintptr) (int64, error) {
	if m.access != Migrating || !m.Addresses(addr, n) {
		return 0, nil
	}
	m.turn(addr, false)
	return n, m.driver.Prefetch(addr, n, true, stream)
}

// HostUsed notes that the host read or wrote the buffer that addr lies in, which
// may have taken pages of it from the device.
func (m *DeviceMemory) HostUsed(addr uintptr) { m.turn(addr, false) }

// turn notes that managed memory is on a side now; ok says that it was on the other.
func (m *DeviceMemory) turn(addr uintptr, device bool) (e extent, ok bool) {
	if m.access != Migrating {
		return e, false
	}
	m.ranges.RLock()
	at := m.find(addr)
	there := at < 0 || addr >= m.shared[at].hi || m.shared[at].device == device
	m.ranges.RUnlock()
	if there { // the ordinary case, on a step's path
		return e, false
	}
	m.ranges.Lock()
	defer m.ranges.Unlock()
	at = m.find(addr)
	if at < 0 || addr >= m.shared[at].hi || m.shared[at].device == device {
		return e, false
	}
	m.shared[at].device = device
	return m.shared[at], true
}

// note remembers a shared buffer until it is closed.
func (m *DeviceMemory) note(b *Buffer) *Buffer {
	e := extent{lo: b.Addr(), hi: b.Addr() + uintptr(b.Len())}
	m.ranges.Lock()
	at, _ := slices.BinarySearchFunc(m.shared, e.lo, func(x extent, lo uintptr) int { return cmp.Compare(x.lo, lo) })
	m.shared = slices.Insert(m.shared, at, e)
	m.ranges.Unlock()
	free := b.free
	b.free = func(b *Buffer) error {
		m.ranges.Lock()
		m.shared = slices.DeleteFunc(m.shared, func(x extent) bool { return x.lo == e.lo })
		m.ranges.Unlock()
		return free(b)
	}
	return b
}

// NewDeviceMemory returns an allocator for the driver's device.
func NewDeviceMemory(d Driver, o DeviceOptions) (*DeviceMemory, error) {
	if d == nil {
		return nil, errors.New("uvm: device memory without a driver")
	}
	integrated, coherent, concurrent := d.MemoryAccess()
	m := &DeviceMemory{driver: d, access: o.Access, mapped: !coherent, reserve: max(0, o.Reserve)}
	switch {
	case o.Access > Staged:
		return nil, fmt.Errorf("uvm: access %d: want Adaptive (0) to Staged (3)", o.Access)
	case o.Access == Migrating && !concurrent:
		return nil, fmt.Errorf("uvm: managed memory: the device has no concurrent managed access: %w", errors.ErrUnsupported)
	case o.Access == Direct && !integrated && !coherent:
		return nil, fmt.Errorf("uvm: direct access: the device is neither integrated nor coherent: %w", errors.ErrUnsupported)
	case o.Access == Adaptive:
		m.access = Choose(integrated, coherent, concurrent)
	}
	if o.Reserve == 0 {
		_, total, err := d.MemoryInfo()
		if err != nil {
			return nil, fmt.Errorf("uvm: device memory: %w", err)
		}
		m.reserve = DefaultReserve(total)
	}
	return m, nil
}

// DefaultReserve is the default reserve of a device with so many bytes.
func DefaultReserve(total int64) int64 { return total / 16 }

// Access returns what was chosen; never Adaptive.
func (m *DeviceMemory) Access() Access { return m.access }

// Alloc returns n zeroed bytes. Managed memory beyond the limit fails with an error
// that wraps ErrLimit and names the numbers.
func (m *DeviceMemory) Alloc(n int64) (*Buffer, error) {
	if n <= 0 {
		return nil, fmt.Errorf("%w: %d bytes: want 1 or more", ErrSize, n)
	}
	switch {
	case m.access == Migrating:
		return m.managed(n)
	case m.access == Direct && !m.mapped:
		b, err := Host{}.Alloc(n)
		if err == nil {
			b.shared = true
		}
		return b, err
	}
	addr, err := m.driver.AllocPinned(n)
	if err != nil {
		return nil, fmt.Errorf("uvm: %d pinned bytes: %w", n, err)
	}
	b := adopt(addr, n, m.driver, func(*Buffer) error { return m.driver.FreePinned(addr) })
	if b.pinned = true; m.access == Direct {
		b.shared = true
		return m.note(b), nil
	}
	return b, nil
}

func (m *DeviceMemory) managed(n int64) (*Buffer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.admit(n); err != nil {
		return nil, err
	}
	addr, err := m.driver.AllocManaged(n)
	if err != nil {
		return nil, fmt.Errorf("uvm: %d managed bytes: %w", n, err)
	}
	m.given += n
	b := adopt(addr, n, m.driver, func(*Buffer) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.given -= n
		return m.driver.Free(addr)
	})
	b.shared, b.managed = true, true
	return m.note(b), nil
}

// admit holds the limit. What was given may or may not be on the device by now, so
// both what was free before any of it and what is free now bound the rest.
func (m *DeviceMemory) admit(n int64) error {
	free, _, err := m.driver.MemoryInfo()
	if err != nil {
		return fmt.Errorf("uvm: device memory: %w", err)
	}
	if m.given == 0 {
		m.base = free
	}
	if room := min(m.base-m.given, free) - m.reserve; n > room {
		return fmt.Errorf("%w: %d managed bytes asked, room for %d: %d free at first, %d free now, %d given, %d kept back",
			ErrLimit, n, max(0, room), m.base, free, m.given, m.reserve)
	}
	return nil
}

// adopt makes a buffer of memory that a driver gave, zeroed.
func adopt(addr uintptr, n int64, d Driver, free func(b *Buffer) error) *Buffer {
	mem := foreign(addr, n)
	clear(mem)
	return &Buffer{mem: mem, whole: mem, driver: d, free: func(b *Buffer) error {
		b.mem, b.whole = nil, nil
		return free(b)
	}}
}

// foreign is the one place where an address becomes a slice. It is sound because
// the memory is a driver's: the collector neither knows nor moves it, and the
// buffer's Close is what ends it.
func foreign(addr uintptr, n int64) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), n)
}

// Shared reports whether the device may use the buffer's address as it is.
func (b *Buffer) Shared() bool { return b.shared }

// MoveTo starts moving a managed buffer to the device or to the host, in the order
// of the stream with this handle. Memory that does not move is where it should be
// already: nothing happens.
func (b *Buffer) MoveTo(device bool, stream uintptr) error {
	b.check()
	if !b.managed {
		return nil
	}
	return b.driver.Prefetch(b.Addr(), b.Len(), !device, stream)
}

// Placement is advice about where a managed buffer is used.
type Placement uint8

// The placements. PreferDevice and PreferHost name the side that holds the buffer,
// DeviceReads has it mapped there, so that an access does not fault; ReadMostly
// keeps a copy on both sides until somebody writes.
const (
	PreferDevice Placement = iota
	PreferHost
	DeviceReads
	ReadMostly
)

// place maps placements to CUmem_advise and the side it speaks of.
var place = [...]struct {
	advice int
	host   bool
}{PreferDevice: {3, false}, PreferHost: {3, true}, DeviceReads: {5, false}, ReadMostly: {1, false}}

// Place passes advice about a managed buffer to the driver; for memory that does
// not move it does nothing.
func (b *Buffer) Place(p Placement) error {
	b.check()
	if int(p) >= len(place) {
		return fmt.Errorf("uvm: placement %d: want PreferDevice (0) to ReadMostly (3)", p)
	}
	if !b.managed {
		return nil
	}
	return b.driver.Advise(b.Addr(), b.Len(), place[p].advice, place[p].host)
}
