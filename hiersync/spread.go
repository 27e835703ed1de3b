package hiersync

// spread is one broadcast, seen from one rank: it receives segments of its parent
// in the tree and passes them to its children.
type spread struct {
	lo, hi int // bytes of the buffer
	segs   int
	parent int // -1 at the root
	in     inbox
	kids   []int
	out    outbox
	done   int // segments received and passed on
}

// plan sets up the lane of a broadcast of bytes [lo, hi) from root.
func (l *spread) plan(c *Comm, v *view, tag uint32, root, lo, hi int) {
	l.lo, l.hi, l.done = lo, hi, 0
	l.segs = segments(hi-lo, c.opts.Segment)
	l.out.reset()
	l.parent, l.kids = v.links(c.rank, root, l.kids[:0])
	l.in.reset(l.parent, tag, l.segs)
}

// step goes on as far as messages allow. It reports whether anything happened.
func (l *spread) step(x *exec) (moved bool, err error) {
	for l.done < l.segs && l.out.drain(x.tr) <= (window-1)*len(l.kids) {
		lo := l.lo + l.done*x.c.opts.Segment
		data := x.h.op.buf[lo:min(lo+x.c.opts.Segment, l.hi)]
		if l.parent >= 0 {
			ok, err := x.receive(&l.in, l.done, data)
			if err != nil || !ok {
				return moved, err
			}
		}
		for _, kid := range l.kids {
			if err := x.send(&l.out, kid, l.in.tag, l.done, data); err != nil {
				return moved, err
			}
		}
		l.done++
		moved = true
	}
	return moved, nil
}

// finished reports whether the lane needs nothing more.
func (l *spread) finished(x *exec) bool { return l.done == l.segs && l.out.drain(x.tr) == 0 }

// waitsFor is a rank whose message is missing, -1 when none is.
func (l *spread) waitsFor() int {
	if l.in.taken < l.in.total {
		return l.parent
	}
	return -1
}
