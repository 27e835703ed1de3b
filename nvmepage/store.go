package nvmepage

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
)

// growStep is by how much a data file grows at least, where the drive has room.
const growStep = 64 << 20

// drive is one path's part of a store.
type drive struct {
	folder *folder
	file   File
	name   string // of the data file
	space  extents
	drops  drops
}

// entry is one confirmed version of an object. All fields but the last three are
// immutable; those are guarded by Store.mu.
type entry struct {
	header
	drive *drive
	refs  int    // loads in flight
	dead  bool   // replaced or dropped: its extent goes back with the last load
	past  uint64 // the highest other version that may still stand on a drive, 0 for none
}

// Store keeps objects on drives. See the package comment.
type Store struct {
	opts    Options
	id      uint64
	align   int
	direct  bool
	engine  engine
	staging *buffers // chunks, for memory that is not aligned
	pages   *buffers // header pages
	ops     sync.WaitGroup

	mu      sync.Mutex
	drives  []*drive
	turn    int // which drive is asked first for the next extent
	index   map[uint64]*entry
	entries []*entry          // given back, to be used again
	spare   *operation        // those given back, linked
	ghosts  map[uint64]uint64 // as entry.past, of objects that are not in the index
	version uint64
	stats   Stats
	closed  bool

	reads, writes, bytesRead, bytesWritten atomic.Int64
}

// Stats is a copy of a store's counters.
type Stats struct {
	Engine string // pool or io_uring
	Direct bool   // past the page cache
	Align  int    // bytes

	Objects   int
	Used      int64 // bytes of extents in use, padding and headers included
	Allocated int64 // bytes of the data files

	Reads, Writes           int64 // objects loaded and saved
	BytesRead, BytesWritten int64 // logical bytes of those
	Failed                  int64 // loads and saves that failed

	StagingPeak int   // most staging buffers in use at once
	Recovered   int   // objects taken over at Open
	Torn        int   // pages that were not complete then
	Foreign     int   // pages seen then that are another store's, or a copy from another place
	Reclaimed   int   // folders of dead stores that were removed
	Corrupt     int64 // pages that did not check when loaded
}

// Open makes a store in opts.Paths, or takes one over with opts.Recover. It removes
// what dead stores left there.
func Open(opts Options) (*Store, error) {
	opts = opts.withDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	s := &Store{opts: opts, index: map[uint64]*entry{}, ghosts: map[uint64]uint64{}}
	folders, err := s.settle()
	if err != nil {
		return nil, err
	}
	if err := s.start(folders); err != nil {
		return nil, errors.Join(err, s.shut())
	}
	return s, nil
}

// start opens the data files, chooses the engine and recovers.
func (s *Store) start(folders []*folder) error {
	for _, f := range folders {
		s.drives = append(s.drives, &drive{folder: f, name: filepath.Join(f.dir, dataName)})
	}
	if err := s.openFiles(); err != nil {
		return err
	}
	if err := s.startEngine(); err != nil {
		return err
	}
	s.staging = newBuffers(s.engine, s.opts.Staging, s.opts.Chunk, s.align)
	// Twice the depth: while some are in flight, as many can be ready to follow.
	s.pages = newBuffers(s.engine, 2*s.opts.Depth, s.align, s.align)
	if s.opts.Recover {
		return s.recover()
	}
	return nil
}

// openFiles opens every data file, all direct or all buffered, and settles the
// alignment: the largest that any drive needs.
func (s *Store) openFiles() error {
	s.direct = !s.opts.Buffered
	for i := 0; i < len(s.drives); i++ {
		f, err := s.openFile(s.drives[i].name)
		if err != nil && s.direct {
			s.opts.Logger.Warn("direct I/O refused; the page cache is used", "file", s.drives[i].name, "err", err)
			s.direct = false
			f, err = s.openFile(s.drives[i].name)
		}
		if err != nil {
			return fmt.Errorf("nvmepage: open %s: %w", s.drives[i].name, err)
		}
		s.drives[i].file = f
	}
	s.align = s.opts.Align
	if s.align == 0 {
		for _, d := range s.drives {
			s.align = max(s.align, directAlign(d.file))
		}
	}
	s.opts.Chunk = int(roundUp(int64(s.opts.Chunk), int64(s.align)))
	return nil
}

