package nvmepage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync"
)

// drops records, in a file beside a drive's data, which objects were dropped, so that
// a recovery takes none of their versions that still stand in extents given back. An
// object of which only one version was ever written needs no record: wiping that page
// is enough.
//
// The file is a list of pages of the store's alignment. Each stands twice, and a write
// goes to the place that does not hold the newest, so that a torn one loses nothing
// that was confirmed.
type drops struct {
	mu    sync.Mutex // held during a write
	file  File       // nil before the first record
	name  string
	pages []*dropPage
	slots map[uint64]int // by object; number over all pages
}

// dropPage is a page in memory as it is to stand on the drive.
type dropPage struct {
	bytes []byte
	good  int64 // which of its two places holds the newest confirmed state, 0 or 1
}

const (
	dropName  = "dropped"
	dropMagic = "ASTDROP\x01" // the last byte is the version of the format

	// A page: magic, store, generation, number of records (4 bytes), CRC-32C of the
	// page without these 4 bytes; then records.
	dropHead   = 32
	dropRecord = 16 // object, version up to which it was dropped
)

// perPage returns how many records a page holds.
func perPage(align int) int { return (align - dropHead) / dropRecord }

// sealDrops completes a page before it is written.
func sealDrops(page []byte, store uint64) {
	le := binary.LittleEndian
	copy(page, dropMagic)
	le.PutUint64(page[8:], store)
	le.PutUint64(page[16:], le.Uint64(page[16:])+1)
	le.PutUint32(page[28:], dropSum(page))
}

func dropSum(page []byte) uint32 {
	return crc32.Update(checksum(page[:28]), castagnoli, page[32:])
}

// checkDrops returns a page's generation and its number of records, or false for
// what is not a whole page of this store.
func checkDrops(page []byte, store uint64) (generation uint64, records int, ok bool) {
	le := binary.LittleEndian
	if len(page) < dropHead || string(page[:8]) != dropMagic || le.Uint64(page[8:]) != store || le.Uint32(page[28:]) != dropSum(page) {
		return 0, 0, false
	}
	n := int64(le.Uint32(page[24:]))
	if n > int64(perPage(len(page))) {
		return 0, 0, false
	}
	return le.Uint64(page[16:]), int(n), true
}

// record makes durable, as far as a confirmed write is, that all versions of id up to
// the given one were dropped.
func (s *Store) record(o *operation, d *drive, version uint64) error {
	l := &d.drops
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := s.openDrops(d); err != nil {
		return err
	}
	slot, ok := l.slots[o.id]
	if !ok {
		slot = len(l.slots)
	}
	index := slot / perPage(s.align)
	if index == len(l.pages) {
		if err := l.file.Allocate(int64(2*index*s.align), int64(2*s.align)); err != nil {
			return fmt.Errorf("%w: grow %s by %d bytes: %w", ErrFull, l.name, 2*s.align, err)
		}
		l.pages = append(l.pages, &dropPage{bytes: Aligned(s.align, s.align)})
	}
	l.slots[o.id] = slot
	p := l.pages[index]
	le := binary.LittleEndian
	at := slot % perPage(s.align)
	entry := p.bytes[dropHead+at*dropRecord:]
	le.PutUint64(entry, o.id)
	le.PutUint64(entry[8:], max(version, le.Uint64(entry[8:])))
	le.PutUint32(p.bytes[24:], max(uint32(at+1), le.Uint32(p.bytes[24:])))
	sealDrops(p.bytes, s.id)
	r := o.request(p.bytes, nil, 0, true)
	r.file, r.name, r.off = l.file, l.name, (2*int64(index)+1-p.good)*int64(s.align)
	o.start(r, true)
	if err := o.wait(); err != nil {
		return err
	}
	p.good = 1 - p.good
	return nil
}

// openDrops opens the file when it is needed first. The caller holds the lock.
func (s *Store) openDrops(d *drive) error {
	l := &d.drops
	if l.file != nil {
		return nil
	}
	l.name, l.slots = filepath.Join(d.folder.dir, dropName), map[uint64]int{}
	f, err := s.openFile(l.name)
	if err != nil {
		return fmt.Errorf("open %s: %w", l.name, err)
	}
	l.file = f
	return nil
}

// readDrops adds what a dead store recorded on a drive to dropped: by object, the
// version up to which it is gone.
func (s *Store) readDrops(d *drive, dropped map[uint64]uint64) error {
	if _, err := os.Stat(filepath.Join(d.folder.dir, dropName)); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}
	if err := s.openDrops(d); err != nil {
		return err
	}
	l := &d.drops
	size, err := l.file.Size()
	if err != nil {
		return fmt.Errorf("%s: %w", l.name, err)
	}
	r := &request{file: l.file, name: l.name, over: make(chan struct{}, 1)}
	for off := int64(0); off+int64(2*s.align) <= size; off += int64(2 * s.align) {
		p, err := s.readDropPage(r, off)
		if err != nil {
			return err
		}
		if err := l.adopt(p, perPage(s.align), dropped); err != nil {
			return err
		}
	}
	return nil
}

// readDropPage returns the newer of a page's two states, an empty one when neither is
// whole: then nothing on it was confirmed.
func (s *Store) readDropPage(r *request, off int64) (*dropPage, error) {
	p := &dropPage{bytes: Aligned(s.align, s.align)}
	var newest uint64
	for place := range int64(2) {
		page := Aligned(s.align, s.align)
		r.buf, r.off = page, off+place*int64(s.align)
		s.engine.perform(r)
		if err := r.wait(s.engine); err != nil {
			return nil, err
		}
		if generation, _, ok := checkDrops(page, s.id); ok && generation > newest {
			p.bytes, p.good, newest = page, place, generation
		}
	}
	return p, nil
}

// adopt takes a page over, so that further records continue it.
func (l *drops) adopt(p *dropPage, capacity int, dropped map[uint64]uint64) error {
	le := binary.LittleEndian
	first := len(l.pages) * capacity
	l.pages = append(l.pages, p)
	for i := range int(le.Uint32(p.bytes[24:])) {
		entry := p.bytes[dropHead+i*dropRecord:]
		id, version := le.Uint64(entry), le.Uint64(entry[8:])
		if first+i != len(l.slots) {
			return fmt.Errorf("%s: %w: page %d follows one that is not full", l.name, ErrCorrupt, len(l.pages)-1)
		}
		l.slots[id] = first + i
		dropped[id] = max(dropped[id], version)
	}
	return nil
}

func (l *drops) close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

func (l *drops) sync() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	if err := l.file.Sync(); err != nil {
		return fmt.Errorf("nvmepage: sync %s: %w", l.name, err)
	}
	return nil
}
