// Package nvml reads the energy counters of NVIDIA GPUs through the management
// library that comes with their driver. The library is opened at run time; a
// machine without it is [errors.ErrUnsupported].
package nvml

import "fmt"

// Library is the name that is looked for.
const Library = "libnvidia-ml.so.1"

// Return is a status of the library, as nvml.h numbers them.
type Return int32

// The statuses that have a meaning here.
const (
	success      Return = 0
	notSupported Return = 3
	noPermission Return = 4
)

// Error words the status.
func (r Return) Error() string {
	switch r {
	case notSupported:
		return "nvml: the device has no such counter (status 3)"
	case noPermission:
		return "nvml: no permission (status 4)"
	}
	return fmt.Sprintf("nvml: status %d", int32(r))
}

// check turns a status into an error that names the call.
func check(call string, r Return) error {
	if r == success {
		return nil
	}
	return fmt.Errorf("%s: %w", call, r)
}

// symbols are the library's functions that are used. Handles are opaque pointers
// of the library, which it keeps valid until shutdown.
type symbols struct {
	init     func() Return
	shutdown func() Return
	count    func(n *uint32) Return
	handle   func(i uint32, device *uintptr) Return
	energy   func(device uintptr, millijoules *uint64) Return
	name     func(device uintptr, text *byte, length uint32) Return
}

// Devices are the GPUs of the machine.
type Devices struct {
	lib     symbols
	handles []uintptr
	names   []string
	// scratch is where the library writes; a field, so that a call allocates
	// nothing.
	scratch uint64
}

// open starts the library and lists the devices.
func open(lib symbols) (*Devices, error) {
	if err := check("nvmlInit_v2", lib.init()); err != nil {
		return nil, err
	}
	d := &Devices{lib: lib}
	n := uint32(0)
	if err := check("nvmlDeviceGetCount_v2", lib.count(&n)); err != nil {
		d.Close()
		return nil, err
	}
	for i := range n {
		h := uintptr(0)
		if err := check("nvmlDeviceGetHandleByIndex_v2", lib.handle(i, &h)); err != nil {
			d.Close()
			return nil, fmt.Errorf("device %d: %w", i, err)
		}
		d.handles = append(d.handles, h)
		d.names = append(d.names, d.nameOf(h))
	}
	return d, nil
}

// nameOf asks for a device's name; a device that does not tell has none.
func (d *Devices) nameOf(h uintptr) string {
	text := make([]byte, 96) // NVML_DEVICE_NAME_V2_BUFFER_SIZE
	if d.lib.name(h, &text[0], uint32(len(text))) != success {
		return "unnamed"
	}
	for i, c := range text {
		if c == 0 {
			return string(text[:i])
		}
	}
	return string(text)
}

// Count is the number of devices.
func (d *Devices) Count() int { return len(d.handles) }

// Name is the name of device i.
func (d *Devices) Name(i int) string { return d.names[i] }

// Millijoules is what device i has used since the driver was loaded. GPUs have
// the counter since Volta.
func (d *Devices) Millijoules(i int) (uint64, error) {
	if r := d.lib.energy(d.handles[i], &d.scratch); r != success {
		return 0, check("nvmlDeviceGetTotalEnergyConsumption", r)
	}
	return d.scratch, nil
}

// Close ends the use of the library, which stays loaded.
func (d *Devices) Close() error { return check("nvmlShutdown", d.lib.shutdown()) }
