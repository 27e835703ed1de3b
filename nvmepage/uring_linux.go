package nvmepage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The part of the io_uring interface that is needed, from the kernel's
// include/uapi/linux/io_uring.h.
const (
	opReadv  = 1 // IORING_OP_READV, Linux 5.1
	opWritev = 2 // IORING_OP_WRITEV

	enterGetEvents = 1

	offSQRing = 0
	offCQRing = 0x8000000
	offSQEs   = 0x10000000
)

type sqOffsets struct {
	head, tail, ringMask, ringEntries, flags, dropped, array, resv1 uint32
	userAddr                                                        uint64
}

type cqOffsets struct {
	head, tail, ringMask, ringEntries, overflow, cqes, flags, resv1 uint32
	userAddr                                                        uint64
}

type uringParams struct {
	sqEntries, cqEntries, flags, sqThreadCPU, sqThreadIdle, features, wqFD uint32
	resv                                                                   [3]uint32
	sq                                                                     sqOffsets
	cq                                                                     cqOffsets
}

// sqe is a submission queue entry.
type sqe struct {
	opcode, flags uint8
	ioprio        uint16
	fd            int32
	off           uint64
	addr          uint64
	len           uint32
	rwFlags       uint32
	userData      uint64
	pad           [3]uint64
}

// cqe is a completion queue entry.
type cqe struct {
	userData uint64
	res      int32
	flags    uint32
}

// uringEngine has no goroutine of its own: whoever waits for requests takes
// completions off the ring for all, one at a time. So a caller that is alone submits
// and waits on one thread, as the kernel likes it. Requests beyond the depth queue,
// and who ends one submits the next at once: the drive never waits for a goroutine
// to wake.
//
// A request whose caller would only wait does not go through the ring at all: the
// ring's completion first wakes the thread that submitted and then the one that reaps,
// where a plain call wakes one.
type uringEngine struct {
	fd             int
	sq, cq, sqeMem []byte
	params         uringParams

	mu    sync.Mutex  // the submission ring and what follows
	slots []*request  // in the ring, and with them their memory; the index is the entry's user data
	rooms []runVector // of the callers that carry their requests out, by slot
	free  []int       // indexes of empty slots: also the bound on requests in flight
	queue []*request
	first int // in queue

	// reaping is held by the one who takes completions. Only the holder lowers
	// flying, which is raised after the kernel took a request: who holds reaping and
	// sees flying > 0 may wait in the kernel.
	reaping chan struct{}
	flying  atomic.Int64
	filled  chan struct{} // receives when flying rises from 0
}

func newUringEngine(depth int) (engine, error) {
	e := &uringEngine{
		slots: make([]*request, depth), rooms: make([]runVector, depth), reaping: make(chan struct{}, 1), filled: make(chan struct{}, 1),
	}
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(depth), uintptr(unsafe.Pointer(&e.params)), 0)
	if errno != 0 {
		return nil, fmt.Errorf("nvmepage: io_uring_setup: %w", errors.Join(errno, errors.ErrUnsupported))
	}
	e.fd = int(fd)
	if err := e.mapRings(); err != nil {
		return nil, errors.Join(fmt.Errorf("nvmepage: map io_uring: %w", err), e.unmap())
	}
	for i := range depth {
		e.free = append(e.free, i)
	}
	return e, nil
}

func (e *uringEngine) mapRings() (err error) {
	p := &e.params
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	if e.sq, err = unix.Mmap(e.fd, offSQRing, int(p.sq.array+p.sqEntries*4), prot, flags); err != nil {
		return err
	}
	cqSize := int(p.cq.cqes) + int(p.cqEntries)*int(unsafe.Sizeof(cqe{}))
	if e.cq, err = unix.Mmap(e.fd, offCQRing, cqSize, prot, flags); err != nil {
		return err
	}
	e.sqeMem, err = unix.Mmap(e.fd, offSQEs, int(p.sqEntries)*int(unsafe.Sizeof(sqe{})), prot, flags)
	return err
}

// word is a counter that the kernel shares with us.
func word(ring []byte, off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&ring[off])) }

func (e *uringEngine) name() string { return Uring.String() }

func (e *uringEngine) submit(r *request) {
	if _, ok := r.file.(osFile); !ok {
		r.finish(0, fmt.Errorf("io_uring on %T: want a file of the system", r.file))
		return
	}
	e.mu.Lock()
	e.queue = append(e.queue, r)
	refused, err := e.fill()
	e.mu.Unlock()
	refuse(refused, err)
}

// release does nothing: the kernel joins what it can.
func (e *uringEngine) release() {}

// refuse ends a list of requests that the kernel did not take.
func refuse(list []*request, err error) {
	for _, r := range list {
		r.finish(0, err)
	}
}

func (e *uringEngine) perform(r *request) {
	e.mu.Lock()
	r.byCaller = true
	e.queue = append(e.queue, r)
	refused, err := e.fill()
	e.mu.Unlock()
	refuse(refused, err)
	_, _ = waitFor(context.Background(), e, r.over) // without a context, it cannot fail
	r.byCaller = false
	n, failure := transfer(r, &e.rooms[r.slot])
	e.mu.Lock()
	e.free = append(e.free, r.slot)
	refused, err = e.fill()
	e.mu.Unlock()
	refuse(refused, err)
	r.finish(n, failure)
}

