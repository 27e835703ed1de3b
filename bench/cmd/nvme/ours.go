package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/asteria-runtime/asteria/nvmepage"
)

const (
	enginePool  = nvmepage.Pool
	engineUring = nvmepage.Uring
)

// ours is a store whose objects are one block each. One caller moves them in batches,
// with as many requests in flight as fio has.
type ours struct {
	store   *nvmepage.Store
	objects uint64
	size    int64
	blocks  [][]byte // memory for those in flight, and one that is being checked
	items   []nvmepage.Item
}

// memory holds the blocks of one contender at a time. It is made once: what Go's heap
// has used before is on small pages and stays there.
func memory(sizes, depths []int64) []byte {
	n := int64(4 << 20) // enough for huge pages, which a trainer's state has
	for _, size := range sizes {
		n = max(n, size<<10*blockCount(slices.Max(depths)))
	}
	mem := nvmepage.Aligned(int(n), 64<<10)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(mem)
	return mem
}

// blockCount is more than LoadAll has begun at once.
func blockCount(depth int64) int64 { return 2*depth + 2 }

// openOurs makes a store of span bytes in blocks of size, and writes every place
// twice: a drive's and a file system's first write to a place is another thing.
func openOurs(dir string, align int, size int64, depth int, span int64, engine nvmepage.Engine, mem []byte) (*ours, error) {
	s, err := nvmepage.Open(nvmepage.Options{Paths: []string{dir}, Engine: engine, Depth: depth, Align: align, Chunk: int(size)})
	if err != nil {
		return nil, err
	}
	o := &ours{store: s, objects: uint64(span / size), size: size}
	for i := range blockCount(int64(depth)) {
		o.blocks = append(o.blocks, mem[i*size:][:size:size])
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
	f := o.store.LoadAll
	if way == "write" {
		f = o.store.SaveAll
	}
	o.items = o.items[:0]
	for k := range max(uint64(n/o.size), 1) {
		o.items = append(o.items, nvmepage.Item{ID: k % o.objects, Data: o.blocks[k%uint64(len(o.blocks))]})
	}
	start := time.Now()
	if err := f(context.Background(), o.items); err != nil {
		return 0, fmt.Errorf("%s: %w", way, err)
	}
	return float64(len(o.items)) * float64(o.size) / time.Since(start).Seconds(), nil
}