func (s *Store) openFile(name string) (File, error) {
	if s.opts.Open != nil {
		return s.opts.Open(name, s.direct)
	}
	return OpenFile(name, s.direct)
}

func (s *Store) startEngine() (err error) {
	if s.opts.Engine != Pool && s.opts.Open == nil {
		if s.engine, err = newUringEngine(s.opts.Depth); err == nil {
			return nil
		}
		if s.opts.Engine == Uring {
			return err
		}
		s.opts.Logger.Info("io_uring is not available; a pool of goroutines is used", "err", err)
	}
	if s.opts.Engine == Uring {
		return fmt.Errorf("nvmepage: io_uring serves the system's own files only")
	}
	s.engine = newPoolEngine(s.opts.Depth)
	return nil
}

// reserve gives an object's new version its number and an extent.
func (s *Store) reserve(id uint64, length int64) (*entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	e := s.newEntry()
	*e = entry{header: header{Store: s.id, ID: id, Version: s.version, Length: length, Align: uint32(s.align), Paths: uint32(len(s.drives))}}
	var errs []error
	for range s.drives {
		d := s.drives[s.turn]
		s.turn = (s.turn + 1) % len(s.drives)
		off, err := s.allocate(d, e.extent())
		if err == nil {
			e.drive, e.Off = d, off
			s.stats.Used += e.extent()
			return e, nil
		}
		errs = append(errs, err)
	}
	s.entries = append(s.entries, e)
	return nil, errors.Join(errs...)
}

// newEntry returns one that nobody knows. The caller holds mu.
func (s *Store) newEntry() *entry {
	n := len(s.entries)
	if n == 0 {
		return &entry{}
	}
	e := s.entries[n-1]
	s.entries = s.entries[:n-1]
	return e
}

// allocate takes n bytes of a drive, growing its file if needed.
func (s *Store) allocate(d *drive, n int64) (int64, error) {
	if off, ok := d.space.take(n); ok {
		return off, nil
	}
	need := d.space.need(n)
	left := int64(1) << 62
	if s.opts.Capacity > 0 {
		left = s.opts.Capacity - s.stats.Allocated
	}
	if need > left {
		return 0, fmt.Errorf("%w: %s: %d bytes asked for, %d of %d allocated", ErrFull, d.name, n, s.stats.Allocated, s.opts.Capacity)
	}
	step := max(need, min(roundUp(growStep, int64(s.align)), left/int64(s.align)*int64(s.align)))
	err := d.file.Allocate(d.space.size, step)
	if err != nil && step > need {
		step = need
		err = d.file.Allocate(d.space.size, step)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: grow %s by %d bytes: %w", ErrFull, d.name, step, err)
	}
	d.space.grow(step)
	s.stats.Allocated += step
	off, _ := d.space.take(n)
	return off, nil
}

// giveBack returns an entry and its extent. The caller holds mu.
func (s *Store) giveBack(e *entry) {
	e.drive.space.give(e.Off, e.extent())
	s.stats.Used -= e.extent()
	s.entries = append(s.entries, e)
}

// retire takes an entry out of use. The caller holds mu.
func (s *Store) retire(e *entry) {
	e.dead = true
	if e.refs == 0 {
		s.giveBack(e)
	}
}

// lookup pins the version in force.
func (s *Store) lookup(id uint64, length int64) (*entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.index[id]
	if !ok {
		return nil, fmt.Errorf("%w: %d", ErrNotFound, id)
	}
	if length >= 0 && length != e.Length {
		return nil, fmt.Errorf("%w: object %d has %d bytes, the buffer %d", ErrLength, id, e.Length, length)
	}
	e.refs++
	return e, nil
}

func (s *Store) unpin(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.refs--
	if e.dead && e.refs == 0 {
		s.giveBack(e)
	}
}

