package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	prefix     = "step"
	tmpSuffix  = ".tmp" // being written
	oldSuffix  = ".old" // being removed
	latestFile = "latest"
)

// Options configure a [Store].
type Options struct {
	// Keep is the number of newest checkpoints that are kept, ephemeral ones not
	// counted. Default 0: all.
	Keep int
	// FS is the file system. Default: the operating system's.
	FS FS
	// Logger is told what was removed. Default: nobody.
	Logger *slog.Logger
}

// Store is a folder of checkpoints that one run writes. One goroutine calls its
// methods; a save that runs beside it is the store's own, and [Store.Close] waits
// for it.
type Store struct {
	dir    string
	opts   Options
	shadow *State
	done   chan error // nil when no save runs
}

// Open makes the folder if there is none and removes what killed runs left in it:
// folders that were being written or removed. The caller makes sure that no
// other run uses the folder.
func Open(dir string, opts Options) (*Store, error) {
	if opts.Keep < 0 {
		return nil, fmt.Errorf("checkpoint: keep is %d, allowed is >= 0", opts.Keep)
	}
	if opts.FS == nil {
		opts.FS = OS{}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Store{dir: dir, opts: opts}
	if err := opts.FS.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	return s, s.clean()
}

// clean removes left-overs. A folder on its way out that is complete and whose
// successor never came is put back.
func (s *Store) clean() error {
	names, err := s.opts.FS.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	for _, e := range names {
		base, isTmp := strings.CutSuffix(e.Name(), tmpSuffix)
		base, isOld := strings.CutSuffix(base, oldSuffix)
		if _, isStep := stepOf(base); !isTmp && !isOld || !isStep && base != latestFile {
			continue
		}
		if isOld && s.restore(filepath.Join(s.dir, base)) {
			continue
		}
		s.opts.Logger.Info("checkpoint: removing a left-over", "name", e.Name())
		if err := s.opts.FS.RemoveAll(filepath.Join(s.dir, e.Name())); err != nil {
			return fmt.Errorf("checkpoint: remove a left-over: %w", err)
		}
	}
	return nil
}

// restore undoes the first half of a replacement that a kill cut short.
func (s *Store) restore(path string) bool {
	if _, err := load(s.opts.FS, path+oldSuffix); err != nil {
		return false
	}
	if _, err := load(s.opts.FS, path); err == nil {
		return false
	}
	return s.opts.FS.Rename(path+oldSuffix, path) == nil
}

// stepOf reads the step from a folder's name.
func stepOf(name string) (int64, bool) {
	digits, ok := strings.CutPrefix(name, prefix)
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, ok && err == nil && n >= 0 && strconv.FormatInt(n, 10) == digits
}

// Dir is the folder of the checkpoint of a step.
func (s *Store) Dir(step int64) string {
	return filepath.Join(s.dir, prefix+strconv.FormatInt(step, 10))
}

// Save writes a checkpoint and returns when it is durable. A checkpoint of the
// same step is replaced. When it fails, the earlier checkpoints are as they were
// and nothing of the new one is left.
func (s *Store) Save(st State) error {
	final := s.Dir(st.Position.Step)
	tmp := final + tmpSuffix
	if err := s.write(tmp, &st); err != nil {
		// A full disk: what was written must not stay and fill it further.
		return errors.Join(err, s.opts.FS.RemoveAll(tmp))
	}
	if err := s.publish(tmp, final); err != nil {
		return errors.Join(err, s.opts.FS.RemoveAll(tmp))
	}
	if err := s.point(st.Position.Step); err != nil {
		return err
	}
	return s.prune(st.Position.Step)
}

func (s *Store) write(tmp string, st *State) error {
	if err := s.opts.FS.RemoveAll(tmp); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if err := s.opts.FS.MkdirAll(tmp); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	f := folder{fs: s.opts.FS, path: tmp}
	return f.writeState(st)
}

// publish gives a complete folder its name. One that had the name before is put
// aside first, and deleted only when its successor is in place.
func (s *Store) publish(tmp, final string) error {
	old, err := s.putAside(final)
	if err == nil {
		err = s.opts.FS.Rename(tmp, final)
	}
	if err == nil {
		err = s.opts.FS.SyncDir(s.dir)
	}
	if err == nil && old != "" {
		err = s.opts.FS.RemoveAll(old)
	}
	if err != nil {
		return fmt.Errorf("checkpoint: publish %s: %w", final, err)
	}
	return nil
}

// putAside renames a folder so that it is no checkpoint any more, and returns the
// new name, or "" when there was no folder.
func (s *Store) putAside(path string) (string, error) {
	old := path + oldSuffix
	if err := s.opts.FS.RemoveAll(old); err != nil {
		return "", err
	}
	err := s.opts.FS.Rename(path, old)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return old, err
}

// remove takes a folder out of the list of checkpoints before it deletes it, so
// that a kill in between leaves no partial checkpoint.
func (s *Store) remove(path string) error {
	old, err := s.putAside(path)
	if err == nil && old != "" {
		err = s.opts.FS.RemoveAll(old)
	}
	if err != nil {
		return fmt.Errorf("checkpoint: remove %s: %w", path, err)
	}
	return nil
}

// point writes the name of the newest checkpoint into the file latest. It is for
// people and other programs; [Latest] looks at the folders themselves.
func (s *Store) point(step int64) error {
	f := folder{fs: s.opts.FS, path: s.dir}
	name := latestFile + tmpSuffix
	err := f.write(name, content([]byte(prefix+strconv.FormatInt(step, 10)+"\n")))
	if err == nil {
		err = s.opts.FS.Rename(filepath.Join(s.dir, name), filepath.Join(s.dir, latestFile))
	}
	if err == nil {
		err = s.opts.FS.SyncDir(s.dir)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("checkpoint: write the pointer: %w", err), s.opts.FS.RemoveAll(filepath.Join(s.dir, name)))
	}
	return nil
}

// prune removes what Keep and ephemerality let go, oldest first. newest is never
// removed.
func (s *Store) prune(newest int64) error {
	steps, err := list(s.opts.FS, s.dir)
	if err != nil {
		return err
	}
	permanent := 0
	for _, step := range slices.Backward(steps) {
		meta, err := readMeta(s.opts.FS, s.Dir(step))
		ephemeral := err == nil && meta.Ephemeral
		if !ephemeral {
			permanent++
		}
		drop := ephemeral && step < newest || s.opts.Keep > 0 && permanent > s.opts.Keep
		if step == newest || !drop {
			continue
		}
		if err := s.remove(s.Dir(step)); err != nil {
			return err
		}
	}
	return nil
}

// list returns the steps of all folders that are named as checkpoints, ascending.
func list(f FS, dir string) ([]int64, error) {
	names, err := f.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	var steps []int64
	for _, e := range names {
		if step, ok := stepOf(e.Name()); ok && e.IsDir() {
			steps = append(steps, step)
		}
	}
	slices.Sort(steps)
	return steps, nil
}
