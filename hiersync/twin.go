package hiersync

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// TwinOptions describes a world inside this process.
type TwinOptions struct {
	// Ranks is the number of ranks, 1 or more.
	Ranks int
	// Nodes is the node of each rank, any numbers. Empty puts all on one node.
	Nodes []int
	// Faults of the network between the ranks, once they have met.
	Faults Faults
	// Options of all ranks; Node and Address are not used.
	Options Options
}

// Validate reports every fault of o together.
func (o TwinOptions) Validate() error {
	var errs []error
	if o.Ranks < 1 || o.Ranks > tagLanes {
		errs = append(errs, fmt.Errorf("hiersync: %d ranks: want 1 to %d", o.Ranks, tagLanes))
	}
	if len(o.Nodes) != 0 && len(o.Nodes) != o.Ranks {
		errs = append(errs, fmt.Errorf("hiersync: nodes of %d ranks for a world of %d", len(o.Nodes), o.Ranks))
	}
	return errors.Join(append(errs, o.Faults.Validate(o.Ranks), o.Options.Validate())...)
}

// Twin is a world inside one process: each rank is a Comm for a goroutine of its
// own. Everything but the transport is what MPI runs too.
type Twin struct {
	comms []*Comm
	ranks []*twinRank
	nodes []int // by index in the topology
}

