package cuda

import (
	"bytes"
	"runtime"
	"strings"
	"unsafe"
)

// Options of cuModuleLoadDataEx.
const (
	jitErrorLogBuffer     = 5
	jitErrorLogBufferSize = 6
	logBytes              = 16 << 10
)

// Load compiles PTX for the current device. The error of a program that does not
// compile carries the compiler's log.
func (d *Driver) Load(ptx []byte) (uintptr, error) {
	image := make([]byte, len(ptx)+1) // the driver wants a terminating zero
	copy(image, ptx)
	log := make([]byte, logBytes)
	options := [2]int32{jitErrorLogBuffer, jitErrorLogBufferSize}
	var pin runtime.Pinner // the driver finds the log's address in values
	pin.Pin(&log[0])
	defer pin.Unpin()
	values := [2]uintptr{uintptr(unsafe.Pointer(&log[0])), logBytes}
	var m uintptr
	status := call(d.cuModuleLoadDataEx, uintptr(unsafe.Pointer(&m)), uintptr(unsafe.Pointer(&image[0])), uintptr(len(options)),
		uintptr(unsafe.Pointer(&options[0])), uintptr(unsafe.Pointer(&values[0])))
	if status == 0 {
		return m, nil
	}
	e := d.failure("cuModuleLoadDataEx", status)
	if end := bytes.IndexByte(log, 0); end > 0 {
		e.Text += ": " + strings.TrimSpace(string(log[:end]))
	}
	return 0, e
}

// Unload gives a module back.
func (d *Driver) Unload(m uintptr) error {
	return d.check("cuModuleUnload", plain(d.cuModuleUnload, m))
}

// Function returns a kernel of the module.
func (d *Driver) Function(m uintptr, name string) (uintptr, error) {
	c := append([]byte(name), 0)
	var f uintptr
	err := d.check("cuModuleGetFunction", call(d.cuModuleGetFunction, uintptr(unsafe.Pointer(&f)), m, uintptr(unsafe.Pointer(&c[0]))))
	return f, err
}

// MaxArguments bounds the arguments of a launch.
const MaxArguments = 24

// Frame holds the arguments of one launch: a slot of 8 bytes each and, for the
// driver, a pointer to each slot. It is used again and again by one caller.
type Frame struct {
	slots    [MaxArguments]uint64
	pointers [MaxArguments]uintptr
}

// NewFrame returns a frame; it does not move, so the pointers are set once.
func NewFrame() *Frame {
	f := new(Frame)
	for i := range f.slots {
		f.pointers[i] = uintptr(unsafe.Pointer(&f.slots[i]))
	}
	return f
}

// Set stores argument i. On little-endian machines the low bytes of the slot are
// the value of a 4-byte argument.
func (f *Frame) Set(i int, bits uint64) { f.slots[i] = bits }

// Launch starts a kernel over grid blocks of block threads each, both along x, y, z.
// The driver copies the arguments before it returns; f is the caller's and stays.
func (d *Driver) Launch(fn uintptr, grid, block [3]uint32, shared uint32, s uintptr, f *Frame) error {
	return d.check("cuLaunchKernel", plain(d.cuLaunchKernel, fn,
		uintptr(grid[0]), uintptr(grid[1]), uintptr(grid[2]), uintptr(block[0]), uintptr(block[1]), uintptr(block[2]),
		uintptr(shared), s, uintptr(unsafe.Pointer(&f.pointers[0])), 0))
}
