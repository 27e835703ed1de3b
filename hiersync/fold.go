package hiersync

// window is how many segments of a lane a rank sends before the first is taken.
//
// Note: no deadlock. A lane has four streams: contributions to the owner, partial
// sums from group to group, totals back, totals out. Each has a window of its own,
// and receiving in a stream waits only for room in later streams, whose last
// receiver waits for nothing.
const window = 4

// fold is one slice of a sum, seen from one rank: the slice's owner in its group,
// or a rank that gives to the owner.
type fold struct {
	slice   int
	lo, hi  int // bytes of the buffer
	segs    int
	owner   bool
	lower   int      // owner: number of groups whose sums come here, the nearest first
	self    int      // owner: its own place among the ranks of its group
	parts   []int    // owner: where the ranks of each node end among those of the group
	in      []inbox  // owner: the lower groups, then the group in order of summation
	next    int      // owner: the owner in the group above, -1 in the last
	outs    []int    // owner: to whom totals go
	back    inbox    // owner: totals of the next group; giver: totals of the owner
	give    int      // giver: the owner
	forward outbox   // contributions or partial sums under way
	results outbox   // totals under way
	folded  int      // owner: segments added up; giver: segments given
	done    int      // segments whose total is in the buffer and was passed on
	data    [][]byte // scratch: the payloads of one segment
	terms   [][]byte // scratch: what is added up of one segment
}

// plan sets up the lane of slice s over bytes [lo, hi).
func (l *fold) plan(c *Comm, v *view, tag uint32, s, lo, hi int) {
	l.slice, l.lo, l.hi = s, lo, hi
	l.segs = segments(hi-lo, c.opts.Segment)
	l.folded, l.done, l.next = 0, 0, -1
	l.in, l.outs = l.in[:0], l.outs[:0]
	l.forward.reset()
	l.results.reset()
	g := v.group[c.rank]
	l.give = v.owner(g, s)
	l.owner = l.give == c.rank
	if !l.owner {
		l.back.reset(l.give, tag, l.segs)
		return
	}
	for lower := g - 1; lower >= 0; lower-- {
		if v.above(lower) == g {
			from := v.owner(lower, s)
			grow(&l.in).reset(from, tag, l.segs)
			l.outs = append(l.outs, from)
		}
	}
	l.lower = len(l.in)
	if g+1 < len(v.sum) {
		l.next = v.owner(v.above(g), s)
	}
	l.back.reset(l.next, tag, l.segs)
	l.self, l.parts = v.inSum[c.rank], v.parts[g]
	for _, r := range v.sum[g] {
		if r == c.rank {
			continue
		}
		grow(&l.in).reset(r, tag, l.segs)
		l.outs = append(l.outs, r)
	}
}

// step goes on as far as messages allow. It reports whether anything happened.
func (l *fold) step(x *exec) (moved bool, err error) {
	if !l.owner {
		return l.stepGiver(x)
	}
	for i := range l.in {
		if err := l.in[i].post(x.tr); err != nil {
			return false, err
		}
	}
	for l.folded < l.segs && l.room(x) {
		ready, err := l.ready(x)
		if err != nil || !ready {
			return moved || err != nil, err
		}
		if err := l.add(x); err != nil {
			return true, err
		}
		moved = true
	}
	if l.next < 0 {
		return moved, nil
	}
	m, err := l.takeBack(x)
	return moved || m, err
}

// room reports whether one more segment may be added up.
func (l *fold) room(x *exec) bool {
	if l.next >= 0 {
		return l.forward.drain(x.tr) < window
	}
	return l.results.drain(x.tr) <= (window-1)*len(l.outs)
}

// ready collects the payloads of the next segment if all have arrived.
func (l *fold) ready(x *exec) (bool, error) {
	l.data = l.data[:0]
	for i := range l.in {
		f, data, ok, err := l.in[i].peek(x.tr)
		if err != nil || !ok {
			return false, err
		}
		if err := x.check(f, l.in[i].from, l.folded, l.segment(x, l.folded)); err != nil {
			return false, err
		}
		l.data = append(l.data, data)
	}
	return true, nil
}

