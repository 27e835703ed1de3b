package nvmepage

import (
	"errors"
	"fmt"
	"slices"
)

// recover rebuilds the index from the pages in the data files: for each object the
// highest version whose payload checks. It reads every page once.
func (s *Store) recover() error {
	var all []*entry
	dropped := map[uint64]uint64{}
	for _, d := range s.drives {
		if err := s.readDrops(d, dropped); err != nil {
			return fmt.Errorf("nvmepage: recover: %w", err)
		}
		size, err := d.file.Size()
		if err != nil {
			return fmt.Errorf("nvmepage: recover %s: %w", d.name, err)
		}
		size = size / int64(s.align) * int64(s.align)
		found, err := s.scan(d, size)
		if err != nil {
			return fmt.Errorf("nvmepage: recover %s: %w", d.name, err)
		}
		d.space.size = size
		s.stats.Allocated += size
		all = append(all, found...)
	}
	for _, e := range all {
		if missing := int(e.Paths) - s.taken(); missing > 0 {
			return fmt.Errorf("nvmepage: recover %016x: %w: it was spread over %d paths, %d of them not among %q",
				s.id, ErrIncomplete, e.Paths, missing, s.opts.Paths)
		}
		s.version = max(s.version, e.Version)
		if e.Version <= dropped[e.ID] {
			continue
		}
		e.past = e.Version // older ones may stand beside it
		if old := s.index[e.ID]; old == nil || old.Version < e.Version {
			s.index[e.ID] = e
		}
	}
	for _, version := range dropped {
		s.version = max(s.version, version)
	}
	for _, d := range s.drives {
		s.account(d)
	}
	s.stats.Recovered = len(s.index)
	return nil
}

// taken counts the folders that were there before Open.
func (s *Store) taken() (n int) {
	for _, d := range s.drives {
		if d.folder.taken {
			n++
		}
	}
	return n
}

// scanner reads a data file through a window, so that looking at every aligned
// place costs few requests.
type scanner struct {
	s       *Store
	d       *drive
	size    int64
	window  []byte
	lo, hi  int64 // what the window holds
	payload []byte
	request request
}

// scan walks a data file. A page that checks is skipped as a whole; behind one that
// does not, a younger one may begin inside its old extent, so the walk goes on at
// the next aligned place.
func (s *Store) scan(d *drive, size int64) ([]*entry, error) {
	c := scanner{
		s: s, d: d, size: size,
		window: Aligned(s.opts.Chunk, s.align), payload: Aligned(s.opts.Chunk, s.align),
		request: request{file: d.file, name: d.name, over: make(chan struct{}, 1)},
	}
	var found []*entry
	for off := int64(0); off+int64(s.align) <= size; {
		e, err := c.candidate(off)
		if err != nil {
			return nil, err
		}
		if e == nil {
			off += int64(s.align)
			continue
		}
		found = append(found, e)
		off += e.extent()
	}
	return found, nil
}

// candidate returns the complete object at off, nil when there is none.
func (c *scanner) candidate(off int64) (*entry, error) {
	page, err := c.page(off)
	if err != nil {
		return nil, err
	}
	h, err := decodeHeader(page)
	if errors.Is(err, errNoHeader) {
		return nil, nil
	}
	e := &entry{header: h, drive: c.d}
	if err == nil && (h.Store != c.s.id || h.Off != off) {
		c.s.stats.Foreign++
		return nil, nil
	}
	if err != nil || int(h.Align) != c.s.align || off+h.extent() > c.size {
		c.s.stats.Torn++
		return nil, nil
	}
	sum, err := c.payloadSum(e)
	if err != nil {
		return nil, err
	}
	if sum != h.CRC {
		c.s.stats.Torn++
		return nil, nil
	}
	return e, nil
}

// page returns the bytes at off, at least one header long.
func (c *scanner) page(off int64) ([]byte, error) {
	if off < c.lo || off+int64(c.s.align) > c.hi {
		n := min(int64(len(c.window)), c.size-off)
		if err := c.read(c.window[:n], off); err != nil {
			return nil, err
		}
		c.lo, c.hi = off, off+n
	}
	return c.window[off-c.lo : c.hi-c.lo], nil
}

func (c *scanner) read(buf []byte, off int64) error {
	r := &c.request
	r.buf, r.off = buf, off
	c.s.engine.perform(r)
	return r.wait(c.s.engine)
}

func (c *scanner) payloadSum(e *entry) (uint32, error) {
	var sum uint32
	err := pieces(e.Length, int64(c.s.opts.Chunk), func(lo, hi int64) error {
		at := e.Off + int64(c.s.align) + lo
		if err := c.read(c.payload[:roundUp(hi-lo, int64(c.s.align))], at); err != nil {
			return err
		}
		sum = updateSum(sum, c.payload[:hi-lo])
		return nil
	})
	return sum, err
}

// account makes everything on a drive free that no object in force occupies.
func (s *Store) account(d *drive) {
	var used []extent
	for _, e := range s.index {
		if e.drive == d {
			used = append(used, extent{e.Off, e.extent()})
			s.stats.Used += e.extent()
		}
	}
	slices.SortFunc(used, func(a, b extent) int { return int(min(max(a.off-b.off, -1), 1)) })
	at := int64(0)
	for _, u := range append(used, extent{d.space.size, 0}) {
		if u.off > at {
			d.space.give(at, u.off-at)
		}
		at = u.off + u.n
	}
}
