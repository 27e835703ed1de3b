package main

import (
	"fmt"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"
)

// library is a peer that was opened in this process.
type library struct {
	name    string
	path    string
	version string
	handle  uintptr
	threads func(n int)
	// sgemm and the others are addresses of Fortran symbols, 0 where absent.
	sym map[string]uintptr
	// dnnl is oneDNN's own row-major call; its floats go by value.
	dnnl func(ta, tb byte, m, n, k int64, alpha float32, a *float32, lda int64, b *float32, ldb int64, beta float32, c *float32, ldc int64) int32
}

var fortran = []string{"sgemm_", "dgemm_", "ssyrk_", "dsyrk_", "ssyevd_", "dsyevd_", "sgeqrf_", "dgeqrf_", "sorgqr_", "dorgqr_"}

// open tries the paths in turn.
func open(name string, paths ...string) (*library, error) {
	var tried []string
	for _, p := range paths {
		h, err := purego.Dlopen(p, purego.RTLD_NOW|purego.RTLD_LOCAL)
		if err != nil {
			tried = append(tried, p)
			continue
		}
		l := &library{name: name, path: p, handle: h, sym: map[string]uintptr{}}
		for _, s := range fortran {
			if a, err := purego.Dlsym(h, s); err == nil {
				l.sym[s] = a
			}
		}
		return l, nil
	}
	return nil, fmt.Errorf("%s is not installed (tried %s)", name, strings.Join(tried, ", "))
}

const multiarch = "/usr/lib/x86_64-linux-gnu/"

func openOpenBLAS() (*library, error) {
	l, err := open("OpenBLAS", multiarch+"openblas-pthread/libopenblas.so.0", "libopenblas.so.0", "libopenblas.so")
	if err != nil {
		return nil, err
	}
	var set func(int32)
	var core, config func() string
	for name, f := range map[string]any{"openblas_set_num_threads": &set, "openblas_get_corename": &core, "openblas_get_config": &config} {
		if err := l.bind(f, name); err != nil {
			return nil, err
		}
	}
	l.threads = func(n int) { set(int32(n)) }
	l.version = strings.TrimSpace(config()) + ", core " + core()
	return l, nil
}

func openBLIS() (*library, error) {
	l, err := open("BLIS", multiarch+"blis-openmp/libblis.so.4", multiarch+"blis-pthread/libblis.so.4", "libblis.so.4", "libblis.so")
	if err != nil {
		return nil, err
	}
	var set func(int64)
	var version func() string
	var arch func() int32
	var archName func(int32) string
	for name, f := range map[string]any{"bli_thread_set_num_threads": &set, "bli_info_get_version_str": &version, "bli_arch_query_id": &arch, "bli_arch_string": &archName} {
		if err := l.bind(f, name); err != nil {
			return nil, err
		}
	}
	omp := openMP()
	l.threads = func(n int) { set(int64(n)); omp(n) }
	l.version = version() + ", " + archName(arch()) + ", " + l.path
	return l, nil
}

func openOneDNN() (*library, error) {
	l, err := open("oneDNN", "libdnnl.so.3", "libdnnl.so.2", "libdnnl.so")
	if err != nil {
		return nil, err
	}
	var version func() unsafe.Pointer
	var isa func() int32
	for name, f := range map[string]any{"dnnl_sgemm": &l.dnnl, "dnnl_version": &version, "dnnl_get_effective_cpu_isa": &isa} {
		if err := l.bind(f, name); err != nil {
			return nil, err
		}
	}
	v := (*[3]int32)(version())
	l.version = fmt.Sprintf("%d.%d.%d, isa mask %#x", v[0], v[1], v[2], isa())
	l.threads = openMP()
	return l, nil
}

// openMP returns the setter of the OpenMP runtime that BLIS and oneDNN share. It
// acts on the calling thread, so peers are called from one locked thread.
func openMP() func(n int) {
	h, err := purego.Dlopen("libgomp.so.1", purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return func(int) {}
	}
	var set func(int32)
	purego.RegisterLibFunc(&set, h, "omp_set_num_threads")
	return func(n int) { set(int32(n)) }
}

func (l *library) bind(f any, name string) error {
	a, err := purego.Dlsym(l.handle, name)
	if err != nil {
		return fmt.Errorf("%s lacks %s", l.name, name)
	}
	purego.RegisterFunc(f, a)
	return nil
}

// call is one prepared Fortran call: every argument goes by address.
type call struct {
	fn   uintptr
	args []uintptr
	keep []any // owns what the addresses point to
}

func newCall(fn uintptr) *call { return &call{fn: fn} }

func (c *call) char(v byte) *call {
	p := new([8]byte)
	p[0] = v
	return c.pointer(unsafe.Pointer(p), p)
}

// integer passes a 32-bit integer, as the LP64 builds of Debian want.
func (c *call) integer(v int) *call {
	p := new(int64)
	*p = int64(v)
	return c.pointer(unsafe.Pointer(p), p)
}

func (c *call) pointer(p unsafe.Pointer, keep any) *call {
	c.args = append(c.args, uintptr(p))
	c.keep = append(c.keep, keep)
	return c
}

func scalar[T any](c *call, v T) *call {
	p := new(T)
	*p = v
	return c.pointer(unsafe.Pointer(p), p)
}

func vector[T any](c *call, x []T) *call {
	return c.pointer(unsafe.Pointer(unsafe.SliceData(x)), x)
}

func (c *call) do() {
	purego.SyscallN(c.fn, c.args...)
	runtime.KeepAlive(c.keep)
}

// overheads of crossing into C, measured on a function that does nothing, are
// taken off the time of every peer call.
type overheads struct{ pointers, dnnl time.Duration }

func measureOverheads() (o overheads, err error) {
	h, err := purego.Dlopen("libc.so.6", purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return o, err
	}
	nop, err := purego.Dlsym(h, "labs")
	if err != nil {
		return o, err
	}
	c := newCall(nop)
	for range 13 {
		c.integer(1)
	}
	o.pointers = perCall(c.do)
	var f func(ta, tb byte, m, n, k int64, alpha float32, a *float32, lda int64, b *float32, ldb int64, beta float32, c *float32, ldc int64) int32
	purego.RegisterFunc(&f, nop)
	x := new(float32)
	o.dnnl = perCall(func() { f('N', 'N', 1, 1, 1, 1, x, 1, x, 1, 0, x, 1) })
	return o, nil
}

// perCall returns the smallest mean over batches of calls.
func perCall(f func()) time.Duration {
	const batch = 2000
	best := time.Hour
	for range 20 {
		start := time.Now()
		for range batch {
			f()
		}
		best = min(best, time.Since(start)/batch)
	}
	return best
}
