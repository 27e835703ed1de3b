//go:build race

package gemm

import (
	"runtime"
	"unsafe"
)

// The race detector does not see what assembly touches, so calls report it here.

// raceRead tells the race detector that a rows×cols block of x is read.
func raceRead[T Float](x []T, ld, rows, cols int) {
	for i := 0; i < rows && cols > 0; i++ {
		runtime.RaceReadRange(unsafe.Pointer(&x[i*ld]), cols*int(unsafe.Sizeof(x[0])))
	}
}

// raceWrite tells the race detector that a rows×cols block of x is written.
func raceWrite[T Float](x []T, ld, rows, cols int) {
	for i := 0; i < rows && cols > 0; i++ {
		runtime.RaceWriteRange(unsafe.Pointer(&x[i*ld]), cols*int(unsafe.Sizeof(x[0])))
	}
}

// raceWriteLower is raceWrite for the columns up to row + diag.
func raceWriteLower[T Float](x []T, ld, rows, cols, diag int) {
	for i := range rows {
		if n := min(cols, i+diag+1); n > 0 {
			raceWrite(x[i*ld:], ld, 1, n)
		}
	}
}
