package nvmepage

import (
	"context"
	"fmt"
	"sync"
)

// buffers is a bounded pool of aligned buffers that requests queue for.
type buffers struct {
	free chan []byte
	mu   sync.Mutex
	used int
	peak int
}

func newBuffers(n, size, align int) *buffers {
	b := &buffers{free: make(chan []byte, n)}
	for range n {
		b.free <- Aligned(size, align)
	}
	return b
}

func (b *buffers) take(ctx context.Context) ([]byte, error) {
	select {
	case buf := <-b.free:
		b.mu.Lock()
		defer b.mu.Unlock()
		b.used++
		b.peak = max(b.peak, b.used)
		return buf, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
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
	pending sync.WaitGroup
	mu      sync.Mutex
	err     error // the first failure
}

// start submits one request for bytes at off within the extent of e; then, when
// set, runs after it, before the operation can end.
func (w *waiter) start(s *Store, e *entry, buf []byte, off int64, write bool, then ...func()) {
	w.pending.Add(1)
	s.engine.submit(&request{
		file: e.drive.file, buf: buf, off: e.off + off, write: write,
		done: func(err error) {
			if err != nil {
				w.fail(fmt.Errorf("%s: %w", e.drive.name, err))
			}
			for _, f := range then {
				f()
			}
			w.pending.Done()
		},
	})
}

func (w *waiter) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

func (w *waiter) wait() error {
	w.pending.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// pieces calls f for each chunk of a payload.
func (s *Store) pieces(length int64, f func(lo, hi int64) error) error {
	for lo := int64(0); lo < length; lo += int64(s.opts.Chunk) {
		if err := f(lo, min(lo+int64(s.opts.Chunk), length)); err != nil {
			return err
		}
	}
	return nil
}

// inPlace reports whether memory can be handed to the drive as it is: whole units of
// the alignment, and for direct I/O at an aligned address.
func (s *Store) inPlace(b []byte) bool {
	return len(b)%s.align == 0 && (!s.direct || isAligned(b, s.align))
}

// save is an operation in flight; begun by startSave, ended by finish.
type save struct {
	s    *Store
	e    *entry
	page []byte
	w    waiter
	err  error // before or while submitting
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
	if len(src) == 0 || int64(len(src)) > maxLength {
		f.err = fmt.Errorf("%w: save %d: %d bytes: want 1 to %d", ErrLength, id, len(src), int64(maxLength))
		return f
	}
	if f.page, f.err = s.pages.take(ctx); f.err != nil {
		return f
	}
	if f.e, f.err = s.reserve(id, int64(len(src))); f.err != nil {
		return f
	}
	f.e.CRC = checksum(src)
	clear(f.page)
	f.e.encode(f.page)
	page := f.page
	f.w.start(s, f.e, page, 0, true, func() { s.pages.give(page) })
	f.page = nil // given back by the request, so that many saves need few pages
	f.err = s.pieces(f.e.Length, func(lo, hi int64) error { return f.writePiece(ctx, src[lo:hi], lo) })
	return f
}

func (f *save) writePiece(ctx context.Context, src []byte, lo int64) error {
	s := f.s
	at := int64(s.align) + lo
	if s.inPlace(src) {
		f.w.start(s, f.e, src, at, true)
		return nil
	}
	buf, err := s.staging.take(ctx)
	if err != nil {
		return err
	}
	n := copy(buf, src)
	padded := int(roundUp(int64(n), int64(s.align)))
	clear(buf[n:padded])
	f.w.start(s, f.e, buf[:padded], at, true, func() { s.staging.give(buf) })
	return nil
}

// finish waits for the requests and puts the version in force.
func (f *save) finish() error {
	if f.err == ErrClosed {
		return f.err
	}
	defer f.s.ops.Done()
	err := f.w.wait()
	if f.err != nil {
		err = f.err
	}
	if f.page != nil {
		f.s.pages.give(f.page)
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
	s    *Store
	e    *entry
	dst  []byte
	page []byte
	w    waiter
	err  error // before or while submitting

	found     header // what the page says, once its request is done
	headerErr error
}

// Load reads object id into dst, which must have its length, and checks that what
// is on the drive is what was written. On an error dst's contents are undefined.
func (s *Store) Load(ctx context.Context, id uint64, dst []byte) error {
	return s.startLoad(ctx, id, dst).finish()
}

// LoadAll loads several objects with all their requests in flight together. It
// returns the first error after all are done.
func (s *Store) LoadAll(ctx context.Context, items []Item) error {
	flights := make([]*load, len(items))
	for i, it := range items {
		flights[i] = s.startLoad(ctx, it.ID, it.Data)
	}
	var first error
	for _, f := range flights {
		if err := f.finish(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (s *Store) startLoad(ctx context.Context, id uint64, dst []byte) *load {
	f := &load{s: s, dst: dst}
	if f.err = s.begin(); f.err != nil {
		return f
	}
	if f.e, f.err = s.lookup(id, int64(len(dst))); f.err != nil {
		return f
	}
	if f.page, f.err = s.pages.take(ctx); f.err != nil {
		return f
	}
	page := f.page
	f.w.start(s, f.e, page, 0, false, func() {
		f.found, f.headerErr = decodeHeader(page)
		s.pages.give(page)
	})
	f.page = nil // given back by the request, so that many loads need few pages
	f.err = s.pieces(f.e.Length, func(lo, hi int64) error { return f.readPiece(ctx, dst[lo:hi], lo) })
	return f
}

func (f *load) readPiece(ctx context.Context, dst []byte, lo int64) error {
	s := f.s
	at := int64(s.align) + lo
	if s.inPlace(dst) {
		f.w.start(s, f.e, dst, at, false)
		return nil
	}
	buf, err := s.staging.take(ctx)
	if err != nil {
		return err
	}
	padded := int(roundUp(int64(len(dst)), int64(s.align)))
	f.w.start(s, f.e, buf[:padded], at, false, func() {
		copy(dst, buf)
		s.staging.give(buf)
	})
	return nil
}

func (f *load) finish() error {
	if f.err == ErrClosed {
		return f.err
	}
	defer f.s.ops.Done()
	err := f.w.wait()
	if f.err != nil {
		err = f.err
	}
	if err == nil {
		err = f.check()
	}
	if f.page != nil {
		f.s.pages.give(f.page)
	}
	if f.e != nil {
		f.s.unpin(f.e)
	}
	if err != nil {
		f.s.fault()
		return fmt.Errorf("nvmepage: load: %w", err)
	}
	f.s.reads.Add(1)
	f.s.bytesRead.Add(f.e.Length)
	return nil
}

// check compares the page with what the index says was written.
func (f *load) check() error {
	bad := func(format string, args ...any) error {
		f.s.mu.Lock()
		f.s.stats.Corrupt++
		f.s.mu.Unlock()
		return &CorruptError{ID: f.e.ID, File: f.e.drive.name, Offset: f.e.off, What: fmt.Sprintf(format, args...)}
	}
	h := f.found
	if f.headerErr != nil {
		return bad("%v", f.headerErr)
	}
	if h != f.e.header {
		return bad("the page belongs to object %d, version %d, %d bytes; written was version %d, %d bytes",
			h.ID, h.Version, h.Length, f.e.Version, f.e.Length)
	}
	if got := checksum(f.dst); got != h.CRC {
		return bad("payload checksum %#08x, recorded %#08x", got, h.CRC)
	}
	return nil
}
