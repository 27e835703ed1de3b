// Package profile writes a CPU profile of a whole benchmark.
package profile

import (
	"errors"
	"os"
	"runtime/pprof"
)

// Run calls f, and writes a profile of it to file unless that is "".
func Run(file string, f func() error) (err error) {
	if file == "" {
		return f()
	}
	w, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := pprof.StartCPUProfile(w); err != nil {
		return err
	}
	defer pprof.StopCPUProfile() // before the file is closed
	return f()
}
