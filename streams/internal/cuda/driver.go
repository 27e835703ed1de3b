package cuda

import (
	"errors"
	"fmt"
	"unsafe"
)

// LibraryName is the driver's file name, the same for every CUDA version.
const LibraryName = "libcuda.so.1"

// oldest is the first driver that has everything the table needs.
const oldest = 11000

// Driver is the driver's function table. Its methods are as concurrent as the
// driver: all of them, provided the calling thread has the right context.
type Driver struct {
	version int

	cuInit, cuDriverGetVersion, cuGetErrorName, cuGetErrorString                           uintptr
	cuDeviceGetCount, cuDeviceGet, cuDeviceGetName, cuDeviceTotalMem, cuDeviceGetAttribute uintptr
	cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRelease, cuCtxPushCurrent, cuCtxPopCurrent uintptr
	cuCtxGetStreamPriorityRange, cuStreamCreateWithPriority, cuStreamDestroy               uintptr
	cuStreamQuery, cuStreamSynchronize, cuStreamWaitEvent, cuLaunchHostFunc                uintptr
	cuEventCreate, cuEventDestroy, cuEventRecord, cuEventQuery, cuEventSynchronize         uintptr
	cuEventElapsedTime                                                                     uintptr
	cuMemAlloc, cuMemFree, cuMemAllocManaged, cuMemHostAlloc, cuMemFreeHost, cuMemGetInfo  uintptr
	cuMemcpyAsync, cuMemsetD8Async                                                         uintptr
	cuMemPrefetchAsync, cuMemPrefetchAsyncLocation, cuMemAdvise, cuMemAdviseLocation       uintptr
	cuModuleLoadDataEx, cuModuleUnload, cuModuleGetFunction, cuLaunchKernel                uintptr
}

func (d *Driver) symbols() []symbol {
	return []symbol{
		need(&d.cuInit, "cuInit"),
		need(&d.cuDriverGetVersion, "cuDriverGetVersion"),
		need(&d.cuGetErrorName, "cuGetErrorName"),
		need(&d.cuGetErrorString, "cuGetErrorString"),
		need(&d.cuDeviceGetCount, "cuDeviceGetCount"),
		need(&d.cuDeviceGet, "cuDeviceGet"),
		need(&d.cuDeviceGetName, "cuDeviceGetName"),
		need(&d.cuDeviceTotalMem, "cuDeviceTotalMem_v2"),
		need(&d.cuDeviceGetAttribute, "cuDeviceGetAttribute"),
		need(&d.cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain"),
		need(&d.cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxRelease"),
		need(&d.cuCtxPushCurrent, "cuCtxPushCurrent_v2"),
		need(&d.cuCtxPopCurrent, "cuCtxPopCurrent_v2"),
		need(&d.cuCtxGetStreamPriorityRange, "cuCtxGetStreamPriorityRange"),
		need(&d.cuStreamCreateWithPriority, "cuStreamCreateWithPriority"),
		need(&d.cuStreamDestroy, "cuStreamDestroy_v2"),
		need(&d.cuStreamQuery, "cuStreamQuery"),
		need(&d.cuStreamSynchronize, "cuStreamSynchronize"),
		need(&d.cuStreamWaitEvent, "cuStreamWaitEvent"),
		need(&d.cuLaunchHostFunc, "cuLaunchHostFunc"),
		need(&d.cuEventCreate, "cuEventCreate"),
		need(&d.cuEventDestroy, "cuEventDestroy_v2"),
		need(&d.cuEventRecord, "cuEventRecord"),
		need(&d.cuEventQuery, "cuEventQuery"),
		need(&d.cuEventSynchronize, "cuEventSynchronize"),
		need(&d.cuEventElapsedTime, "cuEventElapsedTime"),
		need(&d.cuMemAlloc, "cuMemAlloc_v2"),
		need(&d.cuMemFree, "cuMemFree_v2"),
		need(&d.cuMemAllocManaged, "cuMemAllocManaged"),
		need(&d.cuMemHostAlloc, "cuMemHostAlloc"),
		need(&d.cuMemFreeHost, "cuMemFreeHost"),
		need(&d.cuMemGetInfo, "cuMemGetInfo_v2"),
		need(&d.cuMemcpyAsync, "cuMemcpyAsync"),
		need(&d.cuMemsetD8Async, "cuMemsetD8Async"),
		want(&d.cuMemPrefetchAsync, "cuMemPrefetchAsync"),
		want(&d.cuMemPrefetchAsyncLocation, "cuMemPrefetchAsync_v2"),
		want(&d.cuMemAdvise, "cuMemAdvise"),
		want(&d.cuMemAdviseLocation, "cuMemAdvise_v2"),
		need(&d.cuModuleLoadDataEx, "cuModuleLoadDataEx"),
		need(&d.cuModuleUnload, "cuModuleUnload"),
		need(&d.cuModuleGetFunction, "cuModuleGetFunction"),
		need(&d.cuLaunchKernel, "cuLaunchKernel"),
	}
}

// Open loads and initialises the driver. The error matches errors.ErrUnsupported
// where there is none, it has no device, or it is too old.
func Open() (*Driver, error) {
	handle, name, err := open(LibraryName)
	if err != nil {
		return nil, err
	}
	d := new(Driver)
	if err := resolve(handle, name, d.symbols()); err != nil {
		return nil, err
	}
	if err := d.check("cuInit", plain(d.cuInit, 0)); err != nil {
		return nil, err
	}
	var version int32
	if err := d.check("cuDriverGetVersion", call(d.cuDriverGetVersion, uintptr(unsafe.Pointer(&version)))); err != nil {
		return nil, err
	}
	if d.version = int(version); d.version < oldest {
		return nil, fmt.Errorf("cuda: driver for CUDA %d.%d: want %d.%d or newer: %w",
			d.version/1000, d.version%1000/10, oldest/1000, oldest%1000/10, errors.ErrUnsupported)
	}
	return d, nil
}

// Version returns the newest CUDA version that the driver serves, 1000*major + 10*minor.
func (d *Driver) Version() int { return d.version }

// check turns a status into an error.
func (d *Driver) check(function string, status int) error {
	if status == 0 {
		return nil
	}
	return d.failure(function, status)
}

func (d *Driver) failure(function string, status int) *Error {
	e := &Error{Call: function, Code: status, Name: "unknown status", Text: "no text"}
	var p *byte
	if call(d.cuGetErrorName, uintptr(status), uintptr(unsafe.Pointer(&p))) == 0 && p != nil {
		e.Name = text(p)
	}
	if call(d.cuGetErrorString, uintptr(status), uintptr(unsafe.Pointer(&p))) == 0 && p != nil {
		e.Text = text(p)
	}
	return e
}

// Devices returns the number of devices.
func (d *Driver) Devices() (int, error) {
	var n int32
	err := d.check("cuDeviceGetCount", call(d.cuDeviceGetCount, uintptr(unsafe.Pointer(&n))))
	return int(n), err
}

// Device returns the handle of device number ordinal.
func (d *Driver) Device(ordinal int) (int32, error) {
	var h int32
	err := d.check("cuDeviceGet", call(d.cuDeviceGet, uintptr(unsafe.Pointer(&h)), uintptr(ordinal)))
	return h, err
}

// Name returns the device's product name.
func (d *Driver) Name(device int32) (string, error) {
	buf := make([]byte, 256)
	err := d.check("cuDeviceGetName", call(d.cuDeviceGetName, uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)-1), uintptr(device)))
	return text(&buf[0]), err
}

