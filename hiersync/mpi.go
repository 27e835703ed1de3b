package hiersync

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/asteria-runtime/asteria/hiersync/internal/mpi"
)

// LaunchedByMPI returns the number of ranks that mpirun started, from the
// environment that it sets; false in a process that it did not start.
func LaunchedByMPI() (ranks int, ok bool) {
	n, err := strconv.Atoi(os.Getenv("OMPI_COMM_WORLD_SIZE"))
	return n, err == nil && n > 0
}

// OpenMPI joins the world that mpirun started. It waits for all ranks, until ctx
// ends; after that the library cannot be used any more in this process. Without
// the library, or on a system for which it is not supported, the error is
// errors.ErrUnsupported and says what was looked for. One world per process.
func OpenMPI(ctx context.Context, o Options) (*Comm, error) {
	return open(ctx, o, func() (transport, error) { return newMPIRank(o.withDefaults()) })
}

// MPIVersion describes the MPI library of the machine without starting it. The
// error is errors.ErrUnsupported where there is none.
func MPIVersion() (string, error) {
	lib, err := mpi.Open()
	if err != nil {
		return "", err
	}
	return lib.Version(), nil
}

// mpiRank is the transport over MPI.
//
// Note: whose memory. Every message is copied to or from memory outside of the
// Go heap that belongs to the transport for good. So no pointer to Go memory
// outlives a call, callers get their buffers back at once, and a receive that is
// still posted when a rank dies cannot damage anything.
type mpiRank struct {
	lib      *mpi.Library
	me, n    int
	name     string
	top      uint32 // largest tag
	listener net.Listener
	address  string
	segment  int

	requests []mpi.Request // by ticket
	done     []int32       // scratch of Testsome
	slots    []mpiSlot     // by ticket
	spare    []ticket
	active   int // requests under way
	free     [][]byte
	idle     int // rounds without progress
	timer    *time.Timer
}

// mpiSlot is the message that a ticket stands for.
type mpiSlot struct {
	buf      []byte
	complete bool
}

// newMPIRank starts the library on the thread of the calling goroutine, to which
// it stays bound.
func newMPIRank(o Options) (*mpiRank, error) {
	runtime.LockOSThread()
	lib, err := mpi.Open()
	if err != nil {
		return nil, fmt.Errorf("hiersync: %w", err)
	}
	r := &mpiRank{lib: lib, segment: o.Segment, address: o.Address}
	if err := r.start(); err != nil {
		return nil, fmt.Errorf("hiersync: %w", err)
	}
	r.timer = time.NewTimer(time.Hour)
	return r, nil
}

func (r *mpiRank) start() (err error) {
	if err := r.lib.Init(); err != nil {
		return err
	}
	if r.me, err = r.lib.Rank(); err != nil {
		return err
	}
	if r.n, err = r.lib.Size(); err != nil {
		return err
	}
	if r.top, err = r.lib.MaxTag(); err != nil {
		return err
	}
	leader, err := r.lib.Leader()
	r.name = "node of rank " + strconv.Itoa(leader)
	return err
}

func (r *mpiRank) rank() int      { return r.me }
func (r *mpiRank) size() int      { return r.n }
func (r *mpiRank) node() string   { return r.name }
func (r *mpiRank) maxTag() uint32 { return r.top }

// contact implements transport: a listener on all addresses.
func (r *mpiRank) contact() (s string, err error) {
	if r.listener, err = net.Listen("tcp", ":0"); err != nil {
		return "", err
	}
	return contactOf(r.listener, r.address)
}

// mesh implements transport.
func (r *mpiRank) mesh(ctx context.Context, peers []peer) ([]net.Conn, error) {
	return tcpMesh(ctx, r.listener, r.me, peers)
}

// slabBuffers is how many message buffers are allocated at once.
const slabBuffers = 16

