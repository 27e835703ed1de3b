package asteria

import (
	"errors"
	"sync"
	"unsafe"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/tierctl"
	"github.com/asteria-runtime/asteria/uvm"
)

// objectAlign is the unit of objects' sizes in bytes: whole pages, which a drive
// reads and writes in place.
const objectAlign = 4096

// objectBytes is the size of an object of so many elements.
func objectBytes[T gemm.Float](elements int) int64 {
	n := int64(elements) * int64(unsafe.Sizeof(T(0)))
	return max(1, (n+objectAlign-1)/objectAlign) * objectAlign
}

// elements views the memory of an object as numbers. It is sound because objects'
// memory is aligned to pages, holds no pointers, and both element types accept
// every bit pattern.
func elements[T gemm.Float](b []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(T(0))))
}

// bytesOf views numbers as the memory that they are.
func bytesOf[T gemm.Float](x []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(x[0])))
}

// recycler keeps buffers that were closed for the next one of exactly their size:
// a model has few different sizes, and a class of sizes would waste memory that
// the plan does not know.
type recycler struct {
	source uvm.Allocator
	taken  func(mem []byte) // told of memory that the host will fill; may be nil
	limit  int64            // of buffers in use and idle, beyond which none is kept; 0 means none

	mu     sync.Mutex
	idle   map[int64][]*buffer
	used   int64 // bytes in use
	kept   int64 // bytes idle
	closed bool
}

// buffer is the memory of one object.
type buffer struct {
	*uvm.Buffer
	from *recycler
}

var _ tierctl.Memory = (*buffer)(nil)

func newRecycler(source uvm.Allocator, limit int64) *recycler {
	return &recycler{source: source, limit: limit, idle: map[int64][]*buffer{}}
}

// alloc returns n bytes that may hold anything.
func (r *recycler) alloc(n int64) (tierctl.Memory, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if list := r.idle[n]; len(list) > 0 {
		b := list[len(list)-1]
		r.idle[n] = list[:len(list)-1]
		r.kept, r.used = r.kept-n, r.used+n
		if r.taken != nil {
			r.taken(b.Bytes())
		}
		return b, nil
	}
	err := r.trim(n)
	b, aerr := r.source.Alloc(n)
	if err = errors.Join(err, aerr); err != nil {
		return nil, err
	}
	r.used += n
	return &buffer{Buffer: b, from: r}, nil
}

// trim unmaps idle buffers until n bytes more stay within the limit, or none is
// left. The caller holds mu.
func (r *recycler) trim(n int64) (err error) {
	for size, list := range r.idle {
		for len(list) > 0 && r.limit > 0 && r.used+r.kept+n > r.limit {
			err = errors.Join(err, list[len(list)-1].Buffer.Close())
			list = list[:len(list)-1]
			r.kept -= size
		}
		r.idle[size] = list
	}
	return err
}

// Close gives the buffer back.
func (b *buffer) Close() error {
	r, n := b.from, b.Len()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used -= n
	if r.closed || r.limit > 0 && r.used+r.kept+n > r.limit {
		return b.Buffer.Close()
	}
	r.idle[n] = append(r.idle[n], b)
	r.kept += n
	return nil
}

// close unmaps what is idle; buffers in use follow as they are closed.
func (r *recycler) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	var errs []error
	for _, list := range r.idle {
		for _, b := range list {
			errs = append(errs, b.Buffer.Close())
		}
	}
	clear(r.idle)
	r.kept = 0
	return errors.Join(errs...)
}
