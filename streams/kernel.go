package streams

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/asteria-runtime/asteria/streams/internal/cuda"
)

// Image is a program for devices of at least a compute capability.
type Image struct {
	Capability int // 10*major + minor: 80, 90
	PTX        []byte
}

// Module is a program that the driver compiled for the device. It lives as long
// as its device.
type Module struct {
	acc    *accelerator
	handle uintptr
	ptx    string
}

// Load compiles the image with the highest capability that the device has. The
// error of a program that does not compile carries the compiler's log.
func (d *Device) Load(images ...Image) (*Module, error) {
	var m *Module
	err := d.accelerated("load", func(a *accelerator) error {
		image, err := choose(a.info, images)
		if err != nil {
			return err
		}
		h, err := a.driver.Load(image.PTX)
		if err != nil {
			return err
		}
		m = &Module{acc: a, handle: h, ptx: string(image.PTX)}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.modules[m] = struct{}{}
		return nil
	})
	return m, err
}

func choose(i Info, images []Image) (Image, error) {
	best := Image{Capability: -1}
	var have []int
	for _, image := range images {
		have = append(have, image.Capability)
		if image.Capability <= i.Capability && image.Capability > best.Capability {
			best = image
		}
	}
	if best.Capability < 0 {
		return best, fmt.Errorf("%s has compute capability %d, the program needs one of %v: %w", i.Name, i.Capability, have, errors.ErrUnsupported)
	}
	return best, nil
}

// Kernel is a function of a module that streams launch.
type Kernel struct {
	module *Module
	handle uintptr
	name   string
	sizes  []int // of the parameters, in bytes
}

// Kernel returns the module's kernel of that name.
func (m *Module) Kernel(name string) (*Kernel, error) {
	k := &Kernel{module: m, name: name}
	var err error
	if k.sizes, err = signature(m.ptx, name); err != nil {
		return nil, err
	}
	err = m.acc.do(func() (err error) {
		k.handle, err = m.acc.driver.Function(m.handle, name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("streams: kernel %s: %w", name, err)
	}
	return k, nil
}

// signature reads the sizes of a kernel's parameters out of its program, so that a
// launch with other arguments is an error and not a corrupted one.
func signature(ptx, name string) ([]int, error) {
	_, rest, ok := strings.Cut(ptx, ".entry "+name+"(")
	list, _, closed := strings.Cut(rest, ")")
	if !ok || !closed {
		return nil, fmt.Errorf("streams: the program has no kernel %s", name)
	}
	var sizes []int
	for p := range strings.SplitSeq(list, ",") {
		fields := strings.Fields(p)
		if len(fields) == 0 {
			continue
		}
		size := 0
		for _, f := range fields {
			switch f {
			case ".u32", ".s32", ".b32", ".f32":
				size = 4
			case ".u64", ".s64", ".b64", ".f64":
				size = 8
			}
		}
		if size == 0 || fields[0] != ".param" {
			return nil, fmt.Errorf("streams: kernel %s: parameter %q: want one of 4 or 8 bytes", name, strings.TrimSpace(p))
		}
		sizes = append(sizes, size)
	}
	if len(sizes) > cuda.MaxArguments {
		return nil, fmt.Errorf("streams: kernel %s has %d parameters, want at most %d", name, len(sizes), cuda.MaxArguments)
	}
	return sizes, nil
}

// Arg is one argument of a launch.
type Arg struct {
	bits uint64
	size int
}

// Address passes device, managed or pinned memory.
func Address(a uintptr) Arg { return Arg{uint64(a), 8} }

// Int64 passes a long.
func Int64(v int64) Arg { return Arg{uint64(v), 8} }

// Int32 passes an int.
func Int32(v int32) Arg { return Arg{uint64(uint32(v)), 4} }

// Float32 passes a float.
func Float32(v float32) Arg { return Arg{uint64(math.Float32bits(v)), 4} }

// Float64 passes a double.
func Float64(v float64) Arg { return Arg{math.Float64bits(v), 8} }

// Grid says how many threads a launch starts: Blocks along x and y, Threads each.
type Grid struct {
	Blocks  [2]uint32
	Threads uint32
}

// Launch enqueues a kernel. What it is given must stay until it ran. Arguments that
// do not fit the kernel's parameters are an error here; one in the kernel itself,
// such as a bad address, breaks the device's context: every later call fails.
func (s *Stream) Launch(k *Kernel, g Grid, args ...Arg) error {
	if len(args) != len(k.sizes) {
		return fmt.Errorf("streams: launch %s: %d arguments, want %d", k.name, len(args), len(k.sizes))
	}
	for i, a := range args {
		if a.size != k.sizes[i] {
			return fmt.Errorf("streams: launch %s: argument %d has %d bytes, want %d", k.name, i, a.size, k.sizes[i])
		}
	}
	return s.onDevice(k.name, func(l *deviceLane) error {
		if l.acc != k.module.acc {
			return errors.New("the kernel was loaded on another device")
		}
		for i, a := range args {
			l.frame.Set(i, a.bits)
		}
		return l.acc.driver.Launch(k.handle, [3]uint32{g.Blocks[0], g.Blocks[1], 1}, [3]uint32{g.Threads, 1, 1}, 0, l.handle, l.frame)
	})
}

// onDevice enqueues an operation that only accelerators have.
func (s *Stream) onDevice(what string, f func(l *deviceLane) error) error {
	l, ok := s.lane.(*deviceLane)
	if !ok {
		return fmt.Errorf("streams: %s: the host device has no such operation: %w", what, errors.ErrUnsupported)
	}
	if err := l.enqueue(func() error { return f(l) }); err != nil {
		if err == ErrClosed {
			return err
		}
		return fmt.Errorf("streams: %s: %s: %w", s.device.name, what, err)
	}
	return nil
}
