package nvmetest

import (
	"sync"
	"syscall"

	"github.com/asteria-runtime/asteria/nvmepage"
)

// Op is what a file was asked to do.
type Op struct {
	Kind string // "read", "write", "allocate" or "sync"
	Off  int64
	N    int64 // bytes
	Seq  int   // number of the operation over all files, from 0
}

// Faults opens files that fail as told. Functions may be nil; they are called one
// at a time. Pass Faults.Open as nvmepage.Options.Open.
type Faults struct {
	// Fail returns the error of an operation, nil to let it happen.
	Fail func(Op) error
	// Short returns how many of an operation's bytes move; more than asked means all.
	Short func(Op) int64
	// Corrupt changes what a read returns.
	Corrupt func(op Op, data []byte)
	// Space is how many bytes Allocate gives before it fails with ENOSPC; 0 means
	// no limit.
	Space int64

	mu   sync.Mutex
	seq  int
	used int64
}

// Open opens a file of the system with the faults on top. It never uses direct
// I/O's alignment rules itself, so any alignment can be tested on any file system.
func (f *Faults) Open(name string, _ bool) (nvmepage.File, error) {
	file, err := nvmepage.OpenFile(name, false)
	if err != nil {
		return nil, err
	}
	return &faulty{File: file, faults: f}, nil
}

// ask numbers an operation and asks the functions about it.
func (f *Faults) ask(kind string, off, n int64) (op Op, move int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	op = Op{Kind: kind, Off: off, N: n, Seq: f.seq}
	f.seq++
	if f.Fail != nil {
		err = f.Fail(op)
	}
	move = n
	if f.Short != nil {
		move = min(move, f.Short(op))
	}
	return op, move, err
}

type faulty struct {
	nvmepage.File
	faults *Faults
}

// ReadAt reads, or does what the faults say.
func (f *faulty) ReadAt(p []byte, off int64) (int, error) {
	op, move, err := f.faults.ask("read", off, int64(len(p)))
	if err != nil {
		return 0, err
	}
	n, err := f.File.ReadAt(p[:move], off)
	if f.faults.Corrupt != nil {
		f.faults.mu.Lock()
		defer f.faults.mu.Unlock()
		f.faults.Corrupt(op, p[:n])
	}
	return n, err
}

// WriteAt writes, or does what the faults say.
func (f *faulty) WriteAt(p []byte, off int64) (int, error) {
	_, move, err := f.faults.ask("write", off, int64(len(p)))
	if err != nil {
		return 0, err
	}
	return f.File.WriteAt(p[:move], off)
}

// Allocate reserves, within Faults.Space.
func (f *faulty) Allocate(off, n int64) error {
	if _, _, err := f.faults.ask("allocate", off, n); err != nil {
		return err
	}
	f.faults.mu.Lock()
	full := f.faults.Space > 0 && f.faults.used+n > f.faults.Space
	if !full {
		f.faults.used += n
	}
	f.faults.mu.Unlock()
	if full {
		return syscall.ENOSPC
	}
	return f.File.Allocate(off, n)
}

// Sync syncs, or does what the faults say.
func (f *faulty) Sync() error {
	if _, _, err := f.faults.ask("sync", 0, 0); err != nil {
		return err
	}
	return f.File.Sync()
}
