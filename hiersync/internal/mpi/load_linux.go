//go:build linux && (amd64 || arm64)

package mpi

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Open loads the library. It stays loaded: MPI cannot be started twice.
func Open() (*Library, error) {
	// The plugins of Open MPI look for its symbols in the global scope.
	lib, err := purego.Dlopen(LibraryName, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("mpi: no %s (Open MPI; Debian: libopenmpi3): %w: %w", LibraryName, errors.ErrUnsupported, err)
	}
	l := new(Library)
	s := &l.sym
	table := []struct {
		name string
		addr *uintptr
	}{
		{"MPI_Init_thread", &s.initThread}, {"MPI_Initialized", &s.initialized}, {"MPI_Finalize", &s.finalize},
		{"MPI_Comm_rank", &s.commRank}, {"MPI_Comm_size", &s.commSize}, {"MPI_Comm_dup", &s.commDup},
		{"MPI_Comm_split_type", &s.splitType}, {"MPI_Comm_set_errhandler", &s.setErrhandler},
		{"MPI_Comm_get_attr", &s.getAttr}, {"MPI_Bcast", &s.bcast},
		{"MPI_Isend", &s.isend}, {"MPI_Irecv", &s.irecv}, {"MPI_Testsome", &s.testsome},
		{"MPI_Error_string", &s.errorString}, {"MPI_Get_library_version", &s.libraryVersion},
		{"ompi_mpi_comm_world", &s.world}, {"ompi_mpi_byte", &s.byteType}, {"ompi_mpi_info_null", &s.infoNull},
		{"ompi_mpi_errors_return", &s.errorsReturn}, {"ompi_request_null", &s.nilRequest},
	}
	for _, e := range table {
		if *e.addr, err = purego.Dlsym(lib, e.name); err != nil {
			return nil, fmt.Errorf("mpi: %s has no %s, so it is not Open MPI: %w: %w", LibraryName, e.name, errors.ErrUnsupported, err)
		}
	}
	return l, nil
}

// call calls a function of the library. The arguments that are addresses stay
// valid for the call: see ptr.
func (l *Library) call(fn uintptr, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(fn, args...)
	return r
}

// foreign is memory of the library at an address that it returned. The detour
// over a variable's address keeps the address out of vet's rule for Go pointers.
func foreign(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }
