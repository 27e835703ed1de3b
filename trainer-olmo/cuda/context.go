package cuda

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"unsafe"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/streams"
	"github.com/asteria-runtime/asteria/uvm"
)

//go:embed kernels/elementwise_sm80.ptx
var elementwise80 []byte

//go:embed kernels/elementwise_sm90.ptx
var elementwise90 []byte

//go:embed kernels/product_sm80.ptx
var product80 []byte

//go:embed kernels/product_sm90.ptx
var product90 []byte

// The seams between the modules.
var (
	_ uvm.Driver        = (*streams.Device)(nil)
	_ kron.Ops[float32] = (*Ops[float32])(nil)
	_ kron.Ops[float64] = (*Ops[float64])(nil)
)

// Options sets a [Context]. The zero value is the recommended setting.
type Options struct {
	// OwnKernels keeps products and eigendecompositions off cuBLAS and cuSOLVER.
	OwnKernels bool
	// MinOrder is the order from which a refresh runs on the device; smaller ones
	// are the host's, which is done before the device's many launches would be. 0
	// means 128, 1 takes all.
	MinOrder int
	// StagingBytes is the pinned memory through which each stream stages operands;
	// 0 means 4 MiB.
	StagingBytes int64
	// Logger is told once which libraries are used. nil discards.
	Logger *slog.Logger
}

// Context is a device with our kernels loaded. It is safe for concurrent use; what
// it makes serves one goroutine each.
type Context struct {
	device  *streams.Device
	options Options
	memory  *uvm.DeviceMemory
	kernels map[string]*streams.Kernel
	moves   moves
}

// span is a range of addresses.
type span struct{ lo, hi uintptr }

// New loads the kernels on a device. Closing the device is the caller's, after
// everything made here was closed.
func New(device *streams.Device, o Options) (*Context, error) {
	if o.StagingBytes < 0 || o.MinOrder < 0 {
		return nil, fmt.Errorf("cuda: StagingBytes %d, MinOrder %d: want 0 (default) or more", o.StagingBytes, o.MinOrder)
	}
	if o.MinOrder == 0 {
		o.MinOrder = 128
	}
	if o.StagingBytes == 0 {
		o.StagingBytes = 4 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	memory, err := uvm.NewDeviceMemory(device, uvm.DeviceOptions{})
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	c := &Context{device: device, options: o, memory: memory, kernels: map[string]*streams.Kernel{}}
	for _, program := range []struct {
		images []streams.Image
		names  []string
	}{
		{[]streams.Image{{Capability: 80, PTX: elementwise80}, {Capability: 90, PTX: elementwise90}}, elementwiseNames},
		{[]streams.Image{{Capability: 80, PTX: product80}, {Capability: 90, PTX: product90}}, productNames},
	} {
		if err := c.load(program.images, program.names); err != nil {
			return nil, fmt.Errorf("cuda: %w", err)
		}
	}
	return c, nil
}

var elementwiseNames = []string{
	"axpby", "scale", "lerp", "lerp_square", "adam_direction", "scale_mode", "permute_mode", "sum_squares", "squares_mode",
	"column_dots", "identity_error", "load_symmetric", "shifted", "symmetrize", "scale_columns", "whiten_rows", "widen_symmetric", "narrow",
}

var productNames = []string{"product", "cholesky", "solve_right"}

// load finds each kernel in both precisions.
func (c *Context) load(images []streams.Image, names []string) error {
	m, err := c.device.Load(images...)
	if err != nil {
		return err
	}
	for _, name := range names {
		for _, suffix := range []string{"_f32", "_f64"} {
			if c.kernels[name+suffix], err = m.Kernel(name + suffix); err != nil {
				return err
			}
		}
	}
	return nil
}

// Device returns what New was given.
func (c *Context) Device() *streams.Device { return c.device }

// Access tells how the device reaches the memory of Alloc.
func (c *Context) Access() uvm.Access { return c.memory.Access() }

// Alloc returns memory for optimizer state, placed as the device's architecture
// asks: [Ops] use it without copies wherever the device can address it.
func (c *Context) Alloc(n int64) (*uvm.Buffer, error) {
	b, err := c.memory.Alloc(n)
	if err != nil {
		return nil, err
	}
	if err := b.Place(uvm.PreferDevice); err != nil {
		return nil, errors.Join(fmt.Errorf("cuda: advise %d bytes: %w", n, err), b.Close())
	}
	return b, nil
}

// addresses reports whether the device addresses all of s.
func (c *Context) addresses(s span) bool { return c.memory.Addresses(s.lo, int64(s.hi-s.lo)) }

// kernel returns the kernel of that name for T.
func kernel[T gemm.Float](c *Context, name string) *streams.Kernel {
	if double[T]() {
		return c.kernels[name+"_f64"]
	}
	return c.kernels[name+"_f32"]
}

// double reports whether T is float64.
func double[T gemm.Float]() bool { return unsafe.Sizeof(T(0)) == 8 }

// number passes a scalar in T's own width.
func number[T gemm.Float](x T) streams.Arg {
	if double[T]() {
		return streams.Float64(float64(x))
	}
	return streams.Float32(float32(x))
}

// bytesOf views elements as bytes.
func bytesOf[E any](x []E) []byte {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(x[0])))
}

