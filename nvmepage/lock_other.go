//go:build !unix

package nvmepage

import (
	"errors"
	"fmt"
	"os"
)

// tryLock cannot tell live stores from left-overs on this system, and a store that
// might remove a live neighbour's pages must not open.
func tryLock(f *os.File) error {
	return fmt.Errorf("nvmepage: lock %s: looked for flock: %w", f.Name(), errors.ErrUnsupported)
}
