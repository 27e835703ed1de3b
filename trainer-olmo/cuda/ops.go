package cuda

import (
	"runtime"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/streams"
)

// Ops is kron.Ops on a device; see the package comment for where operands live.
// After a failure it does nothing more, and every Sync returns that failure. One
// goroutine at a time.
type Ops[T gemm.Float] struct {
	*lane
	mirrors []mirror
	pins    runtime.Pinner // operands that the device reads where they are
	borrow  []uintptr      // temporary memory in use until the next Sync
	sums    []float64
}

// mirror is the copy of a range of host memory on the device.
type mirror struct {
	span
	device uintptr
	dirty  bool // newer than the host's
	// A matrix whose rows do not touch: only the rows are its own, what lies
	// between belongs to others. Zero rows: a plain range.
	rows           int
	row, rowStride uintptr // bytes
}

// NewOps returns operations on a stream of their own.
func NewOps[T gemm.Float](c *Context) (*Ops[T], error) {
	l, err := c.newLane(streams.Normal)
	if err != nil {
		return nil, err
	}
	return &Ops[T]{lane: l}, nil
}

// Close brings results back and gives the stream and its memory up.
func (o *Ops[T]) Close() error {
	err := o.Sync()
	if closing := o.lane.close(); err == nil {
		err = closing
	}
	return err
}

// access says what an operation does with an operand.
type access uint8

const (
	reads  access = 1
	writes access = 2
)

// use returns where the device finds x.
func (o *Ops[T]) use(x []T, a access) uintptr {
	s := spanOf(x)
	return o.find(mirror{span: s}, bytesOf(x), a)
}

// useMatrix returns m on the device.
func (o *Ops[T]) useMatrix(m gemm.Matrix[T], a access) operand {
	if m.Rows == 0 || m.Cols == 0 {
		return operand{0, max(1, m.Stride)}
	}
	x := m.Data[:(m.Rows-1)*m.Stride+m.Cols]
	w := mirror{span: spanOf(x)}
	if m.Stride != m.Cols && m.Rows > 1 {
		size := (w.hi - w.lo) / uintptr(len(x))
		w.rows, w.row, w.rowStride = m.Rows, uintptr(m.Cols)*size, uintptr(m.Stride)*size
	}
	return operand{o.find(w, bytesOf(x), a), m.Stride}
}

// find returns where the device has the range w, copying it there first unless it
// is addressed in place, mirrored already, or about to be overwritten as a whole.
func (o *Ops[T]) find(w mirror, host []byte, a access) uintptr {
	if o.err != nil || len(host) == 0 {
		return 0
	}
	if o.c.addresses(w.span) {
		o.arrive(w.lo)
		o.pins.Pin(&host[0])
		return w.lo
	}
	for i := 0; i < len(o.mirrors); i++ {
		m := &o.mirrors[i]
		if w.hi <= m.lo || m.hi <= w.lo {
			continue
		}
		plain := m.rows == 0 && w.rows == 0
		same := m.span == w.span && m.rows == w.rows && m.row == w.row && m.rowStride == w.rowStride
		if same || plain && m.lo <= w.lo && w.hi <= m.hi {
			m.dirty = m.dirty || a&writes != 0
			return m.device + (w.lo - m.lo)
		}
		o.bringBack(*m)
		o.recycle(m.device)
		o.mirrors = append(o.mirrors[:i], o.mirrors[i+1:]...)
		i--
	}
	w.device, w.dirty = o.temporary(int64(len(host))), a&writes != 0
	if a&reads != 0 {
		o.upload(w.device, host)
	}
	o.mirrors = append(o.mirrors, w)
	return w.device
}

// bringBack copies a mirror that is newer than the host's memory to it.
func (o *Ops[T]) bringBack(m mirror) {
	if !m.dirty {
		return
	}
	if m.rows == 0 {
		o.download(memory(m.span), m.device)
		return
	}
	for i := range uintptr(m.rows) {
		lo := m.lo + i*m.rowStride
		o.download(memory(span{lo, lo + m.row}), m.device+i*m.rowStride)
	}
}

// Sync implements kron.Ops. A failure stays for later calls too.
func (o *Ops[T]) Sync() error {
	o.wait()
	for _, m := range o.mirrors {
		o.bringBack(m)
		o.recycle(m.device)
	}
	o.mirrors = o.mirrors[:0]
	for _, a := range o.borrow {
		o.recycle(a)
	}
	o.borrow = o.borrow[:0]
	o.pins.Unpin()
	return o.err
}

// lend is temporary memory until the next Sync.
func (o *Ops[T]) lend(n int) uintptr {
	a := o.temporary(int64(n))
	if a != 0 {
		o.borrow = append(o.borrow, a)
	}
	return a
}

// written is how an operand is used that enters with weight beta.
func written[T gemm.Float](beta T) access {
	if beta == 0 {
		return writes
	}
	return reads | writes
}

// Gemm implements kron.Ops.
func (o *Ops[T]) Gemm(ta, tb bool, alpha T, a, b gemm.Matrix[T], beta T, c gemm.Matrix[T]) {
	k := a.Cols
	if ta {
		k = a.Rows
	}
	x, y := o.useMatrix(a, reads), o.useMatrix(b, reads)
	product(o.lane, c.Rows, c.Cols, k, ta, tb, alpha, x, y, beta, o.useMatrix(c, written(beta)))
}

