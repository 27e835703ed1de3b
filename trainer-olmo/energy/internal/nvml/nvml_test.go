package nvml

import (
	"errors"
	"strings"
	"testing"
)

// fake is a library with so many devices.
func fake(devices uint32, energy func(h uintptr, mj *uint64) Return) (symbols, *[]string) {
	var calls []string
	note := func(name string) { calls = append(calls, name) }
	return symbols{
		init:     func() Return { note("init"); return success },
		shutdown: func() Return { note("shutdown"); return success },
		count:    func(n *uint32) Return { *n = devices; return success },
		handle: func(i uint32, h *uintptr) Return {
			if i >= 2 {
				return 15 // NVML_ERROR_GPU_IS_LOST
			}
			*h = uintptr(100 + i)
			return success
		},
		energy: energy,
		name: func(h uintptr, text *byte, length uint32) Return {
			if h == 101 {
				return notSupported
			}
			*text = 'G' // one letter; the rest of the buffer is zero
			return success
		},
	}, &calls
}

func TestDevicesAreListedAndRead(t *testing.T) {
	lib, calls := fake(2, func(h uintptr, mj *uint64) Return {
		if h == 101 {
			return notSupported
		}
		*mj = 123456
		return success
	})
	d, err := open(lib)
	if err != nil {
		t.Fatal(err)
	}
	if d.Count() != 2 || d.Name(0) != "G" || d.Name(1) != "unnamed" {
		t.Errorf("devices %d, names %q", d.Count(), d.names)
	}
	if mj, err := d.Millijoules(0); mj != 123456 || err != nil {
		t.Errorf("device 0: %d, %v", mj, err)
	}
	if _, err := d.Millijoules(1); !errors.Is(err, notSupported) || !strings.Contains(err.Error(), "nvmlDeviceGetTotalEnergyConsumption") {
		t.Errorf("device 1: %v", err)
	}
	if n := testing.AllocsPerRun(10, func() { _, _ = d.Millijoules(0) }); n != 0 {
		t.Errorf("%v allocations a reading", n)
	}
	if err := d.Close(); err != nil || strings.Join(*calls, " ") != "init shutdown" {
		t.Errorf("close: %v, calls %v", err, *calls)
	}
}

func TestAFailureShutsTheLibraryDown(t *testing.T) {
	lib, calls := fake(3, nil)
	if _, err := open(lib); err == nil || !strings.Contains(err.Error(), "device 2: nvmlDeviceGetHandleByIndex_v2: nvml: status 15") {
		t.Errorf("got %v", err)
	}
	if strings.Join(*calls, " ") != "init shutdown" {
		t.Errorf("calls %v", *calls)
	}
	lib, calls = fake(1, nil)
	lib.init = func() Return { return noPermission }
	if _, err := open(lib); !errors.Is(err, noPermission) || len(*calls) != 0 {
		t.Errorf("got %v, calls %v: a library that did not start is not shut down", err, *calls)
	}
}

// On a machine without the driver the library is unsupported, and on one with it
// there is a device.
func TestOpenSaysWhatIsMissing(t *testing.T) {
	d, err := Open()
	if err != nil {
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), Library) {
			t.Errorf("got %v", err)
		}
		return
	}
	if d.Count() == 0 {
		t.Error("a driver without devices")
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