// Len returns an object's length in bytes.
func (s *Store) Len(id uint64) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.index[id]
	if !ok {
		return 0, fmt.Errorf("%w: %d", ErrNotFound, id)
	}
	return e.Length, nil
}

// IDs lists the objects in ascending order.
func (s *Store) IDs() []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]uint64, 0, len(s.index))
	for id := range s.index {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Drop forgets an object and makes sure that no recovery finds it: by wiping its page
// when no other version was ever written, else by a record of 16 bytes, which the next
// Drop of the object reuses. Either is one small write. Dropping what is not there
// does nothing. After an error the object is gone, but a recovery may find it.
func (s *Store) Drop(id uint64) error {
	o, err := s.begin(id)
	if err != nil {
		return err
	}
	defer o.end()
	s.mu.Lock()
	e, ok := s.index[id]
	alone := false
	if ok {
		delete(s.index, id)
		alone = e.past == 0 && e.refs == 0 // a load in flight wants to see the page
		e.refs++                           // until the drop is on the drive, nobody may reuse the extent
		s.retire(e)
	}
	s.mu.Unlock()
	if !ok {
		return nil
	}
	defer s.unpin(e)
	o.e, o.lone = e, true
	if alone {
		err = s.wipe(o)
	} else {
		err = s.record(o, e.drive, max(e.Version, e.past))
	}
	if err != nil {
		s.mu.Lock()
		s.haunt(id, max(e.Version, e.past))
		s.mu.Unlock()
		return fmt.Errorf("nvmepage: drop %d: %w", id, err)
	}
	return nil
}

// wipe clears the page of the operation's entry.
func (s *Store) wipe(o *operation) error {
	page, err := s.pages.take(context.Background())
	if err != nil {
		return err
	}
	clear(page)
	r := o.request(page, nil, 0, true)
	r.page = page
	o.start(r, true)
	return o.wait()
}

// haunt notes that a version that is not in force may stand on a drive. The caller
// holds mu.
func (s *Store) haunt(id, version uint64) {
	if e := s.index[id]; e != nil {
		e.past = max(e.past, version)
		return
	}
	s.ghosts[id] = max(s.ghosts[id], version)
}

// Sync makes everything confirmed so far durable against a loss of power.
func (s *Store) Sync() error {
	o, err := s.begin(0)
	if err != nil {
		return err
	}
	defer o.end()
	var errs []error
	for _, d := range s.drives {
		if err := d.file.Sync(); err != nil {
			errs = append(errs, fmt.Errorf("nvmepage: sync %s: %w", d.name, err))
		}
		errs = append(errs, d.drops.sync())
	}
	return errors.Join(errs...)
}

// Stats returns a copy of the counters.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.stats
	t.Engine, t.Direct, t.Align, t.Objects = s.engine.name(), s.direct, s.align, len(s.index)
	t.Reads, t.Writes = s.reads.Load(), s.writes.Load()
	t.BytesRead, t.BytesWritten = s.bytesRead.Load(), s.bytesWritten.Load()
	t.StagingPeak = s.staging.high()
	return t
}

// Close waits for operations in flight and removes the store's folders.
func (s *Store) Close() error { return s.end((*folder).remove) }

// Abandon closes the store and leaves its folders, as a crash would: a later Open
// with Recover takes them over.
func (s *Store) Abandon() error { return s.end((*folder).abandon) }

func (s *Store) end(leave func(*folder) error) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.ops.Wait()
	s.engine.close()
	var errs []error
	for _, d := range s.drives {
		errs = append(errs, d.file.Close(), d.drops.close(), leave(d.folder))
	}
	return errors.Join(errs...)
}

// shut releases what a failed Open holds.
func (s *Store) shut() error {
	if s.engine != nil {
		s.engine.close()
	}
	var errs []error
	for _, d := range s.drives {
		if d.file != nil {
			errs = append(errs, d.file.Close())
		}
		errs = append(errs, d.drops.close())
		errs = append(errs, d.folder.undo())
	}
	return errors.Join(errs...)
}
