package streams_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/asteria-runtime/asteria/streams"
	"github.com/asteria-runtime/asteria/streams/cudasim"
	"github.com/asteria-runtime/asteria/streams/internal/cuda"
	"github.com/asteria-runtime/asteria/streams/internal/testkernels"
	"github.com/asteria-runtime/asteria/streams/streamstest"
)

var images = []streams.Image{{Capability: 80, PTX: testkernels.SM80}, {Capability: 90, PTX: testkernels.SM90}}

// kernel loads one of the test kernels.
func kernel(t testing.TB, d *streams.Device, name string) *streams.Kernel {
	t.Helper()
	m, err := d.Load(images...)
	if err != nil {
		t.Fatal(err)
	}
	k, err := m.Kernel(name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func newStream(t testing.TB, d *streams.Device, p streams.Priority) *streams.Stream {
	t.Helper()
	s, err := d.NewStream(p)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// device allocates n bytes of device memory until the test ends.
func device(t testing.TB, d *streams.Device, n int64) uintptr {
	t.Helper()
	a, err := d.AllocDevice(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, d.Free(a)) })
	return a
}

func TestCUDAConformance(t *testing.T) {
	must(t, cudasim.Device(t).Close()) // skips or fails where there is none
	streamstest.Run(t, func(t *testing.T) *streams.Device { return cudasim.Device(t) }, streamstest.Options{Programs: programs()})
	if n := cuda.PendingCalls(); n != 0 {
		t.Errorf("%d host functions are still kept", n)
	}
}

// Random pauses before every operation of the simulated driver spread the orders
// that a missing dependency can give.
func TestCUDAConformanceWithPauses(t *testing.T) {
	cudasim.Configure(t, "CUDASIM_DELAY=200")
	streamstest.Run(t, func(t *testing.T) *streams.Device { return cudasim.Device(t) }, streamstest.Options{Programs: 20})
}

func TestNoDriverIsUnsupportedAndNamesTheLibrary(t *testing.T) {
	if cudasim.Loaded() {
		t.Skip("there is a driver")
	}
	_, err := streams.Open(0)
	if err == nil {
		t.Skip("there is a driver")
	}
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), cuda.LibraryName) {
		t.Fatalf("err = %v", err)
	}
	if _, err := streams.Devices(); !errors.Is(err, errors.ErrUnsupported) {
		t.Fatalf("Devices: %v", err)
	}
}

func TestTheHostDeviceHasNoAcceleratorOperations(t *testing.T) {
	d := streams.Host()
	defer d.Close()
	s := newStream(t, d, streams.Normal)
	_, err1 := d.AllocDevice(8)
	_, err2 := d.Load(images...)
	for _, err := range []error{err1, err2, s.CopyBytes(0, 0, 1), s.Upload(0, make([]byte, 1)), d.Prefetch(0, 1, false, 0)} {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("err = %v, want ErrUnsupported", err)
		}
	}
	if _, ok := d.Info(); ok || s.Handle() != 0 || d.Name() != "host" {
		t.Error("the host device describes itself as an accelerator")
	}
}

func TestInfoDescribesTheDevice(t *testing.T) {
	d := cudasim.Device(t)
	i, ok := d.Info()
	if !ok || i.Name == "" || i.Capability < 50 || i.TotalBytes < 1<<20 || i.Driver < 11000 || i.Multiprocessors < 1 {
		t.Fatalf("%+v", i)
	}
	all, err := streams.Devices()
	if err != nil || len(all) == 0 || all[0] != i {
		t.Fatalf("Devices: %+v, %v; Open(0): %+v", all, err, i)
	}
}

func TestAMissingOrdinalIsAnError(t *testing.T) {
	cudasim.Device(t)
	_, err := streams.Open(77)
	var e *streams.Error
	if !errors.As(err, &e) || e.Call != "cuDeviceGet" || e.Name != "CUDA_ERROR_INVALID_DEVICE" {
		t.Fatalf("err = %v", err)
	}
}

