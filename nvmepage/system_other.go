//go:build !linux

package nvmepage

const directFlag = 0

// vector is not needed where pieces move one by one.
type vector struct{}

type runVector struct{}

// Allocate makes the file long enough; without reservation a write may still meet
// a full drive, and says so.
func (f osFile) Allocate(off, n int64) error { return f.Truncate(off + n) }

func directAlign(File) int { return 4096 }

func adviseHuge([]byte) {}
