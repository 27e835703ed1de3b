package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asteria-runtime/asteria/nvmepage"
)

const (
	enginePool  = nvmepage.Pool
	engineUring = nvmepage.Uring
)

// ours is a store whose objects are one block each, with as many callers as fio has
// blocks in flight. Its options are the defaults, so that a large block which is alone
// moves in parts, as it does for everybody.
type ours struct {
	store   *nvmepage.Store
	objects uint64
	data    [][]byte // one block for each caller
}

// openOurs makes a store of span bytes in blocks of size, and writes every place
// twice: a drive's and a file system's first write to a place is another thing.
func openOurs(dir string, size int64, depth int, span int64, engine nvmepage.Engine) (*ours, error) {
	s, err := nvmepage.Open(nvmepage.Options{Paths: []string{dir}, Engine: engine})
	if err != nil {
		return nil, err
	}
	o := &ours{store: s, objects: uint64(span / size)}
	for i := range depth {
		b := nvmepage.Aligned(int(size), max(s.Stats().Align, 4096))
		_, _ = rand.NewChaCha8([32]byte{byte(i)}).Read(b)
		o.data = append(o.data, b)
	}
	if _, err := o.pass("write", 2*span); err != nil {
		_ = s.Close()
		return nil, err
	}
	return o, nil
}

func (o *ours) close() error { return o.store.Close() }

// warm is what run moves before it begins to count, in bytes: the time in which the
// processor and Go's scheduler wake up from watching fio.
const warm = 2 << 20

// run moves about n bytes, object after object, and returns bytes per second.
func (o *ours) run(way string, n int64) (float64, error) {
	if _, err := o.pass(way, warm); err != nil {
		return 0, err
	}
	return o.pass(way, n)
}

func (o *ours) pass(way string, n int64) (float64, error) {
	f := o.store.Load
	if way == "write" {
		f = o.store.Save
	}
	count := max(uint64(n)/uint64(len(o.data[0])), 1)
	var next atomic.Uint64
	errs := make([]error, len(o.data))
	start := time.Now()
	var callers sync.WaitGroup
	for i, data := range o.data {
		callers.Go(func() {
			for errs[i] == nil {
				k := next.Add(1) - 1
				if k >= count {
					return
				}
				errs[i] = f(context.Background(), k%o.objects, data)
			}
		})
	}
	callers.Wait()
	seconds := time.Since(start).Seconds()
	if err := errors.Join(errs...); err != nil {
		return 0, fmt.Errorf("%s: %w", way, err)
	}
	return float64(count) * float64(len(o.data[0])) / seconds, nil
}