// NewTwin starts a world. Close every Comm to end it.
func NewTwin(ctx context.Context, o TwinOptions) (*Twin, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.Options.Node, o.Options.Address = "", ""
	w := &Twin{comms: make([]*Comm, o.Ranks), ranks: make([]*twinRank, o.Ranks)}
	w.build(o)
	errs := make([]error, o.Ranks)
	var wg sync.WaitGroup
	for i, r := range w.ranks {
		wg.Go(func() { w.comms[i], errs[i] = open(ctx, o.Options, func() (transport, error) { return r, nil }) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		w.close()
		return nil, err
	}
	for _, r := range w.ranks {
		r.met.Store(true)
	}
	return w, nil
}

// build makes the ranks and their heartbeat pipes.
func (w *Twin) build(o TwinOptions) {
	names := make([]string, o.Ranks)
	for i := range names {
		if len(o.Nodes) > 0 {
			names[i] = strconv.Itoa(o.Nodes[i])
		}
	}
	w.nodes = newTopology(names).NodeOf
	for i := range w.ranks {
		r := &twinRank{
			w: w, me: i, name: names[i], in: make([][]*parcel, o.Ranks), conns: make([]net.Conn, o.Ranks),
			wakec: make(chan struct{}, 1), net: newNetwork(o.Faults, i, w.nodes),
		}
		w.ranks[i] = r
		for j := range i {
			a, b := net.Pipe()
			r.conns[j] = &twinConn{Conn: a, r: r}
			w.ranks[j].conns[i] = &twinConn{Conn: b, r: w.ranks[j]}
		}
	}
}

// Comm is the end of one rank.
func (w *Twin) Comm(rank int) *Comm { return w.comms[rank] }

// Comms lists the ends of all ranks.
func (w *Twin) Comms() []*Comm { return slices.Clone(w.comms) }

// Kill takes a rank away at once: its connections end.
func (w *Twin) Kill(rank int) { w.ranks[rank].lose(false) }

// Stop makes a rank silent at once: its connections stay open.
func (w *Twin) Stop(rank int) { w.ranks[rank].lose(true) }

func (w *Twin) close() {
	var wg sync.WaitGroup
	for _, c := range w.comms {
		if c != nil {
			wg.Go(func() { c.Close() })
		}
	}
	wg.Wait()
}

// States of a rank.
const (
	rankRuns int32 = iota
	rankStopped
	rankDead
)

// twinRank is the transport of one rank.
//
// Lock order: none is held while another is taken. mu guards what other ranks
// touch: in and free.
type twinRank struct {
	w     *Twin
	me    int
	name  string
	conns []net.Conn
	net   *network
	wakec chan struct{} // messages came or were taken
	state atomic.Int32
	gone  atomic.Bool // takes and sends nothing any more
	met   atomic.Bool
	count int64 // messages sent since the ranks met

	mu   sync.Mutex
	in   [][]*parcel // by sender, in the order of sending
	free []*parcel   // to be used for sending again

	slots []twinSlot // tickets, of the dispatcher
	spare []ticket
	timer *time.Timer
	now   time.Time // of this round of the dispatcher: what is not ready at it wakes the next
}

// twinSlot is what a ticket stands for: a parcel sent, or one expected.
type twinSlot struct {
	parcel *parcel
	from   int
	tag    uint32
}

// parcel is a message on its way.
//
// Note: two owners. A parcel returns to its home's free list when the receiver
// has released it and the sender has seen that it was taken; refs counts both.
type parcel struct {
	home  *twinRank
	tag   uint32
	frame frame
	late  []byte // the sender's bytes, read at delivery; nil when copied at once
	data  []byte // the payload, in words
	words []uint64
	ready time.Time // zero: at once
	bound bool      // a ticket of the receiver stands for it
	taken atomic.Bool
	refs  atomic.Int32
}

// eager is the payload size up to which a sender does not wait for the receiver.
const eager = 4 << 10

func (r *twinRank) rank() int      { return r.me }
func (r *twinRank) size() int      { return len(r.w.ranks) }
func (r *twinRank) node() string   { return r.name }
func (r *twinRank) maxTag() uint32 { return 1<<31 - 1 }

// contact is empty: the pipes exist already.
func (r *twinRank) contact() (string, error) { return "", nil }

func (r *twinRank) mesh(context.Context, []peer) ([]net.Conn, error) { return r.conns, nil }

// send implements transport.
func (r *twinRank) send(to int, tag uint32, f frame, data []byte) (ticket, error) {
	if r.met.Load() {
		r.count++
		if fs := &r.net.faults; fs.LoseAt > 0 && fs.Lose == r.me && r.count >= fs.LoseAt {
			r.lose(fs.Stopped)
		}
	}
	if r.state.Load() != rankRuns {
		return noTicket, nil // into the void
	}
	p := r.pack(tag, f, data)
	t := noTicket
	if len(data) > eager || p.late != nil {
		p.refs.Store(2)
		t = r.slot(twinSlot{parcel: p})
	}
	if r.met.Load() {
		if d := r.net.delay(r.me, to); d > 0 {
			p.ready = time.Now().Add(d)
		}
	}
	r.w.ranks[to].deliver(r.me, p)
	return t, nil
}

// pack takes a parcel for a message.
func (r *twinRank) pack(tag uint32, f frame, data []byte) *parcel {
	p := r.take()
	p.tag, p.frame, p.ready, p.bound = tag, f, time.Time{}, false
	p.taken.Store(false)
	p.refs.Store(1)
	p.late = nil
	if r.net.faults.LatePayload && r.met.Load() {
		p.late = data
		return p
	}
	p.fill(data)
	return p
}

// fill copies a payload to aligned memory.
func (p *parcel) fill(data []byte) {
	if n := (len(data) + 7) / 8; cap(p.words) < n {
		p.words = make([]uint64, n)
	}
	p.data = bytesOf(p.words[:cap(p.words)])[:len(data)]
	copy(p.data, data)
}

func (r *twinRank) take() *parcel {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.free); n > 0 {
		p := r.free[n-1]
		r.free = r.free[:n-1]
		return p
	}
	return &parcel{home: r}
}

// unref gives up one owner's part of a parcel.
func (p *parcel) unref() {
	if p.refs.Add(-1) > 0 {
		return
	}
	p.home.mu.Lock()
	defer p.home.mu.Unlock()
	p.home.free = append(p.home.free, p)
}

// deliver puts a parcel into this rank's box.
func (r *twinRank) deliver(from int, p *parcel) {
	r.mu.Lock()
	if r.state.Load() == rankRuns && !r.gone.Load() {
		r.in[from] = append(r.in[from], p)
	}
	r.mu.Unlock()
	r.notify()
}

func (r *twinRank) notify() {
	select {
	case r.wakec <- struct{}{}:
	default:
	}
}

func (r *twinRank) slot(s twinSlot) ticket {
	if n := len(r.spare); n > 0 {
		t := r.spare[n-1]
		r.spare = r.spare[:n-1]
		r.slots[t] = s
		return t
	}
	r.slots = append(r.slots, s)
	return ticket(len(r.slots) - 1)
}

func (r *twinRank) freeSlot(t ticket) {
	r.slots[t] = twinSlot{}
	r.spare = append(r.spare, t)
}

// sent implements transport.
func (r *twinRank) sent(t ticket) bool {
	p := r.slots[t].parcel
	if !p.taken.Load() {
		return false
	}
	r.freeSlot(t)
	p.unref()
	return true
}

// expect implements transport.
func (r *twinRank) expect(from int, tag uint32) (ticket, error) {
	return r.slot(twinSlot{from: from, tag: tag}), nil
}

// arrived implements transport. A ticket is bound to the first parcel of its
// sender and tag; tickets are asked for in the order of expect.
func (r *twinRank) arrived(t ticket) (frame, []byte, bool, error) {
	s := &r.slots[t]
	if s.parcel == nil && !r.bind(s) {
		return frame{}, nil, false, nil
	}
	return s.parcel.frame, s.parcel.data, true, nil
}

func (r *twinRank) bind(s *twinSlot) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	box := r.in[s.from]
	i := slices.IndexFunc(box, func(p *parcel) bool { return p.tag == s.tag })
	if i < 0 || !box[i].ready.IsZero() && r.now.Before(box[i].ready) {
		return false
	}
	p := box[i]
	r.in[s.from] = slices.Delete(box, i, i+1)
	s.parcel = p
	if p.late != nil {
		p.fill(p.late)
		p.late = nil
	}
	p.taken.Store(true)
	p.home.notify()
	return true
}

