package nvmepage

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The part of the io_uring interface that is needed, from the kernel's
// include/uapi/linux/io_uring.h.
const (
	opNop   = 0
	opRead  = 22 // IORING_OP_READ, Linux 5.6
	opWrite = 23 // IORING_OP_WRITE

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

// uringEngine submits under a lock and reaps on one goroutine. slots keeps the
// requests in flight, and with them their memory; a slot's index is the entry's
// user data.
type uringEngine struct {
	fd             int
	sq, cq, sqeMem []byte
	params         uringParams

	mu    sync.Mutex
	slots []*request
	free  chan int // indexes of empty slots: also the bound on requests in flight

	reaper sync.WaitGroup
}

// stopMark is the user data of the entry that ends the reaper.
const stopMark = ^uint64(0)

func newUringEngine(depth int) (engine, error) {
	e := &uringEngine{slots: make([]*request, depth), free: make(chan int, depth)}
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(depth+1), uintptr(unsafe.Pointer(&e.params)), 0)
	if errno != 0 {
		return nil, fmt.Errorf("nvmepage: io_uring_setup: %w", errors.Join(errno, errors.ErrUnsupported))
	}
	e.fd = int(fd)
	if err := e.mapRings(); err != nil {
		return nil, errors.Join(fmt.Errorf("nvmepage: map io_uring: %w", err), e.release())
	}
	for i := range depth {
		e.free <- i
	}
	e.reaper.Go(e.reap)
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
	f, ok := r.file.(osFile)
	if !ok {
		r.finish(0, fmt.Errorf("io_uring on %T: want a file of the system", r.file))
		return
	}
	slot := <-e.free
	op := uint8(opRead)
	if r.write {
		op = opWrite
	}
	e.mu.Lock()
	e.slots[slot] = r
	err := e.push(sqe{
		opcode: op, fd: int32(f.Fd()), off: uint64(r.off),
		addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(r.buf)))), len: uint32(len(r.buf)), userData: uint64(slot),
	})
	e.mu.Unlock()
	if err != nil {
		e.complete(slot, 0, err)
	}
	runtime.KeepAlive(r)
}

// push enters one entry and tells the kernel. There is always room: entries are
// taken over by the kernel within the call, and slots bound those in flight.
func (e *uringEngine) push(entry sqe) error {
	p := &e.params
	tail := word(e.sq, p.sq.tail)
	i := atomic.LoadUint32(tail) & *word(e.sq, p.sq.ringMask)
	*(*sqe)(unsafe.Pointer(&e.sqeMem[uintptr(i)*unsafe.Sizeof(sqe{})])) = entry
	*word(e.sq, p.sq.array+4*i) = i
	atomic.AddUint32(tail, 1)
	for {
		n, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(e.fd), 1, 0, 0, 0, 0)
		switch {
		case errno == unix.EINTR || errno == unix.EAGAIN || errno == unix.EBUSY:
			runtime.Gosched()
			continue
		case errno != 0:
			return fmt.Errorf("io_uring_enter: %w", errno)
		case n != 1:
			return fmt.Errorf("io_uring_enter took %d of 1 entries", n)
		}
		return nil
	}
}

// reap waits for completions until the stop entry comes.
func (e *uringEngine) reap() {
	for {
		_, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(e.fd), 0, 1, enterGetEvents, 0, 0)
		if errno != 0 && errno != unix.EINTR && errno != unix.EAGAIN {
			e.failAll(errno)
			return
		}
		if e.drain() {
			return
		}
	}
}

// drain completes what the ring holds and reports whether the stop entry was there.
func (e *uringEngine) drain() (stop bool) {
	p := &e.params
	head, tail := word(e.cq, p.cq.head), word(e.cq, p.cq.tail)
	mask := *word(e.cq, p.cq.ringMask)
	for h := atomic.LoadUint32(head); h != atomic.LoadUint32(tail); h++ {
		c := *(*cqe)(unsafe.Pointer(&e.cq[uintptr(p.cq.cqes)+uintptr(h&mask)*unsafe.Sizeof(cqe{})]))
		atomic.StoreUint32(head, h+1)
		switch {
		case c.userData == stopMark:
			stop = true
		case c.res < 0:
			e.complete(int(c.userData), 0, syscall.Errno(-c.res))
		default:
			e.complete(int(c.userData), int(c.res), nil)
		}
	}
	return stop
}

func (e *uringEngine) complete(slot, n int, err error) {
	e.mu.Lock()
	r := e.slots[slot]
	e.slots[slot] = nil
	e.mu.Unlock()
	e.free <- slot
	if r != nil {
		r.finish(n, err)
	}
}

func (e *uringEngine) failAll(err error) {
	for slot := range e.slots {
		e.mu.Lock()
		busy := e.slots[slot] != nil
		e.mu.Unlock()
		if busy {
			e.complete(slot, 0, err)
		}
	}
}

// close waits for the requests in flight, ends the reaper and gives the ring back.
func (e *uringEngine) close() {
	for range e.slots {
		<-e.free
	}
	e.mu.Lock()
	err := e.push(sqe{opcode: opNop, userData: stopMark})
	e.mu.Unlock()
	if err == nil {
		e.reaper.Wait()
	}
	_ = e.release() // unmapping our own mappings cannot fail in a way that matters
}

func (e *uringEngine) release() error {
	var errs []error
	for _, m := range [][]byte{e.sq, e.cq, e.sqeMem} {
		if m != nil {
			errs = append(errs, unix.Munmap(m))
		}
	}
	return errors.Join(append(errs, os.NewSyscallError("close", unix.Close(e.fd)))...)
}