// Syrk implements kron.Ops. The upper triangle is brought back as it was, so it is
// read even where beta is zero.
func (o *Ops[T]) Syrk(trans bool, alpha T, a gemm.Matrix[T], beta T, c gemm.Matrix[T]) {
	k := a.Cols
	if trans {
		k = a.Rows
	}
	x := o.useMatrix(a, reads)
	update(o.lane, c.Rows, k, trans, alpha, x, beta, o.useMatrix(c, reads|writes))
}

func size(n int) streams.Arg { return streams.Int64(int64(n)) }

// Copy implements kron.Ops.
func (o *Ops[T]) Copy(dst, x []T) {
	n := len(dst)
	if from, to := o.use(x[:n], reads), o.use(dst, writes); n > 0 && o.err == nil {
		o.fail(o.stream.CopyBytes(to, from, int64(len(bytesOf(dst)))))
	}
}

// Axpby implements kron.Ops.
func (o *Ops[T]) Axpby(alpha T, x []T, beta T, y []T) {
	n := len(y)
	o.each(kernel[T](o.c, "axpby"), n, size(n), number(alpha), streams.Address(o.use(x[:n], reads)), number(beta), streams.Address(o.use(y, reads|writes)))
}

// Scale implements kron.Ops.
func (o *Ops[T]) Scale(alpha T, x []T) {
	o.each(kernel[T](o.c, "scale"), len(x), size(len(x)), number(alpha), streams.Address(o.use(x, reads|writes)))
}

// Lerp implements kron.Ops.
func (o *Ops[T]) Lerp(dst, x []T, w T) { o.blend("lerp", dst, x, w) }

// LerpSquare implements kron.Ops.
func (o *Ops[T]) LerpSquare(dst, x []T, w T) { o.blend("lerp_square", dst, x, w) }

func (o *Ops[T]) blend(name string, dst, x []T, w T) {
	n := len(dst)
	from := o.use(x[:n], reads)
	o.each(kernel[T](o.c, name), n, size(n), streams.Address(o.use(dst, reads|writes)), streams.Address(from), number(w))
}

// sumChunk is how many elements one block adds: fixed, so that the order of a sum
// depends on its length alone.
const sumChunk = 8192

// SumSquares implements kron.Ops. Blocks add their chunks on the device, the host
// adds the blocks in order.
func (o *Ops[T]) SumSquares(x []T) float64 {
	n := len(x)
	blocks := (n + sumChunk - 1) / sumChunk
	from, partial := o.use(x, reads), o.lend(8*max(1, blocks))
	o.blocks(kernel[T](o.c, "sum_squares"), blocks, size(n), streams.Int64(sumChunk), streams.Address(from), streams.Address(partial))
	if cap(o.sums) < blocks {
		o.sums = make([]float64, blocks)
	}
	sums, total := o.sums[:blocks], 0.0
	o.download(bytesOf(sums), partial)
	for _, s := range sums {
		total += s
	}
	return total
}

// AdamDirection implements kron.Ops.
func (o *Ops[T]) AdamDirection(dst, m, v []T, mscale, vscale, eps T) {
	n := len(dst)
	first, second := o.use(m[:n], reads), o.use(v[:n], reads)
	o.each(kernel[T](o.c, "adam_direction"), n, size(n), streams.Address(o.use(dst, writes)), streams.Address(first), streams.Address(second),
		number(mscale), number(vscale), number(eps))
}

// WhitenRows implements kron.Ops.
func (o *Ops[T]) WhitenRows(dst, m, s, v []T, eps T) {
	n := len(s) * len(v)
	from, scale, values := o.use(m[:n], reads), o.use(s, reads), o.use(v, reads)
	o.each(kernel[T](o.c, "whiten_rows"), n, size(len(s)), size(len(v)), streams.Address(o.use(dst[:n], writes)), streams.Address(from),
		streams.Address(scale), streams.Address(values), number(eps))
}

// ScaleMode implements kron.Ops.
func (o *Ops[T]) ScaleMode(x []T, pre, post int, s []T) {
	by, n := o.use(s, reads), pre*len(s)*post
	o.each(kernel[T](o.c, "scale_mode"), n, size(pre), size(len(s)), size(post), streams.Address(o.use(x[:n], reads|writes)), streams.Address(by))
}

// SquaresMode implements kron.Ops.
func (o *Ops[T]) SquaresMode(dst, x, before, after, _ []T) {
	n := len(dst)
	b, a, from := o.use(before, reads), o.use(after, reads), o.use(x[:len(before)*n*len(after)], reads)
	sums := o.use(dst, writes)
	o.blocks(kernel[T](o.c, "squares_mode"), min(n, maxBlocks), size(len(before)), size(n), size(len(after)), streams.Address(sums), streams.Address(from),
		streams.Address(b), streams.Address(a))
	_ = o.Sync() // the host reads dst next; the failure stays
}

// PermuteMode implements kron.Ops. perm is read before it returns.
func (o *Ops[T]) PermuteMode(dst, x []T, pre, post int, perm []int) {
	n := pre * len(perm) * post
	order, from := o.lend(8*max(1, len(perm))), o.use(x[:n], reads)
	o.upload(order, bytesOf(perm))
	o.each(kernel[T](o.c, "permute_mode"), n, size(pre), size(len(perm)), size(post), streams.Address(o.use(dst[:n], writes)), streams.Address(from), streams.Address(order))
}