func TestMemoryComesBackAndIsCounted(t *testing.T) {
	d := cudasim.Device(t)
	s := newStream(t, d, streams.Normal)
	before, total, err := d.MemoryInfo()
	must(t, err)
	const n = 8 << 20
	a, err := d.AllocDevice(n)
	must(t, err)
	during, _, err := d.MemoryInfo()
	must(t, err)
	if before-during < n || total < before {
		t.Errorf("free %d, then %d of %d after %d bytes were taken", before, during, total, n)
	}
	src, dst := make([]byte, 1000), make([]byte, 1000)
	for i := range src {
		src[i] = byte(i * 7)
	}
	must(t, s.Upload(a, src), s.CopyBytes(a+4096, a, 1000), s.Download(dst, a+4096), s.Synchronize(t.Context()))
	if !bytes.Equal(src, dst) {
		t.Error("what was uploaded did not come back")
	}
	must(t, s.SetBytes(a, 7, 16), s.Download(dst[:16], a), s.Synchronize(t.Context()), d.Free(a))
	if !bytes.Equal(dst[:16], bytes.Repeat([]byte{7}, 16)) {
		t.Errorf("set bytes: %v", dst[:16])
	}
}

func TestManagedAndPinnedMemoryAreSharedWithTheHost(t *testing.T) {
	d := cudasim.Device(t)
	s := newStream(t, d, streams.Normal)
	mix := kernel(t, d, "mix")
	managed, err := d.AllocManaged(4096)
	must(t, err)
	pinned, err := d.AllocPinned(4096)
	must(t, err)
	x, y := words(managed), words(pinned)
	x[3], y[3] = 5, 100
	must(t, s.Launch(mix, streams.Grid{Blocks: [2]uint32{2, 1}, Threads: 32}, streams.Int64(1024), streams.Int32(9), streams.Address(managed), streams.Address(pinned)),
		s.Synchronize(t.Context()))
	if want := uint32((100*31 + 5) ^ 9); y[3] != want {
		t.Errorf("kernel wrote %d, want %d", y[3], want)
	}
	if _, _, concurrent := d.MemoryAccess(); concurrent {
		const preferred = 3
		must(t, d.Advise(managed, 4096, preferred, true), d.Prefetch(managed, 4096, false, s.Handle()), d.Prefetch(managed, 4096, true, s.Handle()), s.Synchronize(t.Context()))
		if x[3] != 5 {
			t.Error("prefetching changed the contents")
		}
	}
	must(t, d.Free(managed), d.FreePinned(pinned))
}

// words shows memory that the driver gave as numbers; it is the driver's, so the
// conversion of its address is sound.
func words(a uintptr) []uint32 {
	return unsafe.Slice(*(**uint32)(unsafe.Pointer(&a)), 1024)
}

