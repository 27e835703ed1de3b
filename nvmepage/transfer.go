package nvmepage

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
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

// waiter collects the outcomes of an operation's requests.
type waiter struct {
	pending atomic.Int64  // requests, and one for the operation until it waits
	over    chan struct{} // closed when none is pending
	mu      sync.Mutex
	err     error // the first failure
}

func newWaiter() *waiter {
	w := &waiter{over: make(chan struct{})}
	w.pending.Store(1)
	return w
}

// start submits one request for head and then buf, either of which may be empty, at
// off within the extent of e; then, when set, runs after it, before the operation can
// end.
func (w *waiter) start(s *Store, e *entry, head, buf []byte, off int64, write bool, then func()) {
	w.pending.Add(1)
	s.engine.submit(&request{
		file: e.drive.file, head: head, buf: buf, off: e.Off + off, write: write,
		done: func(err error) {
			if err != nil {
				w.fail(fmt.Errorf("%s: %w", e.drive.name, err))
			}
			if then != nil {
				then()
			}
			w.release()
		},
	})
}

func (w *waiter) release() {
	if w.pending.Add(-1) == 0 {
		close(w.over)
	}
}

func (w *waiter) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

// wait returns the first failure after all requests are done. It is called once.
func (w *waiter) wait(s *Store) error {
	w.release()
	_, _ = waitFor(context.Background(), s.engine, w.over) // without a context, it cannot fail
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
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

// save is an operation in flight; begun by startSave, ended by finish.
type save struct {
	s   *Store
	e   *entry
	w   *waiter
	err error // before or while submitting
}

// Save stores src as the new version of object id and returns when the write is
// confirmed. src must not change meanwhile. On an error the previous version, if
// there is one, stays in force.
func (s *Store) Save(ctx context.Context, id uint64, src []byte) error {
	return s.startSave(ctx, id, src).finish()
}

// Item is one object of a batch.
type Item struct {
	ID   uint64
	Data []byte
}

// SaveAll saves several objects with all their requests in flight together. It
// returns the first error after all are done; objects without one are saved.
func (s *Store) SaveAll(ctx context.Context, items []Item) error {
	flights := make([]*save, len(items))
	for i, it := range items {
		flights[i] = s.startSave(ctx, it.ID, it.Data)
	}
	var first error
	for _, f := range flights {
		if err := f.finish(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (s *Store) startSave(ctx context.Context, id uint64, src []byte) *save {
	f := &save{s: s}
	if f.err = s.begin(); f.err != nil {
		return f
	}
	f.w = newWaiter()
	if len(src) == 0 || int64(len(src)) > maxLength {
		f.err = fmt.Errorf("%w: save %d: %d bytes: want 1 to %d", ErrLength, id, len(src), int64(maxLength))
		return f
	}
	if f.e, f.err = s.reserve(id, int64(len(src))); f.err == nil {
		f.err = f.write(ctx, src)
	}
	return f
}

// joined is the largest payload that one request carries together with its header.
// For a larger one it is better to take the checksum while the payload is written.
const joined = 256 << 10

// write submits header and payload.
func (f *save) write(ctx context.Context, src []byte) error {
	chunk := int64(f.s.opts.Chunk)
	if f.e.Length <= min(joined, chunk) {
		page, err := f.header(ctx, src)
		if err != nil {
			return err
		}
		return f.writePiece(ctx, page, src, 0)
	}
	err := pieces(f.e.Length, chunk, func(lo, hi int64) error {
		return f.writePiece(ctx, nil, src[lo:hi], lo)
	})
	if err != nil {
		return err
	}
	page, err := f.header(ctx, src)
	if err != nil {
		return err
	}
	f.w.start(f.s, f.e, page, nil, 0, true, func() { f.s.pages.give(page) })
	return nil
}

// header fills a page, which the request that writes it gives back: so many saves
// need few pages.
func (f *save) header(ctx context.Context, src []byte) ([]byte, error) {
	f.e.CRC = checksum(src)
	page, err := f.s.pages.take(ctx)
	if err != nil {
		return nil, err
	}
	clear(page)
	f.e.encode(page)
	return page, nil
}

// writePiece submits the payload from lo on; with a page, the page before it.
func (f *save) writePiece(ctx context.Context, page, src []byte, lo int64) error {
	s := f.s
	at := int64(s.align) + lo - int64(len(page))
	giveBack := func() {
		if page != nil {
			s.pages.give(page)
		}
	}
	if s.inPlace(src) {
		f.w.start(s, f.e, page, src, at, true, giveBack)
		return nil
	}
	buf, err := s.staging.take(ctx)
	if err != nil {
		giveBack()
		return err
	}
	n := copy(buf, src)
	padded := int(roundUp(int64(n), int64(s.align)))
	clear(buf[n:padded])
	f.w.start(s, f.e, page, buf[:padded], at, true, func() {
		s.staging.give(buf)
		giveBack()
	})
	return nil
}

// finish waits for the requests and puts the version in force.
func (f *save) finish() error {
	if f.w == nil {
		return f.err // the store is closed
	}
	defer f.s.ops.Done()
	err := f.w.wait(f.s)
	if f.err != nil {
		err = f.err
	}
	if f.e == nil {
		f.s.fault()
		return fmt.Errorf("nvmepage: save: %w", err)
	}
	f.s.commit(f.e, err)
	if err != nil {
		return fmt.Errorf("nvmepage: save %d: %w", f.e.ID, err)
	}
	f.s.writes.Add(1)
	f.s.bytesWritten.Add(f.e.Length)
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
		s.retire(e)
	case old != nil && old.Version > e.Version:
		s.retire(e)
	default:
		s.index[e.ID] = e
		if old != nil {
			s.retire(old)
		}
	}
}

// load is an operation in flight; begun by startLoad, ended by finish.
type load struct {
	s     *Store
	id    uint64
	e     *entry
	open  bool // begun: finish must end it
	parts []part
	err   error // before or while submitting

	found     header // what the page says, once the first part is there
	headerErr error
}

// part is a piece of a payload on its way.
type part struct {
	dst []byte
	w   *waiter
}

// Load reads object id into dst, which must have its length, and checks that what
// is on the drive is what was written. On an error dst's contents are undefined.
func (s *Store) Load(ctx context.Context, id uint64, dst []byte) error {
	return s.startLoad(ctx, id, dst).finish()
}

// LoadAll loads several objects with all their requests in flight together. It
// returns the first error after all are done.
func (s *Store) LoadAll(ctx context.Context, items []Item) error {
	// More are begun than can be in flight, so that the drive has work while the
	// checksum of the oldest is taken; not all, so that it is taken meanwhile.
	ahead := s.opts.Depth + 1
	flights := make([]*load, len(items))
	var first error
	for i := range len(items) + ahead {
		if i < len(items) {
			flights[i] = s.startLoad(ctx, items[i].ID, items[i].Data)
		}
		if i < ahead {
			continue
		}
		if err := flights[i-ahead].finish(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (s *Store) startLoad(ctx context.Context, id uint64, dst []byte) *load {
	f := &load{s: s, id: id}
	if f.err = s.begin(); f.err != nil {
		return f
	}
	f.open = true
	if f.e, f.err = s.lookup(id, int64(len(dst))); f.err != nil {
		return f
	}
	f.err = pieces(f.e.Length, s.readSize(f.e.Length), func(lo, hi int64) error {
		return f.readPiece(ctx, dst[lo:hi], lo)
	})
	return f
}

// readPiece submits a read of the payload from lo on, with the header before the
// first.
func (f *load) readPiece(ctx context.Context, dst []byte, lo int64) (err error) {
	s := f.s
	var page, buf []byte
	if lo == 0 {
		if page, err = s.pages.take(ctx); err != nil {
			return err
		}
	}
	target := dst
	if !s.inPlace(dst) {
		if buf, err = s.staging.take(ctx); err != nil {
			if page != nil {
				s.pages.give(page)
			}
			return err
		}
		target = buf[:roundUp(int64(len(dst)), int64(s.align))]
	}
	p := part{dst: dst, w: newWaiter()}
	f.parts = append(f.parts, p)
	p.w.start(s, f.e, page, target, int64(s.align)+lo-int64(len(page)), false, func() {
		if page != nil {
			f.found, f.headerErr = decodeHeader(page)
			s.pages.give(page)
		}
		if buf != nil {
			copy(dst, buf)
			s.staging.give(buf)
		}
	})
	return nil
}

// finish waits for the parts in their order and checks them.
func (f *load) finish() error {
	if !f.open {
		return f.err // the store is closed
	}
	defer f.s.ops.Done()
	var sum uint32
	err := f.err
	for _, p := range f.parts {
		if e := p.w.wait(f.s); e != nil && err == nil {
			err = e
		}
		if err == nil {
			sum = updateSum(sum, p.dst)
		}
	}
	if err == nil {
		err = f.check(sum)
	}
	if f.e != nil {
		f.s.unpin(f.e)
	}
	if err != nil {
		f.s.fault()
		return fmt.Errorf("nvmepage: load %d: %w", f.id, err)
	}
	f.s.reads.Add(1)
	f.s.bytesRead.Add(f.e.Length)
	return nil
}

// check compares the page and the payload's checksum with what the index says was
// written.
func (f *load) check(sum uint32) error {
	bad := func(format string, args ...any) error {
		f.s.mu.Lock()
		f.s.stats.Corrupt++
		f.s.mu.Unlock()
		return &CorruptError{ID: f.e.ID, File: f.e.drive.name, Offset: f.e.Off, What: fmt.Sprintf(format, args...)}
	}
	h := f.found
	if f.headerErr != nil {
		return bad("%v", f.headerErr)
	}
	if h != f.e.header {
		return bad("the page belongs to object %d, version %d, %d bytes; written was version %d, %d bytes",
			h.ID, h.Version, h.Length, f.e.Version, f.e.Length)
	}
	if sum != h.CRC {
		return bad("payload checksum %#08x, recorded %#08x", sum, h.CRC)
	}
	return nil
}
