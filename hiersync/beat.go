package hiersync

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// beats watches the other ranks over one connection each.
//
// Note: who is to blame. A connection that ends without a goodbye means death, a
// silent one means that the process is stopped or unreachable. Both are noticed by
// every rank on its own, within the deadline. A rank that beats but does not do
// its part is found by the number of the operation that it entered last, which
// each beat carries. Whoever notices first tells all others, so that all name the
// same rank; a survivor that ends because of it says so before its own connection
// ends.
//
// A nil *beats watches nobody.
type beats struct {
	c       *Comm
	every   time.Duration
	limit   time.Duration
	peers   []watched // by rank; the own one has no connection
	entered atomic.Uint64
	busy    atomic.Bool
	fault   chan struct{} // closed when there is a fault to tell
	bye     chan struct{} // closed when this rank leaves
	once    sync.Once
	news    *RankError // valid once fault is closed
	writers sync.WaitGroup
	readers sync.WaitGroup
}

// watched is what is known of one rank.
type watched struct {
	conn    net.Conn
	entered atomic.Uint64 // the last operation it entered, as of its last beat
	heard   atomic.Int64  // time of its last beat, nanoseconds since start
	left    atomic.Bool
	busy    atomic.Int64 // time of the last beat that asked for patience; 0: none
}

// Kinds of a message on a heartbeat connection.
const (
	beatAlive byte = iota + 1
	beatBye
	beatFault
)

// beatSize is the size of such a message: kind, cause (or 1 when busy), operation's kind, zero,
// rank (int32), sequence number (uint64).
const beatSize = 16

func encodeBeat(b []byte, kind byte, seq uint64, e *RankError) {
	clear(b[:beatSize])
	b[0] = kind
	le := binary.LittleEndian
	le.PutUint64(b[8:], seq)
	if e != nil {
		b[1], b[2] = causeCode(e.Cause), kindCode(e.Op)
		le.PutUint32(b[4:], uint32(int32(e.Rank)))
		le.PutUint64(b[8:], e.Seq)
	}
}

// decodeBeat reads a message. ok is false for one that no rank of this version sends.
func decodeBeat(b []byte) (kind byte, seq uint64, e *RankError, ok bool) {
	le := binary.LittleEndian
	kind, seq = b[0], le.Uint64(b[8:])
	if b[3] != 0 || kind < beatAlive || kind > beatFault {
		return 0, 0, nil, false
	}
	if kind == beatFault {
		e = &RankError{Rank: int(int32(le.Uint32(b[4:]))), Op: opKind(b[2]), Seq: seq, Cause: causeOf(b[1])}
	}
	return kind, seq, e, true
}

func kindCode(op string) byte {
	for k := kindReduce; k <= kindAllgather; k++ {
		if k.String() == op {
			return byte(k)
		}
	}
	return 0
}

func opKind(code byte) string { return kind(code).String() }

// newBeats prepares to watch. conns are indexed by rank.
func newBeats(c *Comm, conns []net.Conn) *beats {
	b := &beats{
		c: c, every: c.opts.Beat, limit: c.opts.Deadline, peers: make([]watched, len(conns)),
		fault: make(chan struct{}), bye: make(chan struct{}),
	}
	for rank, conn := range conns {
		p := &b.peers[rank]
		p.conn = conn
		p.heard.Store(time.Now().UnixNano())
	}
	return b
}

// start begins to watch.
func (b *beats) start() {
	for rank := range b.peers {
		p := &b.peers[rank]
		if p.conn == nil {
			continue
		}
		b.writers.Go(func() { b.write(p) })
		b.readers.Go(func() { b.read(rank, p) })
	}
}

// enter notes that this rank has started an operation.
func (b *beats) enter(seq uint64) {
	if b != nil {
		b.entered.Store(seq)
	}
}

// tell lets the writers pass a failure on. Called once.
func (b *beats) tell(e *RankError) {
	if b != nil {
		b.news = e
		close(b.fault)
	}
}

