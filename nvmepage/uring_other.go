//go:build !linux

package nvmepage

import (
	"errors"
	"fmt"
)

func newUringEngine(int) (engine, error) {
	return nil, fmt.Errorf("nvmepage: io_uring: this system is not Linux: %w", errors.ErrUnsupported)
}
