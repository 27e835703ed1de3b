package nvmepage

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Names in a path: folderPrefix + 16 hex digits, and the same with lockSuffix.
const (
	folderPrefix = "asteria-pages-"
	lockSuffix   = ".lock"
	dataName     = "data"
)

// folder is a store's place in one path, locked while it is open. Its name carries
// the store's identity, which is the same in all of the store's paths.
type folder struct {
	dir   string
	lock  *os.File
	taken bool // it was there before Open
}

func folderName(path string, id uint64) string {
	return filepath.Join(path, fmt.Sprintf("%s%016x", folderPrefix, id))
}

// newFolder makes a store's locked folder in a path. The lock stands before the
// folder does, so that nobody takes the folder for a left-over. errLocked means that
// another store has the name or judged it a left-over meanwhile.
func newFolder(path string, id uint64) (*folder, error) {
	dir := folderName(path, id)
	lock, err := lockFile(dir + lockSuffix)
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, errors.Join(err, os.Remove(lock.Name()), lock.Close())
	}
	return &folder{dir: dir, lock: lock}, nil
}

// leftOver is a locked folder whose store is gone.
type leftOver struct {
	*folder
	path     int    // its index
	id       uint64 // of the store
	modified int64  // when the data file was, in ns since 1970
}

// leftOvers returns the folders in path whose store is gone, locked.
func leftOvers(path string, logger *slog.Logger) ([]leftOver, error) {
	locks, err := filepath.Glob(filepath.Join(escapeGlob(path), folderPrefix+strings.Repeat("[0-9a-f]", 16)+lockSuffix))
	if err != nil {
		return nil, err
	}
	var found []leftOver
	for _, name := range locks {
		lock, err := lockFile(name)
		if errors.Is(err, errLocked) {
			continue // alive
		}
		if err != nil {
			logger.Warn("left-over not examined", "file", name, "err", err)
			continue
		}
		dir := strings.TrimSuffix(name, lockSuffix)
		l := leftOver{folder: &folder{dir: dir, lock: lock, taken: true}}
		l.id, _ = strconv.ParseUint(filepath.Base(dir)[len(folderPrefix):], 16, 64) // the pattern admits nothing else
		if info, err := os.Stat(filepath.Join(dir, dataName)); err == nil {
			l.modified = info.ModTime().UnixNano()
		}
		found = append(found, l)
	}
	return found, nil
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

// undo leaves what a failed Open found as it was.
func (f *folder) undo() error {
	if f.taken {
		return f.abandon()
	}
	return f.remove()
}

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
