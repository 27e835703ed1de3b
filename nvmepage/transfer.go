package nvmepage

import (
	"context"
	"fmt"
	"sync"
)

// buffers is a bounded pool of aligned buffers that requests queue for.
type buffers struct {
	engine engine // whose requests give buffers back
	free   chan []byte
	mu     sync.Mutex
	used   int
	peak   int
}

func newBuffers(e engine, n, size, align int) *buffers {
	b := &buffers{engine: e, free: make(chan []byte, n)}
	for range n {
		b.free <- Aligned(size, align)
	}
	return b
}

func (b *buffers) take(ctx context.Context) ([]byte, error) {
	buf, err := waitFor(ctx, b.engine, b.free)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used++
	b.peak = max(b.peak, b.used)
	return buf, nil
}

func (b *buffers) give(buf []byte) {
	b.mu.Lock()
	b.used--
	b.mu.Unlock()
	b.free <- buf[:cap(buf)]
}

func (b *buffers) high() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.peak
}

// pieces calls f for each piece of a payload, size bytes each but for the last.
func pieces(length, size int64, f func(lo, hi int64) error) error {
	for lo := int64(0); lo < length; lo += size {
		if err := f(lo, min(lo+size, length)); err != nil {
			return err
		}
	}
	return nil
}

// readSize is how much of a payload one request reads: a quarter, so that the
// checksum of a part is taken while the next is on its way, but not less than what
// a drive needs for its full speed. A store of small depth, where parts could not
// be on their way together, makes fewer.
func (s *Store) readSize(length int64) int64 {
	const least = 512 << 10
	parts := min(int64(s.opts.Depth), 4)
	size := roundUp((length+parts-1)/parts, int64(s.align))
	return min(max(size, roundUp(least, int64(s.align))), int64(s.opts.Chunk))
}

// inPlace reports whether memory can be handed to the drive as it is: whole units of
// the alignment, and for direct I/O at an aligned address.
func (s *Store) inPlace(b []byte) bool {
	return len(b)%s.align == 0 && (!s.direct || isAligned(b, s.align))
}

// operation is a save, load or drop in flight with its requests. It is used again
// and again, so that moving objects allocates nothing.
type operation struct {
	s    *Store
	id   uint64
	e    *entry
	lone bool  // its caller has nothing else to do meanwhile
	many bool  // it is one of a batch
	err  error // before or while submitting

	requests []*request // the first used are this time's
	used     int
	next     *operation // in a batch or among the spare ones
}

// begin admits an operation, or refuses it after Close. end must follow.
func (s *Store) begin(id uint64) (*operation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	s.ops.Add(1)
	o := s.spare
	if o == nil {
		return &operation{s: s, id: id}, nil
	}
	s.spare = o.next
	o.next, o.id = nil, id
	return o, nil
}

// end gives the operation back. Its requests are over.
func (o *operation) end() {
	s := o.s
	o.e, o.err, o.lone, o.many, o.used = nil, nil, false, false, 0
	s.mu.Lock()
	o.next, s.spare = s.spare, o
	s.mu.Unlock()
	s.ops.Done()
}

// request prepares one for head and then buf, either of which may be empty, at off
// within the operation's extent. page and staged go back to their pools with its end.
func (o *operation) request(head, buf []byte, off int64, write bool) *request {
	if o.used == len(o.requests) {
		o.requests = append(o.requests, &request{store: o.s, over: make(chan struct{}, 1)})
	}
	r := o.requests[o.used]
	o.used++
	r.file, r.name = o.e.drive.file, o.e.drive.name
	r.head, r.buf, r.off, r.write = head, buf, o.e.Off+off, write
	r.page, r.staged, r.dst = nil, nil, nil
	r.whole, r.summed = false, false
	return r
}

// start submits a request; one that is all there is to wait for may be carried out
// at once.
func (o *operation) start(r *request, only bool) {
	if only && o.lone {
		o.s.engine.perform(r)
		return
	}
	o.s.engine.submit(r)
}