// segment is the part of the buffer that segment g covers.
func (l *fold) segment(x *exec, g int) []byte {
	size := x.c.opts.Segment
	lo := l.lo + g*size
	return x.h.op.buf[lo:min(lo+size, l.hi)]
}

// add folds one segment in order and passes it on.
//
// Two terms are combined in the memory of one of them, the buffer if it is among
// them: so the sum ends up there without scratch.
func (l *fold) add(x *exec) error {
	op := &x.h.op
	own := l.segment(x, l.folded)
	ranks := l.data[l.lower:]
	l.terms = append(append(append(l.terms[:0], ranks[:l.self]...), own), ranks[l.self:]...)
	first := 0
	for i, end := range l.parts {
		l.terms[i] = addTree(op, l.terms[first:end], own)
		first = end
	}
	addTree(op, l.terms[:len(l.parts)], own)
	for _, sum := range l.data[:l.lower] {
		combine(op.elem, op.red, own, sum)
	}
	for i := range l.in {
		if err := l.in[i].take(x.tr); err != nil {
			return err
		}
	}
	g := l.folded
	l.folded++
	if l.next >= 0 {
		return x.send(&l.forward, l.next, l.back.tag, g, own)
	}
	if op.red == Average {
		divide(op.elem, own, x.c.size)
	}
	return l.pass(x, g, own)
}

// addTree adds neighbours, then the sums of neighbours, and so on, in the memory of
// the terms, and returns that of the sum: own if it is among the terms.
func addTree(op *operation, terms [][]byte, own []byte) []byte {
	for width := 1; width < len(terms); width *= 2 {
		for i := 0; i+width < len(terms); i += 2 * width {
			a, b := terms[i], terms[i+width]
			if &b[0] == &own[0] {
				a, b = b, a
			}
			combine(op.elem, op.red, a, b)
			terms[i] = a
		}
	}
	return terms[0]
}

// pass hands the total of segment g to whom it goes.
func (l *fold) pass(x *exec, g int, data []byte) error {
	for _, to := range l.outs {
		if err := x.send(&l.results, to, l.back.tag, g, data); err != nil {
			return err
		}
	}
	l.done++
	return nil
}

// takeBack takes totals of the next group and passes them on.
func (l *fold) takeBack(x *exec) (moved bool, err error) {
	for l.done < l.folded {
		if l.results.drain(x.tr) > (window-1)*len(l.outs) {
			return moved, nil
		}
		own := l.segment(x, l.done)
		ok, err := x.receive(&l.back, l.done, own)
		if err != nil || !ok {
			return moved, err
		}
		if err := l.pass(x, l.done, own); err != nil {
			return moved, err
		}
		moved = true
	}
	return moved, nil
}

// stepGiver gives contributions and takes totals.
func (l *fold) stepGiver(x *exec) (moved bool, err error) {
	for l.folded < l.segs && l.forward.drain(x.tr) < window {
		if err := x.send(&l.forward, l.give, l.back.tag, l.folded, l.segment(x, l.folded)); err != nil {
			return moved, err
		}
		l.folded++
		moved = true
	}
	for l.done < l.folded {
		ok, err := x.receive(&l.back, l.done, l.segment(x, l.done))
		if err != nil || !ok {
			return moved, err
		}
		l.done++
		moved = true
	}
	return moved, nil
}

// finished reports whether the lane needs nothing more.
func (l *fold) finished(x *exec) bool {
	return l.done == l.segs && l.forward.drain(x.tr) == 0 && l.results.drain(x.tr) == 0
}

// waitsFor is a rank whose message is missing, -1 when none is.
func (l *fold) waitsFor(x *exec) int {
	for i := range l.in {
		if _, _, ok, _ := l.in[i].peek(x.tr); !ok && l.in[i].taken < l.in[i].total {
			return l.in[i].from
		}
	}
	if l.back.taken < l.back.total && l.back.from >= 0 {
		return l.back.from
	}
	return -1
}

// segments is the number of messages for n bytes.
func segments(n, size int) int { return (n + size - 1) / size }
