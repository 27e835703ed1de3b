package uvm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// fakeDriver is a device of plain memory that notes what it is asked.
type fakeDriver struct {
	integrated, coherent, concurrent bool

	free, total int64
	kept        map[uintptr]*Buffer
	calls       []string
	fail        error
}

func newFake(integrated, coherent, concurrent bool) *fakeDriver {
	return &fakeDriver{integrated: integrated, coherent: coherent, concurrent: concurrent, free: 1 << 20, total: 1 << 20, kept: map[uintptr]*Buffer{}}
}

func (f *fakeDriver) MemoryAccess() (integrated, coherent, concurrent bool) {
	return f.integrated, f.coherent, f.concurrent
}

func (f *fakeDriver) MemoryInfo() (free, total int64, err error) { return f.free, f.total, f.fail }

func (f *fakeDriver) alloc(kind string, n int64) (uintptr, error) {
	f.calls = append(f.calls, fmt.Sprintf("%s %d", kind, n))
	if f.fail != nil {
		return 0, f.fail
	}
	b, err := Host{}.Alloc(n)
	if err != nil {
		return 0, err
	}
	for i := range b.Bytes() {
		b.Bytes()[i] = 0xee // a driver promises no zeros
	}
	f.kept[b.Addr()] = b
	return b.Addr(), nil
}

func (f *fakeDriver) AllocManaged(n int64) (uintptr, error) { return f.alloc("managed", n) }
func (f *fakeDriver) AllocPinned(n int64) (uintptr, error)  { return f.alloc("pinned", n) }

func (f *fakeDriver) release(kind string, addr uintptr) error {
	f.calls = append(f.calls, kind)
	b := f.kept[addr]
	if b == nil {
		return errors.New("not allocated here")
	}
	delete(f.kept, addr)
	return b.Close()
}

func (f *fakeDriver) Free(addr uintptr) error       { return f.release("free", addr) }
func (f *fakeDriver) FreePinned(addr uintptr) error { return f.release("free pinned", addr) }

func (f *fakeDriver) Prefetch(_ uintptr, n int64, toHost bool, stream uintptr) error {
	f.calls = append(f.calls, fmt.Sprintf("prefetch %d host=%v stream=%d", n, toHost, stream))
	return f.fail
}

func (f *fakeDriver) Advise(_ uintptr, n int64, advice int, host bool) error {
	f.calls = append(f.calls, fmt.Sprintf("advise %d advice=%d host=%v", n, advice, host))
	return f.fail
}

func deviceMemory(t *testing.T, d Driver, o DeviceOptions) *DeviceMemory {
	t.Helper()
	m, err := NewDeviceMemory(d, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestTheAccessFitsTheArchitecture(t *testing.T) {
	for _, c := range []struct {
		name                             string
		integrated, coherent, concurrent bool
		want                             Access
		calls                            []string
		shared, pinned                   bool
	}{
		{"hardware-coherent", false, true, true, Direct, nil, true, false},
		{"integrated and coherent", true, true, true, Direct, nil, true, false},
		{"integrated only", true, false, false, Direct, []string{"pinned 100", "free pinned"}, true, true},
		{"discrete", false, false, true, Migrating, []string{"managed 100", "free"}, true, false},
		{"discrete without concurrent access", false, false, false, Staged, []string{"pinned 100", "free pinned"}, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(c.integrated, c.coherent, c.concurrent)
			m := deviceMemory(t, f, DeviceOptions{})
			if m.Access() != c.want || strings.HasPrefix(m.Access().String(), "access(") {
				t.Fatalf("access %v, want %v", m.Access(), c.want)
			}
			b, err := m.Alloc(100)
			if err != nil {
				t.Fatal(err)
			}
			if b.Len() != 100 || b.Shared() != c.shared || b.Pinned() != c.pinned || slices.Max(b.Bytes()) != 0 {
				t.Errorf("%d bytes, shared %v, pinned %v, contents %v", b.Len(), b.Shared(), b.Pinned(), b.Bytes()[:4])
			}
			if err := errors.Join(b.Close(), b.Close()); err != nil {
				t.Error(err)
			}
			if !slices.Equal(f.calls, c.calls) {
				t.Errorf("the driver was asked for %q, want %q", f.calls, c.calls)
			}
		})
	}
}

func TestManagedBuffersMoveAndTakeAdviceOthersDoNot(t *testing.T) {
	f := newFake(false, false, true)
	b, err := deviceMemory(t, f, DeviceOptions{}).Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	b.Float32s()[3] = 5
	f.calls = nil
	must := errors.Join(b.MoveTo(true, 7), b.MoveTo(false, 7), b.Place(PreferDevice), b.Place(PreferHost), b.Place(DeviceReads), b.Place(ReadMostly),
		b.Advise(Cold), b.Prefetch())
	want := []string{
		"prefetch 64 host=false stream=7", "prefetch 64 host=true stream=7", "advise 64 advice=3 host=false", "advise 64 advice=3 host=true",
		"advise 64 advice=5 host=false", "advise 64 advice=1 host=false",
	}
	if must != nil || !slices.Equal(f.calls, want) {
		t.Errorf("%v; asked for %q, want %q", must, f.calls, want)
	}
	if b.Place(9) == nil {
		t.Error("placement 9 was accepted")
	}
	if err := b.Release(); err != nil || b.Float32s()[3] != 0 {
		t.Errorf("release: %v, contents %v", err, b.Float32s()[3])
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	h := alloc(t, Host{}, 64)
	if err := errors.Join(h.MoveTo(true, 0), h.Place(PreferDevice)); err != nil || h.Shared() {
		t.Errorf("host memory: %v, shared %v", err, h.Shared())
	}
}

func TestManagedMemoryNeverExceedsWhatIsFree(t *testing.T) {
	f := newFake(false, false, true)
	m := deviceMemory(t, f, DeviceOptions{Reserve: 1 << 18})
	a, err := m.Alloc(1 << 19)
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Alloc(1<<18 + 1)
	if !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), "262145 managed bytes asked, room for 262144") {
		t.Errorf("beyond what was free at first: %v", err)
	}
	f.free = 1<<18 + 1000 // somebody else took the rest
	if _, err = m.Alloc(1001); !errors.Is(err, ErrLimit) {
		t.Errorf("beyond what is free now: %v", err)
	}
	b, err := m.Alloc(1000)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
	f.free = 1 << 20
	if c, err := m.Alloc(3 << 18); err != nil || c.Close() != nil {
		t.Errorf("after everything came back: %v", err)
	}
	d := deviceMemory(t, f, DeviceOptions{})
	if _, err := d.Alloc(1<<20 - 1<<16 + 1); !errors.Is(err, ErrLimit) {
		t.Errorf("into the default reserve: %v", err)
	}
}