// slot takes a ticket with a buffer for one message.
func (r *mpiRank) slot() (ticket, error) {
	if len(r.free) == 0 {
		size := (frameSize + r.segment + 63) &^ 63
		slab, err := mpi.Memory(slabBuffers * size)
		if err != nil {
			return noTicket, err
		}
		for i := range slabBuffers {
			r.free = append(r.free, slab[i*size:][:frameSize+r.segment])
		}
	}
	buf := r.free[len(r.free)-1]
	r.free = r.free[:len(r.free)-1]
	if len(r.spare) == 0 {
		r.slots = append(r.slots, mpiSlot{})
		r.requests = append(r.requests, r.lib.NoRequest())
		r.done = append(r.done, 0)
		r.spare = append(r.spare, ticket(len(r.slots)-1))
	}
	t := r.spare[len(r.spare)-1]
	r.spare = r.spare[:len(r.spare)-1]
	r.slots[t] = mpiSlot{buf: buf}
	return t, nil
}

// send implements transport.
func (r *mpiRank) send(to int, tag uint32, f frame, data []byte) (ticket, error) {
	t, err := r.slot()
	if err != nil {
		return noTicket, err
	}
	buf := r.slots[t].buf[:frameSize+len(data)]
	f.encode(buf)
	copy(buf[frameSize:], data)
	r.active++
	return t, r.lib.Isend(buf, to, tag, &r.requests[t])
}

// expect implements transport.
func (r *mpiRank) expect(from int, tag uint32) (ticket, error) {
	t, err := r.slot()
	if err != nil {
		return noTicket, err
	}
	r.active++
	return t, r.lib.Irecv(r.slots[t].buf, from, tag, &r.requests[t])
}

// sent implements transport.
func (r *mpiRank) sent(t ticket) bool {
	if !r.slots[t].complete {
		return false
	}
	r.release(t)
	return true
}

// arrived implements transport.
func (r *mpiRank) arrived(t ticket) (frame, []byte, bool, error) {
	if !r.slots[t].complete {
		return frame{}, nil, false, nil
	}
	f, data, err := decodeFrame(r.slots[t].buf)
	return f, data, err == nil, err
}

// release implements transport.
func (r *mpiRank) release(t ticket) {
	r.free = append(r.free, r.slots[t].buf)
	r.slots[t] = mpiSlot{}
	r.spare = append(r.spare, t)
}

// progress implements transport.
func (r *mpiRank) progress() (bool, error) {
	if r.active == 0 {
		return false, nil
	}
	n, err := r.lib.Testsome(r.requests, r.done)
	if err != nil {
		return false, err
	}
	for _, i := range r.done[:n] {
		r.slots[i].complete = true
	}
	r.active -= n
	if n > 0 {
		r.idle = 0
	}
	return n > 0, nil
}

// Polling: the library is asked without pause for a while, then in growing
// intervals, so that ranks that share a core let each other run.
const (
	spinRounds = 64
	minPause   = 20 * time.Microsecond
	maxPause   = 500 * time.Microsecond
)

// wait implements transport. With messages wanted it only pauses: MPI cannot wake
// a waiting thread.
func (r *mpiRank) wait(wake <-chan struct{}, until time.Time, busy bool) {
	if !busy && r.active == 0 {
		r.sleep(wake, until)
		return
	}
	r.idle++
	if r.idle <= spinRounds {
		runtime.Gosched()
		return
	}
	pause := min(minPause<<min((r.idle-spinRounds)/16, 8), maxPause)
	r.sleep(wake, time.Now().Add(pause))
}

// sleep waits for a signal or a time; the zero time never comes.
func (r *mpiRank) sleep(wake <-chan struct{}, until time.Time) {
	if until.IsZero() {
		<-wake
		return
	}
	r.timer.Reset(time.Until(until))
	select {
	case <-wake:
		r.idle = 0
	case <-r.timer.C:
	}
}

// drop implements transport. Callers' buffers are not known to MPI; what is
// posted stays posted and is never looked at again.
func (r *mpiRank) drop() { r.active = 0 }

// close implements transport. After a failure the library must not be ended: it
// would wait for the rank that is gone.
func (r *mpiRank) close(clean bool) error {
	if r.listener != nil {
		r.listener.Close()
	}
	if !clean {
		return nil
	}
	return r.lib.Finalize()
}
