package checkpoint

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// FS is what a store needs of a file system. Tests inject faults through it; nil
// in [Options] is the operating system's.
type FS interface {
	// Create makes or truncates a file for writing.
	Create(path string) (File, error)
	// Open opens a file for reading.
	Open(path string) (ReadFile, error)
	// MkdirAll makes a folder and its parents.
	MkdirAll(path string) error
	// Rename replaces to by from, atomically; to is not a folder that exists.
	Rename(from, to string) error
	// RemoveAll removes a file or folder with all in it; that none is there is
	// no error.
	RemoveAll(path string) error
	// ReadDir lists a folder, sorted by name.
	ReadDir(path string) ([]fs.DirEntry, error)
	// SyncDir makes the names in a folder durable.
	SyncDir(path string) error
}

// File is a file being written.
type File interface {
	io.Writer
	Sync() error
	Close() error
}

// ReadFile is a file being read.
type ReadFile interface {
	io.ReaderAt
	Size() (int64, error)
	Close() error
}

// OS is the operating system's file system.
type OS struct{}

// Create implements [FS].
func (OS) Create(path string) (File, error) { return os.Create(path) }

// Open implements [FS].
func (OS) Open(path string) (ReadFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

type osFile struct{ *os.File }

// Size is the file's length in bytes.
func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// MkdirAll implements [FS].
func (OS) MkdirAll(path string) error { return os.MkdirAll(path, 0o777) }

// Rename implements [FS].
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// RemoveAll implements [FS].
func (OS) RemoveAll(path string) error { return os.RemoveAll(path) }

// ReadDir implements [FS].
func (OS) ReadDir(path string) ([]fs.DirEntry, error) { return os.ReadDir(path) }

// SyncDir implements [FS]. Windows has no such operation; its renames are
// journalled.
func (OS) SyncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(filepath.Clean(path))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
