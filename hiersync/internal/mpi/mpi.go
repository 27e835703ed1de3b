package mpi

import (
	"fmt"
	"unsafe"
)

// LibraryName is the library that Open looks for, by the loader's rules.
const LibraryName = "libmpi.so.40"

// Constants of Open MPI's mpi.h.
const (
	ThreadFunneled = 1 // MPI_THREAD_FUNNELED: one thread, that of Init, calls
	commTypeShared = 0 // MPI_COMM_TYPE_SHARED
	tagUB          = 0 // MPI_TAG_UB
	undefined      = -32766
)

// Request is a message under way, MPI_Request.
type Request uintptr

// Error is a failed call.
type Error struct {
	Call string
	Code int
	Text string // as the library puts it
}

// Error names the call and the library's text.
func (e *Error) Error() string { return fmt.Sprintf("mpi: %s: %s (code %d)", e.Call, e.Text, e.Code) }

// symbols are the functions and objects of the library, by address.
type symbols struct {
	initThread, initialized, finalize                   uintptr
	commRank, commSize, commDup, splitType              uintptr
	setErrhandler, getAttr, bcast                       uintptr
	isend, irecv, testsome                              uintptr
	errorString, libraryVersion                         uintptr
	world, byteType, infoNull, errorsReturn, nilRequest uintptr
}

// Library is the loaded library and the communicator of this program.
type Library struct {
	sym  symbols
	comm uintptr
	// Memory for results: C writes here while a call runs.
	out  [2]uintptr
	text [256]byte
}

// int32At reads a C int result.
func (l *Library) int32At(i int) int { return int(*(*int32)(unsafe.Pointer(&l.out[i]))) }

// check turns a return code into an error.
func (l *Library) check(call string, code uintptr) error {
	if int32(code) == 0 {
		return nil
	}
	e := &Error{Call: call, Code: int(int32(code)), Text: "unknown error"}
	l.call(l.sym.errorString, code, ptr(&l.text), ptr(&l.out[1]))
	if n := l.int32At(1); n > 0 && n <= len(l.text) {
		e.Text = string(l.text[:n])
	}
	return e
}

// ptr is an address for C. The memory it points to is part of a Library or of a
// slice on the heap, which do not move, and is kept alive by the caller.
func ptr[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

// Init starts the library for this thread. It waits for all ranks to do so.
func (l *Library) Init() error {
	if err := l.check("MPI_Initialized", l.call(l.sym.initialized, ptr(&l.out[0]))); err != nil {
		return err
	}
	if l.int32At(0) != 0 {
		return fmt.Errorf("mpi: the library is in use already in this process")
	}
	if err := l.check("MPI_Init_thread", l.call(l.sym.initThread, 0, 0, ThreadFunneled, ptr(&l.out[0]))); err != nil {
		return err
	}
	if got := l.int32At(0); got < ThreadFunneled {
		return fmt.Errorf("mpi: thread level %d provided, %d needed", got, ThreadFunneled)
	}
	if err := l.check("MPI_Comm_dup", l.call(l.sym.commDup, l.sym.world, ptr(&l.out[0]))); err != nil {
		return err
	}
	l.comm = l.out[0]
	for _, comm := range []uintptr{l.sym.world, l.comm} {
		if err := l.check("MPI_Comm_set_errhandler", l.call(l.sym.setErrhandler, comm, l.sym.errorsReturn)); err != nil {
			return err
		}
	}
	return nil
}

// Rank and size of the communicator.
func (l *Library) Rank() (int, error) { return l.commInt("MPI_Comm_rank", l.sym.commRank, l.comm) }

// Size is the number of ranks.
func (l *Library) Size() (int, error) { return l.commInt("MPI_Comm_size", l.sym.commSize, l.comm) }

func (l *Library) commInt(call string, fn, comm uintptr) (int, error) {
	err := l.check(call, l.call(fn, comm, ptr(&l.out[0])))
	return l.int32At(0), err
}

// MaxTag is the largest tag that the library allows.
func (l *Library) MaxTag() (uint32, error) {
	if err := l.check("MPI_Comm_get_attr", l.call(l.sym.getAttr, l.sym.world, tagUB, ptr(&l.out[0]), ptr(&l.out[1]))); err != nil {
		return 0, err
	}
	if l.int32At(1) == 0 {
		return 32767, nil // the least that the standard promises
	}
	return uint32(*(*int32)(foreign(l.out[0]))), nil
}

// Leader is the lowest rank among those that share memory with this one. It waits
// for all ranks.
func (l *Library) Leader() (int, error) {
	rank, err := l.Rank()
	if err != nil {
		return 0, err
	}
	err = l.check("MPI_Comm_split_type", l.call(l.sym.splitType, l.comm, commTypeShared, uintptr(rank), l.sym.infoNull, ptr(&l.out[0])))
	if err != nil {
		return 0, err
	}
	node := l.out[0]
	l.out[0] = uintptr(rank)
	err = l.check("MPI_Bcast", l.call(l.sym.bcast, ptr(&l.out[0]), 4, l.sym.byteType, 0, node))
	return l.int32At(0), err
}

// Isend starts to send b, which must lie outside of the Go heap and stay as it is
// until the request has completed.
func (l *Library) Isend(b []byte, to int, tag uint32, r *Request) error {
	return l.check("MPI_Isend", l.call(l.sym.isend, ptr(unsafe.SliceData(b)), uintptr(len(b)), l.sym.byteType, uintptr(to), uintptr(tag), l.comm, ptr(r)))
}

// Irecv starts to receive into b, under the same rules.
func (l *Library) Irecv(b []byte, from int, tag uint32, r *Request) error {
	return l.check("MPI_Irecv", l.call(l.sym.irecv, ptr(unsafe.SliceData(b)), uintptr(len(b)), l.sym.byteType, uintptr(from), uintptr(tag), l.comm, ptr(r)))
}

// NoRequest is the value of a Request that stands for nothing.
func (l *Library) NoRequest() Request { return Request(l.sym.nilRequest) }

// Testsome writes to done the indices of requests that have completed since the
// last call, sets those to NoRequest, and returns how many there are. done must
// be as long as requests.
func (l *Library) Testsome(requests []Request, done []int32) (int, error) {
	if len(requests) == 0 {
		return 0, nil
	}
	_ = done[len(requests)-1]
	err := l.check("MPI_Testsome", l.call(l.sym.testsome, uintptr(len(requests)), ptr(&requests[0]), ptr(&l.out[0]), ptr(&done[0]), 0))
	if n := l.int32At(0); err == nil && n != undefined {
		return n, nil
	}
	return 0, err
}

// Version is the library's description of itself.
func (l *Library) Version() string {
	text := make([]byte, 8<<10) // MPI_MAX_LIBRARY_VERSION_STRING is 256 in Open MPI
	if l.call(l.sym.libraryVersion, ptr(&text[0]), ptr(&l.out[0])) != 0 {
		return "unknown"
	}
	return string(text[:min(max(l.int32At(0), 0), len(text))])
}

// Finalize ends the library. It waits for all ranks.
func (l *Library) Finalize() error { return l.check("MPI_Finalize", l.call(l.sym.finalize)) }