// release implements transport.
func (r *twinRank) release(t ticket) {
	p := r.slots[t].parcel
	r.freeSlot(t)
	p.unref()
}

// progress implements transport: messages move by themselves.
func (r *twinRank) progress() (bool, error) {
	if r.net.delays() {
		r.now = time.Now()
	}
	return false, nil
}

// wait implements transport.
func (r *twinRank) wait(wake <-chan struct{}, until time.Time, _ bool) {
	if next := r.nextReady(); !next.IsZero() && (until.IsZero() || next.Before(until)) {
		until = next
	}
	if until.IsZero() {
		select {
		case <-wake:
		case <-r.wakec:
		}
		return
	}
	if r.timer == nil {
		r.timer = time.NewTimer(time.Hour)
	}
	r.timer.Reset(time.Until(until))
	select {
	case <-wake:
	case <-r.wakec:
	case <-r.timer.C:
	}
}

// nextReady is the earliest time at which a delayed message arrives.
func (r *twinRank) nextReady() (next time.Time) {
	if !r.net.delays() {
		return next
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, box := range r.in {
		for _, p := range box {
			if p.ready.After(r.now) && (next.IsZero() || p.ready.Before(next)) {
				next = p.ready
			}
		}
	}
	return next
}

// lose takes this rank out of the world.
func (r *twinRank) lose(stopped bool) {
	if stopped {
		r.state.CompareAndSwap(rankRuns, rankStopped)
		return
	}
	r.state.Store(rankDead)
	for _, c := range r.conns {
		if c != nil {
			c.Close()
		}
	}
	r.w.comms[r.me].fail(&RankError{Rank: r.me, Cause: ErrDead})
}

// drop implements transport: late payloads must not be read any more, and nobody
// waits for what this rank takes.
func (r *twinRank) drop() {
	r.gone.Store(true)
	for _, other := range r.w.ranks {
		other.forget(r.me)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.in)
}

// forget drops the parcels of a sender.
func (r *twinRank) forget(from int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.in[from] = nil
}

// close implements transport. What was sent and not taken yet stays.
func (r *twinRank) close(bool) error { return nil }

// silent reports whether the process is stopped or gone.
func (r *twinRank) silent() bool { return r.state.Load() != rankRuns }

// twinConn is a heartbeat connection whose process can be stopped or killed: then
// nothing is written, and what arrives is lost.
type twinConn struct {
	net.Conn
	r *twinRank
}

func (c *twinConn) Write(b []byte) (int, error) {
	if c.r.silent() {
		return len(b), nil // the dead do not speak while their connections are closed one by one
	}
	return c.Conn.Write(b)
}

func (c *twinConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.r.silent() {
			return n, err
		}
	}
}
