package hiersync

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// What a rank tells the others when they meet has a fixed size, so that it can
// travel before anything is known.
const (
	maxName     = 255
	maxContact  = 512
	tokenSize   = 16
	helloSize   = 8 + 4 + tokenSize + maxName + 1 + maxContact + 4 // a multiple of 8
	helloFormat = 1
)

// open makes an engine and a Comm on it: the ranks meet, learn the topology,
// connect the heartbeats, and wait for each other. The engine is made, used and
// ended by one goroutine, the dispatcher.
func open(ctx context.Context, o Options, engine func() (transport, error)) (*Comm, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	ready := make(chan opened, 1)
	go dispatch(o.withDefaults(), engine, ready)
	var got opened
	select {
	case got = <-ready:
	case <-ctx.Done():
		return nil, fmt.Errorf("hiersync: the engine does not start: %w", context.Cause(ctx))
	}
	if got.err != nil {
		return nil, got.err
	}
	if err := got.c.meet(ctx, got.tr); err != nil {
		got.c.fail(&RankError{Rank: got.c.rank, Cause: fmt.Errorf("%w: %w", ErrEngine, err)})
		return nil, errors.Join(err, got.c.Close())
	}
	return got.c, nil
}

// opened is what the dispatcher starts with.
type opened struct {
	c   *Comm
	tr  transport
	err error
}

// dispatch is the dispatcher's goroutine.
func dispatch(o Options, engine func() (transport, error), ready chan<- opened) {
	tr, err := engine()
	if err != nil {
		ready <- opened{err: err}
		return
	}
	c, err := newComm(tr, o)
	ready <- opened{c: c, tr: tr, err: err}
	if err != nil {
		return
	}
	d := dispatcher{c: c, tr: tr, limit: int(min(maxActive, c.tagOps))}
	d.run()
}

func newComm(tr transport, o Options) (*Comm, error) {
	c := &Comm{
		opts: o, rank: tr.rank(), size: tr.size(),
		wake: make(chan struct{}, 1), failed: make(chan struct{}), stopped: make(chan struct{}),
	}
	c.tagOps = uint64(min(1<<11, (int64(tr.maxTag())+1)/tagLanes))
	if c.tagOps == 0 || c.size > tagLanes {
		return nil, fmt.Errorf("hiersync: %d ranks with tags up to %d: want at most %d ranks and tags up to %d or more", c.size, tr.maxTag(), tagLanes, tagLanes)
	}
	c.arrange(newTopology(make([]string, c.size)))
	return c, nil
}

// arrange takes a topology into use. No operation is under way.
func (c *Comm) arrange(t Topology) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.topo, c.view = t, newView(t, c.opts.Flat)
	c.counters.reset()
}

// meet runs beside the dispatcher, which does the communication.
func (c *Comm) meet(ctx context.Context, tr transport) error {
	if c.size == 1 {
		return nil
	}
	peers, err := c.exchange(ctx, tr)
	if err != nil {
		return err
	}
	names := make([]string, len(peers))
	for i, p := range peers {
		names[i] = p.node
	}
	conns, err := tr.mesh(ctx, peers)
	if err != nil {
		return fmt.Errorf("hiersync: heartbeats of rank %d: %w", c.rank, err)
	}
	b := newBeats(c, conns)
	c.mu.Lock()
	c.beats = b
	c.mu.Unlock()
	b.start()
	c.arrange(newTopology(names))
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	c.counters.reset()
	return nil
}

// exchange gathers what every rank tells about itself.
func (c *Comm) exchange(ctx context.Context, tr transport) ([]peer, error) {
	contact, err := tr.contact()
	if err != nil {
		return nil, fmt.Errorf("hiersync: heartbeat listener of rank %d: %w", c.rank, err)
	}
	me := peer{node: tr.node(), contact: contact}
	if c.opts.Node != "" {
		me.node = "=" + c.opts.Node // never equal to a discovered name
	}
	if _, err := rand.Read(me.token[:]); err != nil {
		return nil, err
	}
	buf := make([]byte, c.size*helloSize)
	if err := me.encode(buf[c.rank*helloSize:][:helloSize]); err != nil {
		return nil, err
	}
	if err := Allgather(ctx, c, buf, slices.Repeat([]int{helloSize}, c.size)); err != nil {
		return nil, err
	}
	peers := make([]peer, c.size)
	for i := range peers {
		if err := peers[i].decode(buf[i*helloSize:][:helloSize]); err != nil {
			return nil, fmt.Errorf("hiersync: rank %d: %w", i, err)
		}
	}
	return peers, nil
}

// encode writes the peer to a buffer of helloSize bytes.
func (p *peer) encode(b []byte) error {
	if len(p.node) > maxName+1 || len(p.contact) > maxContact {
		return fmt.Errorf("hiersync: node %q, contact %q: longer than %d and %d bytes", p.node, p.contact, maxName, maxContact)
	}
	clear(b)
	copy(b, "hiersyn")
	b[7] = helloFormat<<4 | byteOrder()
	b = b[8:]
	binary.LittleEndian.PutUint16(b, uint16(len(p.node)))
	binary.LittleEndian.PutUint16(b[2:], uint16(len(p.contact)))
	b = b[4:]
	copy(b, p.token[:])
	b = b[tokenSize:]
	copy(b, p.node)
	copy(b[len(p.node):], p.contact)
	return nil
}

// decode reads what encode wrote.
func (p *peer) decode(b []byte) error {
	if len(b) < helloSize || string(b[:7]) != "hiersyn" {
		return errFrame
	}
	if b[7] != helloFormat<<4|byteOrder() {
		return fmt.Errorf("hiersync: another version or another byte order (%#x, this rank %#x)", b[7], helloFormat<<4|byteOrder())
	}
	b = b[8:]
	node, contact := int(binary.LittleEndian.Uint16(b)), int(binary.LittleEndian.Uint16(b[2:]))
	b = b[4:]
	copy(p.token[:], b)
	b = b[tokenSize:]
	if node+contact > len(b) {
		return errFrame
	}
	p.node, p.contact = string(b[:node]), string(b[node:][:contact])
	return nil
}
