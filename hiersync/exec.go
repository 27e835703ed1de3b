package hiersync

import "fmt"

// exec is one operation in the hands of the dispatcher.
type exec struct {
	c  *Comm
	tr transport
	h  *Handle
}

// tagLanes is the number of lanes that an operation can tell apart.
const tagLanes = 1 << 12

// tag of a lane. Tags repeat after a while; by then messages of the earlier use
// are in front of the later ones, because a sender's messages with one tag stay
// in order, and the frame tells the operation.
func (c *Comm) tag(seq uint64, lane int) uint32 {
	return uint32(seq%c.tagOps)*tagLanes + uint32(lane)
}

// plan lays an operation out in lanes. It runs on the dispatcher, so that the
// topology it uses is the one that stands when the operation's turn comes.
func (x *exec) plan() {
	op, v := &x.h.op, x.c.view
	switch op.kind {
	case kindReduce:
		x.planReduce(v)
	case kindBroadcast:
		if len(op.buf) > 0 {
			grow(&op.spreads).plan(x.c, v, x.c.tag(op.seq, 0), op.root, 0, len(op.buf))
		}
	case kindAllgather:
		lo := 0
		for rank, n := range op.counts {
			hi := lo + n*op.elem.size()
			if hi > lo {
				grow(&op.spreads).plan(x.c, v, x.c.tag(op.seq, rank), rank, lo, hi)
			}
			lo = hi
		}
	}
}

// smallReduce is the size in bytes up to which a sum is not sliced: its leaders
// alone add it up, with fewer messages.
const smallReduce = 4 << 10

func (x *exec) planReduce(v *view) {
	op := &x.h.op
	size := op.elem.size()
	n, parts := len(op.buf)/size, v.slices
	if len(op.buf) <= smallReduce {
		parts = 1
	}
	for s := range parts {
		lo, hi := n*s/parts*size, n*(s+1)/parts*size
		if hi > lo {
			grow(&op.folds).plan(x.c, v, x.c.tag(op.seq, s), s, lo, hi)
		}
	}
}

// step goes on as far as messages allow; finished says that nothing is left.
func (x *exec) step() (moved, finished bool, err error) {
	op := &x.h.op
	finished = true
	for i := range op.folds {
		l := &op.folds[i]
		if !l.owner || l.next >= 0 {
			if err := l.back.post(x.tr); err != nil {
				return moved, false, err
			}
		}
		m, err := l.step(x)
		if err != nil {
			return moved, false, err
		}
		moved, finished = moved || m, finished && l.finished(x)
	}
	for i := range op.spreads {
		l := &op.spreads[i]
		if l.parent >= 0 {
			if err := l.in.post(x.tr); err != nil {
				return moved, false, err
			}
		}
		m, err := l.step(x)
		if err != nil {
			return moved, false, err
		}
		moved, finished = moved || m, finished && l.finished(x)
	}
	return moved, finished, nil
}

// waitsFor is a rank whose message is missing, -1 when none is.
func (x *exec) waitsFor() int {
	op := &x.h.op
	for i := range op.folds {
		if r := op.folds[i].waitsFor(x); r >= 0 {
			return r
		}
	}
	for i := range op.spreads {
		if r := op.spreads[i].waitsFor(); r >= 0 {
			return r
		}
	}
	return -1
}

// send sends segment g of the operation.
func (x *exec) send(o *outbox, to int, tag uint32, g int, data []byte) error {
	op := &x.h.op
	f := frame{
		kind: op.kind, elem: op.elem, red: op.red, seq: op.seq,
		total: uint64(len(op.buf)), segment: uint32(g), length: uint32(len(data)),
	}
	t, err := x.tr.send(to, tag, f, data)
	if err != nil {
		return x.engine(to, err)
	}
	o.add(t)
	x.c.counters.sent(x.c.topo.NodeOf[to] == x.c.topo.NodeOf[x.c.rank], frameSize+len(data))
	return nil
}

// receive copies segment g to dst if it has arrived.
func (x *exec) receive(b *inbox, g int, dst []byte) (bool, error) {
	f, data, ok, err := b.peek(x.tr)
	if err != nil || !ok {
		return false, err
	}
	if err := x.check(f, b.from, g, dst); err != nil {
		return false, err
	}
	copy(dst, data)
	return true, b.take(x.tr)
}

// check compares a message's frame with what this rank expects. want is where
// its payload goes.
func (x *exec) check(f frame, from, g int, want []byte) error {
	op := &x.h.op
	expected := frame{
		kind: op.kind, elem: op.elem, red: op.red, seq: op.seq,
		total: uint64(len(op.buf)), segment: uint32(g), length: uint32(len(want)),
	}
	if f == expected {
		return nil
	}
	return &RankError{Rank: from, Op: op.kind.String(), Seq: op.seq, Cause: fmt.Errorf(
		"%w: %s of %s, %d bytes (operation %d, segment %d); this rank: %s of %s, %d bytes (segment %d)",
		ErrMismatch, f.kind, f.red, f.total, f.seq, f.segment, op.kind, op.red, len(op.buf), g)}
}

// engine wraps a failure of the transport towards a rank.
func (x *exec) engine(rank int, err error) error {
	return &RankError{Rank: rank, Op: x.h.op.kind.String(), Seq: x.h.op.seq, Cause: fmt.Errorf("%w: %w", ErrEngine, err)}
}
