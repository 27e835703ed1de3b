// Package load tells whether others use the machine that a benchmark runs on.
package load

import (
	"fmt"
	"os"
	"runtime"
)

// Warning returns a line to print when, over the last minute, more than a quarter
// of the processors were busy; "" when they were not, or where the system does
// not say.
func Warning() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	var one float64
	if _, err := fmt.Sscan(string(text), &one); err != nil || one < 0.25*float64(runtime.NumCPU()) {
		return ""
	}
	return fmt.Sprintf("the machine is busy: load %.1f on %d processors; times are too long and ratios uncertain", one, runtime.NumCPU())
}
