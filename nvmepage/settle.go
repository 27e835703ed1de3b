package nvmepage

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
)

// settle claims a folder in every path, all with the identity of one store, and
// removes the left-overs of other dead stores. With Options.Recover the identity is
// that of the left-over that was written last, if there is one.
func (s *Store) settle() ([]*folder, error) {
	if err := distinct(s.opts.Paths); err != nil {
		return nil, err
	}
	dead, err := s.survey()
	if err != nil {
		return nil, err
	}
	mine := make([]*folder, len(s.opts.Paths))
	for _, l := range dead {
		if s.opts.Recover && l.id == dead[0].id {
			mine[l.path] = l.folder
			s.id = l.id
			continue
		}
		s.reclaim(l)
	}
	return mine, s.claim(mine, s.opts.Recover && len(dead) > 0)
}

// distinct refuses a folder that is named twice, also by two spellings: a store's
// folders have one name in all paths.
func distinct(paths []string) error {
	var seen []os.FileInfo
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("nvmepage: path %s: %w", path, err)
		}
		for _, other := range seen {
			if os.SameFile(info, other) {
				return fmt.Errorf("nvmepage: path %s stands twice", path)
			}
		}
		seen = append(seen, info)
	}
	return nil
}

// survey locks the left-overs in all paths. The one that was written last is first.
func (s *Store) survey() ([]leftOver, error) {
	var dead []leftOver
	for i, path := range s.opts.Paths {
		found, err := leftOvers(path, s.opts.Logger)
		if err != nil {
			err = fmt.Errorf("nvmepage: path %s: %w", path, err)
			for _, l := range dead {
				err = errors.Join(err, l.abandon())
			}
			return nil, err
		}
		for _, l := range found {
			l.path = i
			dead = append(dead, l)
		}
	}
	slices.SortFunc(dead, func(a, b leftOver) int {
		return cmp.Or(cmp.Compare(b.modified, a.modified), cmp.Compare(a.id, b.id), cmp.Compare(a.path, b.path))
	})
	return dead, nil
}

// reclaim removes a left-over.
func (s *Store) reclaim(l leftOver) {
	if err := l.remove(); err != nil {
		s.opts.Logger.Warn("left-over not removed", "folder", l.dir, "err", err)
		return
	}
	s.stats.Reclaimed++
	s.opts.Logger.Info("left-over of a dead store removed", "folder", l.dir)
}

// claim fills the gaps in mine with new folders: of the store's identity where that
// is fixed, else of one that nobody has.
func (s *Store) claim(mine []*folder, fixed bool) error {
	for {
		if !fixed {
			var id [8]byte
			_, _ = rand.Read(id[:]) // never fails
			s.id = binary.BigEndian.Uint64(id[:])
		}
		err := s.fillGaps(mine)
		if err == nil {
			return nil
		}
		if fixed || !errors.Is(err, errLocked) {
			return errors.Join(err, undoAll(mine))
		}
		if err := undoAll(mine); err != nil {
			return err
		}
	}
}

func (s *Store) fillGaps(mine []*folder) (err error) {
	for i, path := range s.opts.Paths {
		if mine[i] != nil {
			continue
		}
		if mine[i], err = newFolder(path, s.id); err != nil {
			return fmt.Errorf("nvmepage: path %s: %w", path, err)
		}
	}
	return nil
}

// undoAll leaves what was found as it was and empties the list.
func undoAll(mine []*folder) error {
	var errs []error
	for i, f := range mine {
		if f != nil {
			errs = append(errs, f.undo())
			mine[i] = nil
		}
	}
	return errors.Join(errs...)
}
