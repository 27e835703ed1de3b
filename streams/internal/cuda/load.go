//go:build linux && (amd64 || arm64)

package cuda

import (
	"strings"
	"sync"

	"github.com/ebitengine/purego"
)

// open loads the first of the named libraries. It stays loaded: CUDA libraries
// keep threads that do not survive an unload.
func open(names ...string) (handle uintptr, name string, err error) {
	var reasons []string
	for _, name := range names {
		h, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL)
		if err == nil {
			return h, name, nil
		}
		reasons = append(reasons, err.Error())
	}
	return 0, "", &Missing{Library: strings.Join(names, ", "), Reason: reasons}
}

// lookup returns the address of a symbol, 0 when the library has none.
func lookup(handle uintptr, name string) uintptr {
	p, err := purego.Dlsym(handle, name)
	if err != nil {
		return 0
	}
	return p
}

func newCallback(f func(uintptr) uintptr) uintptr { return purego.NewCallback(f) }

// arguments holds what a call passes; see plain.
var arguments = sync.Pool{New: func() any { return new([maxPlain]uintptr) }}

// plain runs a C function whose arguments are integers and memory that the
// collector does not know. Unlike call it allocates nothing: the escape that keeps
// Go memory alive there moves every argument list to the heap.
func plain(fn uintptr, args ...uintptr) int {
	buf := arguments.Get().(*[maxPlain]uintptr)
	n := copy(buf[:], args)
	r, _, _ := purego.SyscallN(fn, buf[:n]...)
	arguments.Put(buf)
	return int(int32(r))
}

// call runs a C function whose arguments are integers and pointers. Pointers to Go
// memory must be converted in the call's own argument list, where they are kept.
//
//go:uintptrescapes
func call(fn uintptr, args ...uintptr) int {
	r, _, _ := purego.SyscallN(fn, args...)
	return int(int32(r))
}
