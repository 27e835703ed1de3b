package checkpoint

import (
	"errors"
	"io/fs"
	"sync"
	"syscall"
)

// faultFS is the operating system's file system with faults. Operations that
// change something are counted; writes count once a call.
type faultFS struct {
	OS
	mu    sync.Mutex
	ops   int
	fail  int   // the operation that fails, 1-based; 0: none
	dead  bool  // after the failure nothing works: the process was killed
	room  int64 // bytes that fit on the disk; negative: unlimited
	err   error
	after bool // the failing operation takes effect before the process dies
}

func newFaultFS() *faultFS { return &faultFS{room: -1, err: errors.New("injected fault")} }

var errDead = errors.New("the process is dead")

// step counts an operation and says whether it fails.
func (f *faultFS) step() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ops++
	switch {
	case f.fail == 0 || f.ops < f.fail:
		return nil
	case f.ops == f.fail:
		return f.err
	case f.dead:
		return errDead
	}
	return nil
}

// do runs an operation, unless it is to fail.
func (f *faultFS) do(op func() error) error {
	err := f.step()
	if err == nil || f.after && err == f.err {
		return errors.Join(op(), err)
	}
	return err
}

func (f *faultFS) Create(path string) (File, error) {
	var file File
	err := f.do(func() (err error) { file, err = f.OS.Create(path); return err })
	if err != nil {
		if file != nil {
			file.Close()
		}
		return nil, err
	}
	return &faultFile{File: file, fs: f}, nil
}

func (f *faultFS) MkdirAll(path string) error {
	return f.do(func() error { return f.OS.MkdirAll(path) })
}

func (f *faultFS) Rename(from, to string) error {
	return f.do(func() error { return f.OS.Rename(from, to) })
}

func (f *faultFS) RemoveAll(path string) error {
	return f.do(func() error { return f.OS.RemoveAll(path) })
}

func (f *faultFS) SyncDir(path string) error {
	return f.do(func() error { return nil })
}

func (f *faultFS) ReadDir(path string) ([]fs.DirEntry, error) { return f.OS.ReadDir(path) }

type faultFile struct {
	File
	fs *faultFS
}

// Write fails with a short write when the disk is full.
func (f *faultFile) Write(b []byte) (int, error) {
	if err := f.fs.step(); err != nil {
		n, _ := f.File.Write(b[:len(b)/2])
		return n, err
	}
	f.fs.mu.Lock()
	room := f.fs.room
	if room >= 0 {
		f.fs.room = max(0, room-int64(len(b)))
	}
	f.fs.mu.Unlock()
	if room >= 0 && int64(len(b)) > room {
		n, _ := f.File.Write(b[:room])
		return n, syscall.ENOSPC
	}
	return f.File.Write(b)
}

// Sync only counts: the tests do not cut the power.
func (f *faultFile) Sync() error { return f.fs.do(func() error { return nil }) }