// write sends beats to one rank until this rank leaves or fails.
func (b *beats) write(p *watched) {
	tick := time.NewTicker(b.every)
	defer tick.Stop()
	var msg [beatSize]byte
	send := func(kind byte, e *RankError) bool {
		encodeBeat(msg[:], kind, b.entered.Load(), e)
		if kind == beatAlive && b.busy.Load() {
			msg[1] = 1
		}
		p.conn.SetWriteDeadline(time.Now().Add(b.limit))
		_, err := p.conn.Write(msg[:])
		return err == nil // otherwise the reader of this connection says why
	}
	for send(beatAlive, nil) {
		select {
		case <-tick.C:
		case <-b.fault:
			send(beatFault, b.news)
			return
		case <-b.bye:
			b.leave(send)
			return
		}
	}
}

// leave sends the last message: the failure if there was one, else a goodbye.
func (b *beats) leave(send func(byte, *RankError) bool) {
	select {
	case <-b.fault:
		send(beatFault, b.news)
	default:
		send(beatBye, nil)
	}
}

// read listens to one rank until its connection ends.
func (b *beats) read(rank int, p *watched) {
	var msg [beatSize]byte
	for {
		if err := b.listen(p.conn, msg[:]); err != nil {
			b.lost(rank, p, err)
			return
		}
		kind, seq, e, ok := decodeBeat(msg[:])
		if !ok {
			b.lost(rank, p, errFrame)
			return
		}
		p.heard.Store(time.Now().UnixNano())
		switch kind {
		case beatAlive:
			p.entered.Store(seq)
			if msg[1] != 0 {
				p.busy.Store(time.Now().UnixNano())
			}
		case beatBye:
			p.left.Store(true)
			p.entered.Store(seq)
			b.c.signal()
			return
		case beatFault:
			b.c.fail(e)
			return
		}
	}
}

// listen reads one message within the deadline, or, when that is over, within two
// beats more: if this process itself was held up, the messages are there already, and
// if all were, they are about to come.
func (b *beats) listen(conn net.Conn, msg []byte) error {
	conn.SetReadDeadline(time.Now().Add(b.limit))
	n, err := io.ReadFull(conn, msg)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		conn.SetReadDeadline(time.Now().Add(2 * b.every))
		_, err = io.ReadFull(conn, msg[n:])
	}
	return err
}

// lost judges the end of a connection.
func (b *beats) lost(rank int, p *watched, err error) {
	select {
	case <-b.bye:
		return // this rank left
	default:
	}
	cause := ErrDead
	if errors.Is(err, os.ErrDeadlineExceeded) {
		cause = ErrStuck
	}
	b.c.fail(&RankError{Rank: rank, Cause: cause})
}

// blame finds the rank because of which operation seq is overdue. waitsFor is the
// rank whose message is missing here, -1 when none is: its peer might wait for a
// third one itself, so those that have not entered the operation come first.
func (b *beats) blame(seq uint64, waitsFor int) (int, error) {
	if b == nil {
		return waitsFor, ErrLate
	}
	rank, lowest := waitsFor, seq
	now := time.Now().UnixNano()
	for i := range b.peers {
		p := &b.peers[i]
		if p.conn == nil {
			continue
		}
		if p.left.Load() && p.entered.Load() < seq {
			return i, ErrLeft
		}
		if silent := time.Duration(now - p.heard.Load()); silent > b.limit/2 {
			return i, ErrStuck
		}
		if n := p.entered.Load(); n < lowest {
			rank, lowest = i, n
		}
	}
	return rank, ErrLate
}

// patient reports whether a rank that is late has asked for patience, now or within
// the last deadline: after it is back, it has as long as anybody.
func (b *beats) patient(rank int) bool {
	if b == nil || rank < 0 || rank >= len(b.peers) {
		return false
	}
	asked := b.peers[rank].busy.Load()
	return asked != 0 && time.Now().UnixNano()-asked < int64(b.limit)
}

// close says goodbye, or lets the news of a failure go out, and ends all
// connections and goroutines.
func (b *beats) close() {
	if b == nil {
		return
	}
	b.once.Do(func() {
		close(b.bye)
		b.await(&b.writers)
		for i := range b.peers {
			if conn := b.peers[i].conn; conn != nil {
				conn.Close()
			}
		}
		b.writers.Wait()
		b.readers.Wait()
	})
}

// await gives the writers two beats of time: a peer that does not read any more
// must not hold up the end of this rank.
func (b *beats) await(writers *sync.WaitGroup) {
	done := make(chan struct{})
	go func() {
		writers.Wait()
		close(done)
	}()
	timer := time.NewTimer(2 * b.every)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}