func spanOf[E any](x []E) span {
	lo := uintptr(unsafe.Pointer(unsafe.SliceData(x)))
	return span{lo, lo + uintptr(len(x))*unsafe.Sizeof(*new(E))}
}

// lane is a stream with what goes through it: staging, temporary device memory,
// cuBLAS. The first failure stays and everything after it does nothing: a device
// that failed once computes nothing that may be used.
type lane struct {
	c      *Context
	stream *streams.Stream
	blas   *streams.BLAS // nil: our own product
	err    error

	moved   uint64      // moves that the stream has waited for
	pinned  *uvm.Buffer // two halves, used in turn
	passed  [2]streams.Event
	half    int
	idle    map[int64][]uintptr // temporary memory by size class
	classes map[uintptr]int64   // of all that was allocated
}

func (c *Context) newLane(p streams.Priority) (*lane, error) {
	s, err := c.device.NewStream(p)
	if err != nil {
		return nil, err
	}
	l := &lane{c: c, stream: s, idle: map[int64][]uintptr{}, classes: map[uintptr]int64{}}
	staged, err := uvm.NewDeviceMemory(c.device, uvm.DeviceOptions{Access: uvm.Staged})
	if err == nil {
		l.pinned, err = staged.Alloc(c.options.StagingBytes)
	}
	if err == nil && !c.options.OwnKernels {
		if l.blas, err = s.BLAS(); errors.Is(err, errors.ErrUnsupported) {
			err = nil
		}
	}
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (l *lane) close() error {
	errs := []error{l.stream.Synchronize(context.Background())}
	if l.blas != nil {
		errs = append(errs, l.blas.Close())
	}
	for a := range l.classes {
		errs = append(errs, l.c.device.Free(a))
	}
	for i := range l.passed {
		errs = append(errs, l.passed[i].Close())
	}
	errs = append(errs, l.stream.Close())
	if l.pinned != nil {
		errs = append(errs, l.pinned.Close())
	}
	return errors.Join(errs...)
}

// fail keeps the first failure.
func (l *lane) fail(err error) {
	if l.err == nil && err != nil {
		l.err = fmt.Errorf("cuda: %s: %w", l.c.device.Name(), err)
	}
}

// temporary returns device memory of n bytes at least, recycled by size class.
func (l *lane) temporary(n int64) uintptr {
	class := int64(512)
	for class < n {
		class *= 2
	}
	if list := l.idle[class]; len(list) > 0 {
		a := list[len(list)-1]
		l.idle[class] = list[:len(list)-1]
		return a
	}
	a, err := l.c.device.AllocDevice(class)
	if err != nil {
		l.fail(err)
		return 0
	}
	l.classes[a] = class
	return a
}

// recycle takes temporary memory back; the stream may still use it, for whatever
// uses it next comes later in the same stream.
func (l *lane) recycle(a uintptr) {
	if a != 0 {
		l.idle[l.classes[a]] = append(l.idle[l.classes[a]], a)
	}
}

// staging returns the next half of the pinned memory once the copy that used it
// last has passed.
func (l *lane) staging() []byte {
	l.half = 1 - l.half
	n := len(l.pinned.Bytes()) / 2
	l.fail(l.passed[l.half].Synchronize(context.Background()))
	return l.pinned.Bytes()[l.half*n : (l.half+1)*n]
}

// upload copies host memory to the device. src is read before upload returns.
func (l *lane) upload(dst uintptr, src []byte) {
	for len(src) > 0 && l.err == nil {
		part := l.staging()
		n := copy(part, src)
		l.fail(l.stream.Upload(dst, part[:n]))
		l.fail(l.stream.Record(&l.passed[l.half]))
		dst, src = dst+uintptr(n), src[n:]
	}
}

// download copies device memory to the host and waits for it.
func (l *lane) download(dst []byte, src uintptr) {
	for len(dst) > 0 && l.err == nil {
		part := l.staging()
		part = part[:min(len(part), len(dst))]
		l.fail(l.stream.Download(part, src))
		l.wait()
		if l.err != nil {
			return
		}
		n := copy(dst, part)
		dst, src = dst[n:], src+uintptr(n)
	}
}

func (l *lane) wait() { l.fail(l.stream.Synchronize(context.Background())) }

// threadsPerBlock is what the kernels with a barrier are written for.
const threadsPerBlock = 256

// maxBlocks bounds a launch: each thread then does several elements.
const maxBlocks = 4096

// each launches a kernel over n elements.
func (l *lane) each(k *streams.Kernel, n int, args ...streams.Arg) {
	if n > 0 {
		l.blocks(k, min(maxBlocks, (n+threadsPerBlock-1)/threadsPerBlock), args...)
	}
}

// blocks launches a kernel with that many blocks.
func (l *lane) blocks(k *streams.Kernel, n int, args ...streams.Arg) {
	if n > 0 && l.err == nil {
		l.fail(l.stream.Launch(k, streams.Grid{Blocks: [2]uint32{uint32(n), 1}, Threads: threadsPerBlock}, args...))
	}
}

// memory views a range of the host's memory that the caller holds.
func memory(s span) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&s.lo)), int(s.hi-s.lo))
}