func (e *uringEngine) busy() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.free) < len(e.slots)
}

// fill submits queued requests, or grants their callers a slot, while there are any,
// and returns those that the kernel refused. The caller holds mu.
func (e *uringEngine) fill() (refused []*request, err error) {
	for e.first < len(e.queue) && len(e.free) > 0 {
		r := e.queue[e.first]
		e.queue[e.first] = nil
		e.first++
		if r.byCaller {
			last := len(e.free) - 1
			r.slot, e.free = e.free[last], e.free[:last]
			r.over <- struct{}{}
			continue
		}
		if failure := e.push(r); failure != nil {
			refused, err = append(refused, r), failure
		}
	}
	if 2*e.first >= len(e.queue) { // at most half of the queue is dead: moving costs nothing
		e.queue, e.first = slices.Delete(e.queue, 0, e.first), 0
	}
	return refused, err
}

// push puts a request into a slot and submits it.
func (e *uringEngine) push(r *request) error {
	slot := e.free[len(e.free)-1]
	op := uint8(opReadv)
	if r.write {
		op = opWritev
	}
	count := r.vec.fill(r.head, r.buf)
	f := r.file.(osFile) // submit refuses others
	err := e.enter(sqe{
		opcode: op, fd: int32(f.Fd()), off: uint64(r.off),
		addr: uint64(uintptr(unsafe.Pointer(&r.vec))), len: uint32(count), userData: uint64(slot),
	})
	if err != nil {
		r.vec = vector{}
		return err
	}
	e.slots[slot] = r
	e.free = e.free[:len(e.free)-1]
	if e.flying.Add(1) == 1 {
		select {
		case e.filled <- struct{}{}:
		default:
		}
	}
	return nil
}

func (e *uringEngine) work() <-chan struct{} { return e.filled }

func (e *uringEngine) turn() chan struct{} { return e.reaping }

// enter enters one entry and tells the kernel. There is always room: entries are
// taken over by the kernel within the call, and slots bound those in flight. An
// entry that the kernel refused is taken back.
func (e *uringEngine) enter(entry sqe) error {
	p := &e.params
	tail := word(e.sq, p.sq.tail)
	i := atomic.LoadUint32(tail) & *word(e.sq, p.sq.ringMask)
	*(*sqe)(unsafe.Pointer(&e.sqeMem[uintptr(i)*unsafe.Sizeof(sqe{})])) = entry
	*word(e.sq, p.sq.array+4*i) = i
	atomic.AddUint32(tail, 1)
	for {
		n, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(e.fd), 1, 0, 0, 0, 0)
		switch {
		case n == 1 && errno == 0:
			return nil
		case errno == unix.EINTR || errno == unix.EAGAIN || errno == unix.EBUSY:
			runtime.Gosched()
			continue
		}
		atomic.AddUint32(tail, ^uint32(0))
		return fmt.Errorf("io_uring_enter took %d of 1 entries: %w", int(n), errno)
	}
}

// reap completes what the ring holds, waiting for one if it holds none.
func (e *uringEngine) reap() bool {
	if e.drain() > 0 {
		return true
	}
	if e.flying.Load() <= 0 {
		return false
	}
	_, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(e.fd), 0, 1, enterGetEvents, 0, 0)
	if errno != 0 && errno != unix.EINTR {
		runtime.Gosched() // for want of memory: what is in flight ends all the same
	}
	e.drain()
	return true
}

// drain completes what the ring holds and returns how many that were.
func (e *uringEngine) drain() (n int) {
	p := &e.params
	head, tail := word(e.cq, p.cq.head), word(e.cq, p.cq.tail)
	mask := *word(e.cq, p.cq.ringMask)
	for h := atomic.LoadUint32(head); h != atomic.LoadUint32(tail); h++ {
		c := *(*cqe)(unsafe.Pointer(&e.cq[uintptr(p.cq.cqes)+uintptr(h&mask)*unsafe.Sizeof(cqe{})]))
		atomic.StoreUint32(head, h+1)
		e.flying.Add(-1)
		n++
		if c.res < 0 {
			e.complete(int(c.userData), 0, syscall.Errno(-c.res))
		} else {
			e.complete(int(c.userData), int(c.res), nil)
		}
	}
	return n
}

// complete ends the request in a slot; the next one is submitted first.
func (e *uringEngine) complete(slot, n int, err error) {
	e.mu.Lock()
	r := e.slots[slot]
	e.slots[slot], r.vec = nil, vector{}
	e.free = append(e.free, slot)
	refused, failure := e.fill()
	e.mu.Unlock()
	r.finish(n, err)
	refuse(refused, failure)
}

// close gives the ring back. Nothing is in flight and nobody uses the engine.
func (e *uringEngine) close() {
	_ = e.unmap() // unmapping our own mappings cannot fail in a way that matters
}

func (e *uringEngine) unmap() error {
	var errs []error
	for _, m := range [][]byte{e.sq, e.cq, e.sqeMem} {
		if m != nil {
			errs = append(errs, unix.Munmap(m))
		}
	}
	return errors.Join(append(errs, os.NewSyscallError("close", unix.Close(e.fd)))...)
}