// wait waits for all requests and returns the first failure.
func (o *operation) wait() error {
	first := o.err
	for _, r := range o.requests[:o.used] {
		if err := r.wait(o.s.engine); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// crowded reports whether the drive has other work while this operation computes:
// then one request for all is best, because the checksum is taken beside theirs.
func (o *operation) crowded() bool { return o.many || o.lone && o.s.engine.busy() }

// Save stores src as the new version of object id and returns when the write is
// confirmed. src must not change meanwhile. On an error the previous version, if
// there is one, stays in force.
func (s *Store) Save(ctx context.Context, id uint64, src []byte) error {
	o, err := s.begin(id)
	if err != nil {
		return err
	}
	o.lone = true
	o.startSave(ctx, src)
	return o.finishSave()
}

// Item is one object of a batch.
type Item struct {
	ID   uint64
	Data []byte
}

// SaveAll saves several objects with all their requests in flight together. It
// returns the first error after all are done; objects without one are saved.
func (s *Store) SaveAll(ctx context.Context, items []Item) error {
	var first error
	var flights queue
	for _, it := range items {
		o, err := s.begin(it.ID)
		if err != nil {
			first = err
			break
		}
		o.many = len(items) > 1
		o.startSave(ctx, it.Data)
		flights.push(o)
	}
	for flights.head != nil {
		if err := flights.pop().finishSave(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// queue is a list of operations, first in, first out.
type queue struct{ head, tail *operation }

func (q *queue) push(o *operation) {
	if q.head == nil {
		q.head = o
	} else {
		q.tail.next = o
	}
	q.tail = o
}

func (q *queue) pop() *operation {
	o := q.head
	q.head, o.next = o.next, nil
	return o
}

func (o *operation) startSave(ctx context.Context, src []byte) {
	if len(src) == 0 || int64(len(src)) > maxLength {
		o.err = fmt.Errorf("%w: %d bytes: want 1 to %d", ErrLength, len(src), int64(maxLength))
		return
	}
	if o.e, o.err = o.s.reserve(o.id, int64(len(src))); o.err == nil {
		o.err = o.write(ctx, src)
	}
}

// joined is the largest payload that one request carries together with its header
// though nothing else is in flight. For a larger one it is better to take the checksum
// while the payload is written.
const joined = 256 << 10

// write submits header and payload.
func (o *operation) write(ctx context.Context, src []byte) error {
	chunk := int64(o.s.opts.Chunk)
	if n := o.e.Length; n <= chunk && (n <= joined || o.crowded()) {
		page, err := o.header(ctx, src)
		if err != nil {
			return err
		}
		return o.writePiece(ctx, page, src, 0, true)
	}
	err := pieces(o.e.Length, chunk, func(lo, hi int64) error {
		return o.writePiece(ctx, nil, src[lo:hi], lo, false)
	})
	if err != nil {
		return err
	}
	page, err := o.header(ctx, src)
	if err != nil {
		return err
	}
	r := o.request(page, nil, 0, true)
	r.page = page
	o.start(r, true)
	return nil
}

// header fills a page, which the request that writes it gives back: so many saves
// need few pages.
func (o *operation) header(ctx context.Context, src []byte) ([]byte, error) {
	o.e.CRC = checksum(src)
	page, err := o.s.pages.take(ctx)
	if err != nil {
		return nil, err
	}
	clear(page)
	o.e.encode(page)
	return page, nil
}

// writePiece submits the payload from lo on; with a page, the page before it.
func (o *operation) writePiece(ctx context.Context, page, src []byte, lo int64, only bool) error {
	s := o.s
	var staged []byte
	if !s.inPlace(src) {
		var err error
		if staged, err = s.staging.take(ctx); err != nil {
			if page != nil {
				s.pages.give(page)
			}
			return err
		}
		n := copy(staged, src)
		src = staged[:roundUp(int64(n), int64(s.align))]
		clear(src[n:])
	}
	r := o.request(page, src, int64(s.align)+lo-int64(len(page)), true)
	r.page, r.staged = page, staged
	o.start(r, only)
	return nil
}

// finishSave waits for the requests and puts the version in force.
func (o *operation) finishSave() error {
	defer o.end()
	s, err := o.s, o.wait()
	if o.e == nil {
		s.fault()
	} else {
		length := o.e.Length // once retired, the entry may be another's
		s.commit(o.e, err)
		if err == nil {
			s.writes.Add(1)
			s.bytesWritten.Add(length)
		}
	}
	if err != nil {
		return fmt.Errorf("nvmepage: save %d: %w", o.id, err)
	}
	return nil
}

func (s *Store) fault() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Failed++
}

// commit makes e the version in force, unless its write failed or a save that was
// called later is in force already.
func (s *Store) commit(e *entry, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.index[e.ID]
	switch {
	case err != nil:
		s.stats.Failed++
		s.haunt(e.ID, e.Version) // all of it may be on the drive nevertheless
		s.retire(e)
	case old != nil && old.Version > e.Version:
		s.haunt(e.ID, e.Version)
		s.retire(e)
	default:
		e.past = s.ghosts[e.ID]
		delete(s.ghosts, e.ID)
		s.index[e.ID] = e
		if old != nil {
			e.past = max(old.past, old.Version)
			s.retire(old)
		}
	}
}

// Load reads object id into dst, which must have its length, and checks that what
// is on the drive is what was written. On an error dst's contents are undefined.
func (s *Store) Load(ctx context.Context, id uint64, dst []byte) error {
	o, err := s.begin(id)
	if err != nil {
		return err
	}
	o.lone = true
	o.startLoad(ctx, dst)
	return o.finishLoad()
}

// LoadAll loads several objects with all their requests in flight together. It
// returns the first error after all are done.
func (s *Store) LoadAll(ctx context.Context, items []Item) error {
	// More are begun than can be in flight, as many as there are pages, so that the drive
	// has work while the oldest ends; not all, so that its checksum is taken meanwhile.
	ahead := 2*s.opts.Depth - 1
	var first error
	var flights queue
	finish := func() {
		if err := flights.pop().finishLoad(); err != nil && first == nil {
			first = err
		}
	}
	for i, it := range items {
		o, err := s.begin(it.ID)
		if err != nil {
			first = err
			break
		}
		o.many = len(items) > 1
		o.startLoad(ctx, it.Data)
		flights.push(o)
		if i >= ahead {
			finish()
		}
	}
	for flights.head != nil {
		finish()
	}
	return first
}

func (o *operation) startLoad(ctx context.Context, dst []byte) {
	s := o.s
	if o.e, o.err = s.lookup(o.id, int64(len(dst))); o.err != nil {
		return
	}
	n := int64(len(dst))
	size := s.readSize(n)
	if n <= int64(s.opts.Chunk) && o.crowded() {
		size = n
	}
	o.err = pieces(n, size, func(lo, hi int64) error {
		return o.readPiece(ctx, dst[lo:hi], lo, size >= n)
	})
}

// readPiece submits a read of the payload from lo on, with the header before the
// first.
func (o *operation) readPiece(ctx context.Context, dst []byte, lo int64, only bool) (err error) {
	s := o.s
	var page, staged []byte
	if lo == 0 {
		if page, err = s.pages.take(ctx); err != nil {
			return err
		}
	}
	target := dst
	if !s.inPlace(dst) {
		if staged, err = s.staging.take(ctx); err != nil {
			if page != nil {
				s.pages.give(page)
			}
			return err
		}
		target = staged[:roundUp(int64(len(dst)), int64(s.align))]
	}
	r := o.request(page, target, int64(s.align)+lo-int64(len(page)), false)
	r.page, r.staged, r.dst, r.whole = page, staged, dst, only
	o.start(r, only)
	return nil
}

// finishLoad waits for the parts in their order and checks them.
func (o *operation) finishLoad() error {
	defer o.end()
	s, err := o.s, o.err
	var sum uint32
	for _, r := range o.requests[:o.used] {
		if e := r.wait(s.engine); e != nil && err == nil {
			err = e
		}
		switch {
		case err != nil:
		case r.summed:
			sum = r.sum
		default:
			sum = updateSum(sum, r.dst)
		}
		r.dst = nil
	}
	if err == nil {
		err = o.check(sum)
	}
	if o.e != nil {
		length := o.e.Length // once unpinned, the entry may be another's
		s.unpin(o.e)
		if err == nil {
			s.reads.Add(1)
			s.bytesRead.Add(length)
		}
	}
	if err != nil {
		s.fault()
		return fmt.Errorf("nvmepage: load %d: %w", o.id, err)
	}
	return nil
}

// check compares the page and the payload's checksum with what the index says was
// written.
func (o *operation) check(sum uint32) error {
	first := o.requests[0] // it read the page
	h, e := first.header, o.e
	switch {
	case first.bad != nil:
		return o.corrupt("%v", first.bad)
	case h != e.header:
		return o.corrupt("the page belongs to object %d, version %d, %d bytes; written was version %d, %d bytes",
			h.ID, h.Version, h.Length, e.Version, e.Length)
	case sum != h.CRC:
		return o.corrupt("payload checksum %#08x, recorded %#08x", sum, h.CRC)
	}
	return nil
}

// corrupt counts and describes a page that does not check.
func (o *operation) corrupt(format string, args ...any) error {
	o.s.mu.Lock()
	o.s.stats.Corrupt++
	o.s.mu.Unlock()
	return &CorruptError{ID: o.id, File: o.e.drive.name, Offset: o.e.Off, What: fmt.Sprintf(format, args...)}
}
