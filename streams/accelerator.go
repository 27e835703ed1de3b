package streams

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/asteria-runtime/asteria/streams/internal/cuda"
)

// Error is a status that the driver, cuBLAS or cuSOLVER returned: the call, the
// code, its name and the library's words. It matches [ErrOutOfMemory] and
// errors.ErrUnsupported where the code means that.
type Error = cuda.Error

// ErrOutOfMemory is matched when an allocation on the device found no room.
var ErrOutOfMemory = cuda.ErrOutOfMemory

// Info describes an accelerator.
type Info struct {
	Ordinal         int
	Name            string
	Driver          int   // newest CUDA version that the driver serves: 1000*major + 10*minor
	Capability      int   // compute capability: 10*major + minor
	Multiprocessors int   // units that run blocks of threads
	TotalBytes      int64 // device memory
	Integrated      bool  // shares the host's memory chips
	Managed         bool  // has memory that both sides address
	Concurrent      bool  // both sides may use managed memory at the same time
	Pageable        bool  // reads all memory of the process
	HostTables      bool  // does so through the host's page tables: hardware-coherent
}

// Devices describes every accelerator. The error matches errors.ErrUnsupported
// where there is no driver or no device.
func Devices() ([]Info, error) {
	d, err := cuda.Open()
	if err != nil {
		return nil, fmt.Errorf("streams: %w", err)
	}
	n, err := d.Devices()
	if err != nil {
		return nil, fmt.Errorf("streams: %w", err)
	}
	infos := make([]Info, n)
	for i := range infos {
		h, err := d.Device(i)
		if err == nil {
			infos[i], err = describe(d, i, h)
		}
		if err != nil {
			return nil, fmt.Errorf("streams: device %d: %w", i, err)
		}
	}
	return infos, nil
}

// describe asks for everything in Info.
func describe(d *cuda.Driver, ordinal int, h int32) (Info, error) {
	var errs []error
	number := func(a cuda.Attribute) int {
		v, err := d.Attribute(a, h)
		if err != nil {
			errs = append(errs, err)
		}
		return v
	}
	i := Info{
		Ordinal: ordinal, Driver: d.Version(),
		Capability:      10*number(cuda.CapabilityMajor) + number(cuda.CapabilityMinor),
		Multiprocessors: number(cuda.Multiprocessors),
		Integrated:      number(cuda.Integrated) != 0,
		Managed:         number(cuda.ManagedMemory) != 0,
		Concurrent:      number(cuda.ConcurrentManaged) != 0,
		Pageable:        number(cuda.PageableAccess) != 0,
		HostTables:      number(cuda.PageableUsesHostTables) != 0,
	}
	var err error
	i.Name, err = d.Name(h)
	errs = append(errs, err)
	i.TotalBytes, err = d.TotalMemory(h)
	return i, errors.Join(append(errs, err)...)
}

// accelerator is one CUDA device: the driver's table, the primary context, and
// what was made in it. Lock order: a stream's lock, then the accelerator's.
type accelerator struct {
	driver          *cuda.Driver
	handle          int32
	ctx             uintptr
	borrowed        bool // ctx is somebody else's
	info            Info
	lowest, highest int // priority numbers; the highest is the smallest number

	mu      sync.Mutex
	marks   map[*deviceMark]struct{}
	modules map[*Module]struct{}
}

// openAccelerator works in the context ctx, or in the primary one where it is 0.
func openAccelerator(ordinal int, ctx uintptr) (*accelerator, error) {
	d, err := cuda.Open()
	if err != nil {
		return nil, err
	}
	a := &accelerator{driver: d, marks: map[*deviceMark]struct{}{}, modules: map[*Module]struct{}{}}
	if a.handle, err = d.Device(ordinal); err != nil {
		return nil, err
	}
	if a.info, err = describe(d, ordinal, a.handle); err != nil {
		return nil, err
	}
	if a.ctx, a.borrowed = ctx, ctx != 0; !a.borrowed {
		if a.ctx, err = d.RetainPrimary(a.handle); err != nil {
			return nil, err
		}
	}
	err = a.do(func() error {
		var err error
		a.lowest, a.highest, err = d.PriorityRange()
		return err
	})
	if err != nil {
		return nil, errors.Join(err, a.release())
	}
	return a, nil
}

// do runs f with the device's context current. A context belongs to an
// operating-system thread, so the goroutine keeps its thread meanwhile; what was
// current before is current again afterwards, for others share the process.
func (a *accelerator) do(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := a.driver.Push(a.ctx); err != nil {
		return err
	}
	err := f()
	if pop := a.driver.Pop(); err == nil {
		err = pop
	}
	return err
}

// priority spreads the three priorities over the driver's range. Normal is above
// Low wherever the driver has more than one level.
func (a *accelerator) priority(p Priority) int {
	switch p {
	case Low:
		return a.lowest
	case High:
		return a.highest
	}
	return (a.lowest + a.highest - 1) / 2 // numbers are ≤ 0 and rise downwards
}

func (a *accelerator) close() error {
	a.mu.Lock()
	marks, modules := a.marks, a.modules
	a.marks, a.modules = map[*deviceMark]struct{}{}, map[*Module]struct{}{}
	a.mu.Unlock()
	err := a.do(func() error {
		var errs []error
		for m := range marks {
			errs = append(errs, a.driver.CloseEvent(m.handle))
		}
		for m := range modules {
			errs = append(errs, a.driver.Unload(m.handle))
		}
		return errors.Join(errs...)
	})
	return errors.Join(err, a.release())
}

// release gives the context back if it was retained here.
func (a *accelerator) release() error {
	if a.borrowed {
		return nil
	}
	return a.driver.ReleasePrimary(a.handle)
}

// accelerated runs f on the device's accelerator.
func (d *Device) accelerated(what string, f func(a *accelerator) error) error {
	if d.acc == nil {
		return fmt.Errorf("streams: %s: the host device has none: %w", what, errors.ErrUnsupported)
	}
	if err := d.acc.do(func() error { return f(d.acc) }); err != nil {
		return fmt.Errorf("streams: %s: %s: %w", d.name, what, err)
	}
	return nil
}

// Info describes the device; ok is false for the host.
func (d *Device) Info() (info Info, ok bool) {
	if d.acc == nil {
		return Info{}, false
	}
	return d.acc.info, true
}

// Context is the driver's name of the device's context, for libraries that share
// it; 0 for the host.
func (d *Device) Context() uintptr {
	if d.acc == nil {
		return 0
	}
	return d.acc.ctx
}
