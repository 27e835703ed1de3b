//go:build !linux || !(amd64 || arm64)

package nvml

import (
	"errors"
	"fmt"
)

// Open finds no library on this system.
func Open() (*Devices, error) {
	return nil, fmt.Errorf("nvml: %s is only looked for on Linux, on amd64 and arm64: %w", Library, errors.ErrUnsupported)
}
