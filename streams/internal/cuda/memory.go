package cuda

import (
	"errors"
	"fmt"
	"unsafe"
)

// AllocDevice returns n bytes that only the device can address.
func (d *Driver) AllocDevice(n int64) (uintptr, error) {
	var a uintptr
	err := d.check("cuMemAlloc_v2", call(d.cuMemAlloc, uintptr(unsafe.Pointer(&a)), uintptr(n)))
	return a, err
}

// AllocManaged returns n bytes that host and device address alike.
func (d *Driver) AllocManaged(n int64) (uintptr, error) {
	var a uintptr
	err := d.check("cuMemAllocManaged", call(d.cuMemAllocManaged, uintptr(unsafe.Pointer(&a)), uintptr(n), attachGlobal))
	return a, err
}

// AllocPinned returns n bytes of host memory, locked and known to the device
// under the same address.
func (d *Driver) AllocPinned(n int64) (uintptr, error) {
	var a uintptr
	err := d.check("cuMemHostAlloc", call(d.cuMemHostAlloc, uintptr(unsafe.Pointer(&a)), uintptr(n), hostAllocPortable|hostAllocMapped))
	return a, err
}

// Free gives memory of AllocDevice or AllocManaged back.
func (d *Driver) Free(a uintptr) error { return d.check("cuMemFree_v2", plain(d.cuMemFree, a)) }

// FreePinned gives memory of AllocPinned back.
func (d *Driver) FreePinned(a uintptr) error {
	return d.check("cuMemFreeHost", plain(d.cuMemFreeHost, a))
}

// MemoryInfo returns the free and the total bytes of the current device.
func (d *Driver) MemoryInfo() (free, total int64, err error) {
	var n [2]uint64
	err = d.check("cuMemGetInfo_v2", call(d.cuMemGetInfo, uintptr(unsafe.Pointer(&n[0])), uintptr(unsafe.Pointer(&n[1]))))
	return int64(n[0]), int64(n[1]), err
}

// Copy copies n bytes in stream order between any two addresses.
func (d *Driver) Copy(dst, src uintptr, n int, s uintptr) error {
	return d.check("cuMemcpyAsync", plain(d.cuMemcpyAsync, dst, src, uintptr(n), s))
}

// Set sets n bytes to v in stream order.
func (d *Driver) Set(dst uintptr, v byte, n int, s uintptr) error {
	return d.check("cuMemsetD8Async", plain(d.cuMemsetD8Async, dst, uintptr(v), uintptr(n), s))
}

// HostLocation names the host as the place to prefetch to or to advise about.
const HostLocation = -1

// location packs CUmemLocation{type, id}, which is passed by value in one
// register on amd64 and arm64: type 1 is a device, 2 the host.
func location(device int) uintptr {
	if device == HostLocation {
		return 2
	}
	return uintptr(uint64(uint32(device))<<32 | 1)
}

// Prefetch moves managed memory to a device, or to HostLocation, in stream order.
// Drivers since CUDA 12.2 take a location, older ones the device's number.
func (d *Driver) Prefetch(a uintptr, n int64, device int, s uintptr) error {
	switch {
	case d.cuMemPrefetchAsyncLocation != 0:
		return d.check("cuMemPrefetchAsync_v2", plain(d.cuMemPrefetchAsyncLocation, a, uintptr(n), location(device), 0, s))
	case d.cuMemPrefetchAsync != 0:
		return d.check("cuMemPrefetchAsync", plain(d.cuMemPrefetchAsync, a, uintptr(n), uintptr(device), s))
	}
	return fmt.Errorf("cuda: the driver has neither cuMemPrefetchAsync nor cuMemPrefetchAsync_v2: %w", errors.ErrUnsupported)
}

// Advise tells the driver how managed memory will be used.
func (d *Driver) Advise(a uintptr, n int64, advice Advice, device int) error {
	switch {
	case d.cuMemAdviseLocation != 0:
		return d.check("cuMemAdvise_v2", plain(d.cuMemAdviseLocation, a, uintptr(n), uintptr(advice), location(device)))
	case d.cuMemAdvise != 0:
		return d.check("cuMemAdvise", plain(d.cuMemAdvise, a, uintptr(n), uintptr(advice), uintptr(device)))
	}
	return fmt.Errorf("cuda: the driver has neither cuMemAdvise nor cuMemAdvise_v2: %w", errors.ErrUnsupported)
}
