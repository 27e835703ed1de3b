package cuda

import "unsafe"

// SimulatorCount returns how often the simulated driver saw something happen; see
// cudasim_count. It is -1 under another driver.
func SimulatorCount(name string) int64 {
	handle, _, err := open(LibraryName)
	if err != nil {
		return -1
	}
	f := lookup(handle, "cudasim_count")
	if f == 0 {
		return -1
	}
	c := append([]byte(name), 0)
	return int64(call(f, uintptr(unsafe.Pointer(&c[0]))))
}

// Simulator hands a setting to the simulated driver of the tests and reports
// whether the library that the loader finds is that one. An empty setting asks only.
func Simulator(setting string) bool {
	handle, _, err := open(LibraryName)
	if err != nil {
		return false
	}
	f := lookup(handle, "cudasim_configure")
	if f == 0 {
		return false
	}
	c := append([]byte(setting), 0)
	if setting != "" {
		call(f, uintptr(unsafe.Pointer(&c[0])))
	}
	return true
}
