package streams

import (
	"unsafe"

	"github.com/asteria-runtime/asteria/streams/internal/cuda"
)

// address is where a slice begins.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// MemoryAccess tells how the device reaches memory: whether it shares the host's
// chips, whether it reads all of the process's memory through the host's page
// tables, whether both sides may use managed memory at the same time.
func (d *Device) MemoryAccess() (integrated, coherent, concurrent bool) {
	if d.acc == nil {
		return true, true, true
	}
	i := d.acc.info
	return i.Integrated, i.Pageable && i.HostTables, i.Managed && i.Concurrent
}

// MemoryInfo returns the free and the total bytes of the device.
func (d *Device) MemoryInfo() (free, total int64, err error) {
	err = d.accelerated("memory", func(a *accelerator) (err error) {
		free, total, err = a.driver.MemoryInfo()
		return err
	})
	return free, total, err
}

// AllocDevice returns the address of n bytes on the device. The host must not
// touch them; Free gives them back once no stream uses them.
func (d *Device) AllocDevice(n int64) (addr uintptr, err error) {
	err = d.accelerated("device memory", func(a *accelerator) (err error) {
		addr, err = a.driver.AllocDevice(n)
		return err
	})
	return addr, err
}

// AllocManaged returns the address of n bytes that both sides use.
func (d *Device) AllocManaged(n int64) (addr uintptr, err error) {
	err = d.accelerated("managed memory", func(a *accelerator) (err error) {
		addr, err = a.driver.AllocManaged(n)
		return err
	})
	return addr, err
}

// AllocPinned returns the address of n bytes of the host's memory, locked and
// addressed alike by the device.
func (d *Device) AllocPinned(n int64) (addr uintptr, err error) {
	err = d.accelerated("pinned memory", func(a *accelerator) (err error) {
		addr, err = a.driver.AllocPinned(n)
		return err
	})
	return addr, err
}

// Free gives memory of AllocDevice or AllocManaged back.
func (d *Device) Free(addr uintptr) error {
	return d.accelerated("free", func(a *accelerator) error { return a.driver.Free(addr) })
}

// FreePinned gives memory of AllocPinned back.
func (d *Device) FreePinned(addr uintptr) error {
	return d.accelerated("free", func(a *accelerator) error { return a.driver.FreePinned(addr) })
}

// Prefetch moves n bytes of managed memory to the device, or to the host, in the
// order of the stream with this handle.
func (d *Device) Prefetch(addr uintptr, n int64, toHost bool, stream uintptr) error {
	return d.accelerated("prefetch", func(a *accelerator) error {
		return a.driver.Prefetch(addr, n, a.place(toHost), stream)
	})
}

// Advise tells the driver how managed memory will be used: advice is a number of
// CUmem_advise, and the place it speaks of is the device or the host.
func (d *Device) Advise(addr uintptr, n int64, advice int, host bool) error {
	return d.accelerated("advise", func(a *accelerator) error {
		return a.driver.Advise(addr, n, cuda.Advice(advice), a.place(host))
	})
}

func (a *accelerator) place(host bool) int {
	if host {
		return cuda.HostLocation
	}
	return a.info.Ordinal
}

// Handle is the driver's name of the stream, for libraries that share it; 0 for a
// host stream.
func (s *Stream) Handle() uintptr {
	if l, ok := s.lane.(*deviceLane); ok {
		return l.handle
	}
	return 0
}

// CopyBytes enqueues a copy of n bytes between any two addresses that the device
// or the host allocated.
func (s *Stream) CopyBytes(dst, src uintptr, n int64) error {
	return s.onDevice("copy", func(l *deviceLane) error {
		return l.acc.driver.Copy(dst, src, int(n), l.handle)
	})
}

// SetBytes enqueues setting n bytes to v.
func (s *Stream) SetBytes(dst uintptr, v byte, n int64) error {
	return s.onDevice("set", func(l *deviceLane) error {
		return l.acc.driver.Set(dst, v, int(n), l.handle)
	})
}

// Upload enqueues a copy from host memory to the device, Download the way back.
// Both must stay alone until the copy ran.
func (s *Stream) Upload(dst uintptr, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	return s.onDevice("upload", func(l *deviceLane) error {
		l.pins.Pin(&src[0])
		return l.acc.driver.Copy(dst, address(src), len(src), l.handle)
	})
}

// Download enqueues a copy from the device to host memory.
func (s *Stream) Download(dst []byte, src uintptr) error {
	if len(dst) == 0 {
		return nil
	}
	return s.onDevice("download", func(l *deviceLane) error {
		l.pins.Pin(&dst[0])
		return l.acc.driver.Copy(address(dst), src, len(dst), l.handle)
	})
}