func TestPrefetchUsesTheDriversNewerSignatureWhereItIsThere(t *testing.T) {
	out := inChild(t, "prefetch", "CUDASIM_TRACE=1")
	for _, want := range []string{"cuMemPrefetchAsync_v2 bytes=8192 location=1:0", "cuMemPrefetchAsync_v2 bytes=8192 location=2:0", "cuMemAdvise_v2 bytes=8192 advice=5 location=1:0"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestLaunchPacksArgumentsOfEverySize(t *testing.T) {
	d := cudasim.Device(t)
	s := newStream(t, d, streams.High)
	k, out := kernel(t, d, "every_size"), device(t, d, 8)
	var got [8]byte
	must(t, s.Launch(k, streams.Grid{Blocks: [2]uint32{1, 1}, Threads: 32}, streams.Int32(-3), streams.Float32(0.5), streams.Int64(1<<40), streams.Float64(0.25), streams.Address(out)),
		s.Download(got[:], out), s.Synchronize(t.Context()))
	if v := *(*float64)(unsafe.Pointer(&got)); v != -3+0.5+1<<40+0.25 {
		t.Errorf("sum of the arguments: %v", v)
	}
	for name, args := range map[string][]streams.Arg{
		"too few": {streams.Int32(1)},
		"size":    {streams.Int64(1), streams.Float32(0), streams.Int64(0), streams.Float64(0), streams.Address(out)},
	} {
		if err := s.Launch(k, streams.Grid{Blocks: [2]uint32{1, 1}, Threads: 1}, args...); err == nil {
			t.Errorf("%s: arguments that do not fit were accepted", name)
		}
	}
}

func TestThreadsOfABlockShareMemory(t *testing.T) {
	d := cudasim.Device(t)
	s := newStream(t, d, streams.Normal)
	k, x, y := kernel(t, d, "reverse"), device(t, d, 2048), device(t, d, 2048)
	in, out := make([]byte, 2048), make([]byte, 2048)
	for i := range 512 {
		binary.LittleEndian.PutUint32(in[4*i:], uint32(i))
	}
	must(t, s.Upload(x, in), s.Launch(k, streams.Grid{Blocks: [2]uint32{2, 1}, Threads: 256}, streams.Address(x), streams.Address(y)), s.Download(out, y), s.Synchronize(t.Context()))
	for i := range 512 {
		if got, want := binary.LittleEndian.Uint32(out[4*i:]), uint32(i/256*256+255-i%256); got != want {
			t.Fatalf("element %d is %d, want %d", i, got, want)
		}
	}
}

func TestAProgramThatDoesNotCompileShowsTheCompilersLog(t *testing.T) {
	d := cudasim.Device(t)
	_, err := d.Load(streams.Image{Capability: 80, PTX: []byte("not a program")})
	var e *streams.Error
	if !errors.As(err, &e) || e.Call != "cuModuleLoadDataEx" || !strings.Contains(err.Error(), "line 1") {
		t.Fatalf("err = %v", err)
	}
	if _, err := d.Load(streams.Image{Capability: 1000, PTX: testkernels.SM90}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a program for a newer device: %v", err)
	}
	m, err := d.Load(images...)
	must(t, err)
	if _, err := m.Kernel("absent"); err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("a kernel that is not there: %v", err)
	}
}

// Low-priority work that is enqueued first must not hold back the other stream.
func TestHighPriorityOvertakesLow(t *testing.T) {
	d := cudasim.Device(t)
	low, high := newStream(t, d, streams.Low), newStream(t, d, streams.High)
	k := kernel(t, d, "spin")
	i, _ := d.Info()
	blocks := uint32(64 * i.Multiprocessors)
	out := device(t, d, int64(blocks)*8)
	busy := func(s *streams.Stream, blocks uint32, at uintptr) error {
		return s.Launch(k, streams.Grid{Blocks: [2]uint32{blocks, 1}, Threads: 64}, streams.Int64(20000), streams.Address(at))
	}
	must(t, busy(low, blocks, out), busy(high, 2, out+uintptr(4*blocks)))
	must(t, high.Synchronize(t.Context()))
	if low.Query() {
		t.Error("the low-priority launch was done before the high-priority one, which is a thirty-second of it")
	}
	must(t, low.Synchronize(t.Context()))
}

func TestErrorsOfTheDriverAreTyped(t *testing.T) {
	cudasim.Configure(t, "CUDASIM_MEMORY=1048576")
	d := cudasim.Device(t)
	_, err := d.AllocDevice(2 << 20)
	var e *streams.Error
	if !errors.Is(err, streams.ErrOutOfMemory) || !errors.As(err, &e) || e.Call != "cuMemAlloc_v2" || e.Code != 2 {
		t.Errorf("err = %v", err)
	}
	cudasim.Configure(t, "CUDASIM_FAIL=cuStreamCreateWithPriority:1:999")
	if _, err := d.NewStream(streams.Normal); !errors.As(err, &e) || e.Code != 999 {
		t.Errorf("err = %v", err)
	}
	cudasim.Configure(t, "CUDASIM_FAIL=cuMemAllocManaged:2:2")
	a, err := d.AllocManaged(64)
	must(t, err)
	if _, err := d.AllocManaged(64); !errors.Is(err, streams.ErrOutOfMemory) {
		t.Errorf("the second allocation: %v", err)
	}
	must(t, d.Free(a))
}

// A kernel that fails breaks the context: everything says so, nothing hangs, and
// host functions that will never run are dropped.
func TestAFailedLaunchBreaksTheDeviceLoudly(t *testing.T) {
	cudasim.Configure(t, "CUDASIM_FAIL=kernel:1:719")
	d, err := streams.Open(0)
	must(t, err)
	t.Cleanup(func() { _ = d.Close() })
	a, b := newStream(t, d, streams.Normal), newStream(t, d, streams.Normal)
	k := kernel(t, d, "spin")
	out, err := d.AllocDevice(4)
	must(t, err)
	var e streams.Event
	must(t, a.Record(&e), a.Launch(k, streams.Grid{Blocks: [2]uint32{1, 1}, Threads: 1}, streams.Int64(1), streams.Address(out)))
	for _, err := range []error{a.Synchronize(t.Context()), a.Synchronize(context.Background()), b.Synchronize(t.Context()), e.Synchronize(t.Context()), a.Do(func() error { return nil })} {
		var de *streams.Error
		if !errors.As(err, &de) || de.Code != 719 {
			t.Errorf("err = %v, want status 719", err)
		}
	}
	if err := d.Close(); err == nil {
		t.Error("closing a broken device hides the failure")
	}
	if n := cuda.PendingCalls(); n != 0 {
		t.Errorf("%d host functions are still kept", n)
	}
	d = cudasim.Device(t) // a new context is whole
	must(t, newStream(t, d, streams.Normal).Synchronize(t.Context()))
}

func TestABadAddressIsReported(t *testing.T) {
	if !cudasim.Loaded() {
		t.Skip("a real device would take the process's other contexts with it")
	}
	d, err := streams.Open(0)
	must(t, err)
	t.Cleanup(func() { _ = d.Close() }) // says the same again
	s, k := newStream(t, d, streams.Normal), kernel(t, d, "spin")
	mine := make([]uint32, 4)
	must(t, s.Launch(k, streams.Grid{Blocks: [2]uint32{1, 1}, Threads: 1}, streams.Int64(1), streams.Address(uintptr(unsafe.Pointer(&mine[0])))))
	var e *streams.Error
	if err := s.Synchronize(t.Context()); !errors.As(err, &e) || e.Name != "CUDA_ERROR_ILLEGAL_ADDRESS" {
		t.Errorf("err = %v", err)
	}
	runtime.KeepAlive(mine)
}

// Settings that the driver reads once need a process of their own.
func TestDriversThatCannotServeAreUnsupported(t *testing.T) {
	for name, c := range map[string]struct{ env, want string }{
		"old":       {"CUDASIM_VERSION=10020", "driver for CUDA 10.2: want 11.0 or newer"},
		"no device": {"CUDASIM_DEVICES=0", "CUDA_ERROR_NO_DEVICE"},
		"no symbol": {"LD_LIBRARY_PATH=" + strings.Split(os.Getenv("LD_LIBRARY_PATH"), ":")[0] + "/missing", "has no symbol cuLaunchHostFunc"},
	} {
		t.Run(name, func(t *testing.T) {
			out := inChild(t, "open", c.env)
			if !strings.Contains(out, c.want) || !strings.Contains(out, "unsupported true") {
				t.Errorf("no %q in\n%s", c.want, out)
			}
		})
	}
}

// inChild runs TestChild's part in a process with another environment.
func inChild(t *testing.T, part string, env ...string) string {
	t.Helper()
	if !cudasim.Loaded() {
		t.Skip("needs the simulated driver")
	}
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.Command(exe, "-test.run=^TestChild$", "-test.v")
	cmd.Env = append(append(os.Environ(), "STREAMS_CHILD="+part), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

func TestChild(t *testing.T) {
	switch os.Getenv("STREAMS_CHILD") {
	case "":
		t.Skip("runs in a child process")
	case "open":
		_, err := streams.Open(0)
		fmt.Println(err, "unsupported", errors.Is(err, errors.ErrUnsupported))
	case "prefetch":
		d := cudasim.Device(t)
		s := newStream(t, d, streams.Normal)
		a, err := d.AllocManaged(8192)
		must(t, err, d.Advise(a, 8192, 5, false), d.Prefetch(a, 8192, false, s.Handle()), d.Prefetch(a, 8192, true, s.Handle()), s.Synchronize(t.Context()), d.Free(a))
	}
}

// TestRandomKernelProgramsEqualTheirSequentialMeaning runs kernels and copies over
// device memory, ordered by events alone.
func TestRandomKernelProgramsEqualTheirSequentialMeaning(t *testing.T) {
	d := cudasim.Device(t)
	k := kernel(t, d, "mix")
	const cells, n = 4, 64
	memory := device(t, d, cells*n*4)
	at := func(i int) uintptr { return memory + uintptr(i*n*4) }
	for seed := range programs() {
		g := rand.New(rand.NewPCG(seed, 12))
		lanes := make([]*streams.Stream, 2+g.IntN(3))
		for i := range lanes {
			lanes[i] = newStream(t, d, streams.Priority(g.IntN(3)-1))
		}
		var want [cells][n]uint32
		var last [cells]streams.Event
		zero := make([]byte, cells*n*4)
		must(t, lanes[0].Upload(memory, zero))
		for i := range last {
			must(t, lanes[0].Record(&last[i]))
		}
		for range 16 {
			s, from, to, c := lanes[g.IntN(len(lanes))], g.IntN(cells), g.IntN(cells), g.Uint32()
			must(t, s.Wait(&last[from]), s.Wait(&last[to]))
			if g.IntN(3) == 0 && from != to {
				must(t, s.CopyBytes(at(to), at(from), n*4))
				want[to] = want[from]
			} else {
				must(t, s.Launch(k, streams.Grid{Blocks: [2]uint32{2, 1}, Threads: 16}, streams.Int64(n), streams.Int32(int32(c)), streams.Address(at(from)), streams.Address(at(to))))
				for i := range want[to] {
					want[to][i] = (want[to][i]*31 + want[from][i]) ^ c
				}
			}
			must(t, s.Record(&last[to]), s.Record(&last[from]))
		}
		got := make([]byte, len(zero))
		for i := range last {
			must(t, lanes[0].Wait(&last[i]))
		}
		must(t, lanes[0].Download(got, memory), lanes[0].Synchronize(t.Context()))
		for i := range cells * n {
			if v := binary.LittleEndian.Uint32(got[4*i:]); v != want[i/n][i%n] {
				t.Fatalf("seed %d: cell %d element %d is %d, want %d", seed, i/n, i%n, v, want[i/n][i%n])
			}
		}
		for i := range last {
			must(t, last[i].Close())
		}
		for _, s := range lanes {
			must(t, s.Close())
		}
	}
}

func TestEnqueuingOnADeviceAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("under -race pools drop what they are given")
	}
	d := cudasim.Device(t)
	s := newStream(t, d, streams.Normal)
	k, a := kernel(t, d, "mix"), device(t, d, 8192)
	var e streams.Event
	f := func() error { return nil }
	must(t, s.Record(&e))
	n := testing.AllocsPerRun(100, func() {
		_ = s.Launch(k, streams.Grid{Blocks: [2]uint32{1, 1}, Threads: 32}, streams.Int64(64), streams.Int32(1), streams.Address(a), streams.Address(a+4096))
		_ = s.CopyBytes(a, a+4096, 64)
		_ = s.Record(&e)
		_ = s.Wait(&e)
		for !s.Query() {
			time.Sleep(10 * time.Microsecond)
		}
	})
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
	// Host functions cost what the callback costs, which is not the enqueuer's.
	must(t, s.Do(f), s.Synchronize(t.Context()))
}

func TestContextsAndStreamsCanBeShared(t *testing.T) {
	owner := cudasim.Device(t)
	theirs := newStream(t, owner, streams.Normal)
	d, err := streams.OpenContext(0, owner.Context())
	must(t, err)
	s, err := d.Borrow(theirs.Handle(), streams.Normal)
	must(t, err)
	a := device(t, owner, 8)
	var got [8]byte
	must(t, s.SetBytes(a, 9, 8), theirs.Download(got[:], a), theirs.Synchronize(t.Context()))
	if got != [8]byte{9, 9, 9, 9, 9, 9, 9, 9} {
		t.Errorf("the streams are not one: %v", got)
	}
	must(t, s.Close(), d.Close())
	must(t, theirs.SetBytes(a, 1, 8), theirs.Synchronize(t.Context())) // still open
	if _, err := d.Borrow(theirs.Handle(), streams.Normal); !errors.Is(err, streams.ErrClosed) {
		t.Errorf("on a closed device: %v", err)
	}
	if _, err := owner.Borrow(0, streams.Normal); err == nil {
		t.Error("the default stream was accepted")
	}
	if _, err := streams.OpenContext(0, 0); err == nil {
		t.Error("no context was accepted")
	}
}
