package hiersync

import (
	"context"
	"net"
	"time"
)

// ticket names a message under way within a transport. noTicket stands for one
// that needs no more attention.
type ticket int32

const noTicket ticket = -1

// transport is an engine: point-to-point messages that nobody waits for. Messages
// of one sender with one tag arrive in the order in which they were sent; others
// in any order. All methods but interrupt belong to the dispatcher.
//
// Note: who owns a payload. The sender's bytes must stay as they are until sent
// reports true; the dispatcher ends no operation before that, so callers get
// their buffers back whole. A payload that arrived belongs to the transport
// until release; until then the dispatcher may read and write it.
type transport interface {
	rank() int
	size() int
	// node is equal for ranks that share memory.
	node() string
	// maxTag is the largest tag.
	maxTag() uint32
	send(to int, tag uint32, f frame, data []byte) (ticket, error)
	// sent reports whether the bytes of a message were taken; the ticket is void then.
	sent(t ticket) bool
	// expect announces that the next message of a sender and tag is wanted.
	expect(from int, tag uint32) (ticket, error)
	// arrived returns an expected message, if it is there.
	arrived(t ticket) (frame, []byte, bool, error)
	// release gives back a message that arrived; the ticket is void then.
	release(t ticket)
	// progress moves messages and reports whether any did.
	progress() (bool, error)
	// wait returns when something may have happened, wake was signalled, or the
	// time has come; the zero time never comes. busy says that messages are wanted.
	wait(wake <-chan struct{}, until time.Time, busy bool)
	// contact is what other ranks need to reach this one's heartbeat listener.
	contact() (string, error)
	// mesh connects this rank with every other. Not called by the dispatcher.
	mesh(ctx context.Context, peers []peer) ([]net.Conn, error)
	// drop forgets all messages under way after a failure: no buffer of a caller
	// is read or written afterwards.
	drop()
	// close ends the engine; clean says that no rank failed.
	close(clean bool) error
}

// peer is what a rank told about itself when the ranks met.
type peer struct {
	node    string
	contact string
	token   [tokenSize]byte // rank 0's is the world's
}

// inboxDepth is how many messages of a sender are expected ahead, so that the
// next one travels while one is worked on.
const inboxDepth = 2

// inbox receives a known number of messages of one sender in order.
type inbox struct {
	from          int
	tag           uint32
	total         int
	posted, taken int
	tickets       [inboxDepth]ticket
}

func (b *inbox) reset(from int, tag uint32, total int) {
	*b = inbox{from: from, tag: tag, total: total}
}

// post keeps the depth of expected messages.
func (b *inbox) post(tr transport) error {
	for b.posted < b.total && b.posted-b.taken < inboxDepth {
		t, err := tr.expect(b.from, b.tag)
		if err != nil {
			return err
		}
		b.tickets[b.posted%inboxDepth] = t
		b.posted++
	}
	return nil
}

// peek returns the next message, if it is there.
func (b *inbox) peek(tr transport) (frame, []byte, bool, error) {
	if b.taken == b.posted {
		return frame{}, nil, false, nil
	}
	return tr.arrived(b.tickets[b.taken%inboxDepth])
}

// take gives the next message back and expects one more.
func (b *inbox) take(tr transport) error {
	tr.release(b.tickets[b.taken%inboxDepth])
	b.taken++
	return b.post(tr)
}

// outbox holds the messages whose bytes are not taken yet.
type outbox struct {
	tickets []ticket
}

func (o *outbox) reset() { o.tickets = o.tickets[:0] }

// drain forgets what was taken and returns what is left.
func (o *outbox) drain(tr transport) int {
	kept := o.tickets[:0]
	for _, t := range o.tickets {
		if !tr.sent(t) {
			kept = append(kept, t)
		}
	}
	o.tickets = kept
	return len(kept)
}

func (o *outbox) add(t ticket) {
	if t != noTicket {
		o.tickets = append(o.tickets, t)
	}
}