func TestDriversFailuresAndBadOptionsAreErrors(t *testing.T) {
	f := newFake(false, false, true)
	m := deviceMemory(t, f, DeviceOptions{})
	if _, err := m.Alloc(0); !errors.Is(err, ErrSize) {
		t.Errorf("0 bytes: %v", err)
	}
	cause := errors.New("out of memory")
	f.fail = cause
	if _, err := m.Alloc(8); !errors.Is(err, cause) {
		t.Errorf("managed: %v", err)
	}
	s := deviceMemory(t, newFake(false, false, false), DeviceOptions{})
	s.driver.(*fakeDriver).fail = cause
	if _, err := s.Alloc(8); !errors.Is(err, cause) {
		t.Errorf("pinned: %v", err)
	}
	if _, err := NewDeviceMemory(f, DeviceOptions{}); !errors.Is(err, cause) {
		t.Errorf("no memory info: %v", err)
	}
	f.fail = nil
	for _, o := range []DeviceOptions{{Access: 9}, {Access: Direct}} {
		if _, err := NewDeviceMemory(f, o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	if _, err := NewDeviceMemory(newFake(false, false, false), DeviceOptions{Access: Migrating}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("managed without concurrent access: %v", err)
	}
	if _, err := NewDeviceMemory(nil, DeviceOptions{}); err == nil {
		t.Error("no driver was accepted")
	}
}

func TestAPoolOverDeviceMemoryKeepsItsKind(t *testing.T) {
	f := newFake(false, false, true)
	p, err := NewPool(deviceMemory(t, f, DeviceOptions{}), 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := p.Alloc(5000)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.MoveTo(true, 1); err != nil || !b.Shared() || !strings.HasPrefix(f.calls[len(f.calls)-1], "prefetch 5000") {
		t.Errorf("%v, shared %v, asked for %q", err, b.Shared(), f.calls)
	}
	if err := errors.Join(b.Close(), p.Close()); err != nil || len(f.kept) != 0 {
		t.Errorf("%v, %d allocations left", err, len(f.kept))
	}
}

func TestAddressesKnowsWhatIsHandedOutAndNoMore(t *testing.T) {
	m := deviceMemory(t, newFake(false, false, true), DeviceOptions{})
	var b [3]*Buffer
	for i := range b {
		var err error
		if b[i], err = m.Alloc(100); err != nil {
			t.Fatal(err)
		}
	}
	at := b[1].Addr()
	if !m.Addresses(at, 100) || !m.Addresses(at+40, 60) || m.Addresses(at, 101) || m.Addresses(at-1, 1) && at-1 != b[0].Addr()+99 && at-1 != b[2].Addr()+99 {
		t.Error("ranges are wrong")
	}
	for i := range b {
		if err := b[i].Close(); err != nil {
			t.Fatal(err)
		}
	}
	if m.Addresses(at, 1) {
		t.Error("closed memory counts as the device's")
	}
	if c := deviceMemory(t, newFake(false, true, true), DeviceOptions{}); !c.Addresses(12345, 1<<30) {
		t.Error("a coherent device addresses everything")
	}
}

// Managed memory is asked for once for each change of sides, as a whole on its way to
// the device and in parts on its way back; other memory is never asked for.
func TestMovesAreAskedForOnce(t *testing.T) {
	f := newFake(false, false, true)
	m := deviceMemory(t, f, DeviceOptions{Reserve: -1})
	a, err1 := m.Alloc(8192)
	b, err2 := m.Alloc(4096)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	f.calls = nil
	var moved []int64
	note := func(n int64, err error) {
		if err != nil {
			t.Fatal(err)
		}
		moved = append(moved, n)
	}
	note(m.ToDevice(a.Addr()+100, 7))
	note(m.ToDevice(a.Addr(), 7))
	note(m.ToHost(a.Addr()+4096, 64, 8))
	note(m.ToDevice(a.Addr(), 9))
	m.HostUsed(a.Addr() + 8191)
	note(m.ToDevice(a.Addr(), 9))
	note(m.ToHost(b.Addr(), 4096, 8)) // parts of it may have been used by nobody yet
	note(m.ToDevice(1, 9))            // nobody's
	note(m.ToHost(b.Addr(), 4097, 9)) // beyond
	if want := []int64{8192, 0, 64, 8192, 8192, 4096, 0, 0}; !slices.Equal(moved, want) {
		t.Errorf("moved %v, want %v", moved, want)
	}
	if want := []string{
		"prefetch 8192 host=false stream=7", "prefetch 64 host=true stream=8", "prefetch 8192 host=false stream=9",
		"prefetch 8192 host=false stream=9", "prefetch 4096 host=true stream=8",
	}; !slices.Equal(f.calls, want) {
		t.Errorf("calls %q, want %q", f.calls, want)
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
	still := newFake(false, false, false)
	m = deviceMemory(t, still, DeviceOptions{})
	c, err := m.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	still.calls = nil
	note(m.ToDevice(c.Addr(), 1))
	note(m.ToHost(c.Addr(), 1, 1))
	if len(still.calls) != 0 {
		t.Errorf("staged memory: %q", still.calls)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}
