//go:build linux && (amd64 || arm64)

package nvml

import (
	"errors"
	"fmt"

	"github.com/ebitengine/purego"
)

// Open loads the library and lists the devices. Without library or device
// symbols the error matches [errors.ErrUnsupported]. Close ends it.
func Open() (*Devices, error) {
	lib, err := purego.Dlopen(Library, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("nvml: %s cannot be opened: %w: %w", Library, err, errors.ErrUnsupported)
	}
	var s symbols
	for _, f := range []struct {
		name string
		into any
	}{
		{"nvmlInit_v2", &s.init}, {"nvmlShutdown", &s.shutdown}, {"nvmlDeviceGetCount_v2", &s.count},
		{"nvmlDeviceGetHandleByIndex_v2", &s.handle}, {"nvmlDeviceGetTotalEnergyConsumption", &s.energy},
		{"nvmlDeviceGetName", &s.name},
	} {
		address, err := purego.Dlsym(lib, f.name)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("nvml: %s lacks %s: %w", Library, f.name, errors.ErrUnsupported), purego.Dlclose(lib))
		}
		purego.RegisterFunc(f.into, address)
	}
	return open(s)
}
