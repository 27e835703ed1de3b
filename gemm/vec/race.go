//go:build race

package vec

import (
	"runtime"
	"unsafe"
)

// raceRead tells the race detector that assembly reads x.
func raceRead(x []float32) {
	if len(x) > 0 {
		runtime.RaceReadRange(unsafe.Pointer(unsafe.SliceData(x)), 4*len(x))
	}
}

// raceWrite tells the race detector that assembly writes x.
func raceWrite(x []float32) {
	if len(x) > 0 {
		runtime.RaceWriteRange(unsafe.Pointer(unsafe.SliceData(x)), 4*len(x))
	}
}