// TotalMemory returns the device's memory in bytes.
func (d *Driver) TotalMemory(device int32) (int64, error) {
	var n uint64
	err := d.check("cuDeviceTotalMem_v2", call(d.cuDeviceTotalMem, uintptr(unsafe.Pointer(&n)), uintptr(device)))
	return int64(n), err
}

// Attribute returns one of the numbers that describe a device.
func (d *Driver) Attribute(a Attribute, device int32) (int, error) {
	var v int32
	err := d.check("cuDeviceGetAttribute", call(d.cuDeviceGetAttribute, uintptr(unsafe.Pointer(&v)), uintptr(a), uintptr(device)))
	return int(v), err
}

// RetainPrimary returns the context that every user of the device shares.
func (d *Driver) RetainPrimary(device int32) (uintptr, error) {
	var ctx uintptr
	err := d.check("cuDevicePrimaryCtxRetain", call(d.cuDevicePrimaryCtxRetain, uintptr(unsafe.Pointer(&ctx)), uintptr(device)))
	return ctx, err
}

// ReleasePrimary gives the shared context back.
func (d *Driver) ReleasePrimary(device int32) error {
	return d.check("cuDevicePrimaryCtxRelease_v2", plain(d.cuDevicePrimaryCtxRelease, uintptr(device)))
}

// Push makes ctx current on the calling operating-system thread.
func (d *Driver) Push(ctx uintptr) error {
	return d.check("cuCtxPushCurrent_v2", plain(d.cuCtxPushCurrent, ctx))
}

// Pop undoes the latest Push of the calling thread.
func (d *Driver) Pop() error { return d.check("cuCtxPopCurrent_v2", plain(d.cuCtxPopCurrent, 0)) }

// PriorityRange returns the numbers of the lowest and the highest stream priority;
// the higher one is the smaller number.
func (d *Driver) PriorityRange() (lowest, highest int, err error) {
	var r [2]int32
	err = d.check("cuCtxGetStreamPriorityRange", call(d.cuCtxGetStreamPriorityRange, uintptr(unsafe.Pointer(&r[0])), uintptr(unsafe.Pointer(&r[1]))))
	return int(r[0]), int(r[1]), err
}
