package nvmepage

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Names in a path: folderPrefix + 16 hex digits, and the same with lockSuffix.
const (
	folderPrefix = "asteria-pages-"
	lockSuffix   = ".lock"
	dataName     = "data"
)

// folder is a store's place in one path, locked while it is open.
type folder struct {
	dir  string
	lock *os.File
}

// newFolder makes a locked folder with a fresh name. The lock stands before the
// folder does, so that nobody takes the folder for a left-over.
func newFolder(path string) (*folder, error) {
	for {
		var name [8]byte
		if _, err := rand.Read(name[:]); err != nil {
			return nil, err
		}
		dir := filepath.Join(path, folderPrefix+hex.EncodeToString(name[:]))
		lock, err := lockFile(dir + lockSuffix)
		if errors.Is(err, errLocked) {
			continue // another store made the same name or judged it a left-over
		}
		if err != nil {
			return nil, err
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, errors.Join(err, os.Remove(lock.Name()), lock.Close())
		}
		return &folder{dir: dir, lock: lock}, nil
	}
}

// leftOvers returns the folders in path whose store is gone, locked, newest first.
func leftOvers(path string, logger *slog.Logger) ([]*folder, error) {
	locks, err := filepath.Glob(filepath.Join(escapeGlob(path), folderPrefix+"*"+lockSuffix))
	if err != nil {
		return nil, err
	}
	type aged struct {
		f   *folder
		age int64
	}
	var found []aged
	for _, name := range locks {
		lock, err := lockFile(name)
		if errors.Is(err, errLocked) {
			continue // alive
		}
		if err != nil {
			logger.Warn("left-over not examined", "file", name, "err", err)
			continue
		}
		f := &folder{dir: strings.TrimSuffix(name, lockSuffix), lock: lock}
		var modified int64
		if info, err := os.Stat(filepath.Join(f.dir, dataName)); err == nil {
			modified = info.ModTime().UnixNano()
		}
		found = append(found, aged{f, modified})
	}
	slices.SortFunc(found, func(a, b aged) int {
		if a.age != b.age {
			return int(min(max(b.age-a.age, -1), 1))
		}
		return strings.Compare(a.f.dir, b.f.dir)
	})
	folders := make([]*folder, len(found))
	for i, a := range found {
		folders[i] = a.f
	}
	return folders, nil
}

// escapeGlob makes a path match itself.
func escapeGlob(path string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(path)
}

// remove deletes the folder and its lock, the lock last.
func (f *folder) remove() error {
	err := os.RemoveAll(f.dir)
	return errors.Join(err, os.Remove(f.lock.Name()), f.lock.Close())
}

// abandon gives the lock up and leaves the folder, as a crash would.
func (f *folder) abandon() error { return f.lock.Close() }

// errLocked says that somebody holds the lock, or made the file anew meanwhile.
var errLocked = errors.New("nvmepage: locked by a live store")

// lockFile opens, creates and locks a file. A file that was removed between opening
// and locking counts as locked: its remover was there first.
func lockFile(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := tryLock(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	ours, err1 := f.Stat()
	there, err2 := os.Stat(name)
	if err1 != nil || err2 != nil || !os.SameFile(ours, there) {
		return nil, errors.Join(fmt.Errorf("%w: %s", errLocked, name), f.Close())
	}
	return f, nil
}
