package nvmepage_test

import (
	"fmt"
	"testing"

	"github.com/asteria-runtime/asteria/nvmepage"
)

// What moves on the way of a training step allocates nothing once the store has seen
// as many objects and operations before: with memory that is moved in place or staged,
// in one request or in parts, one by one or in batches.
func TestMovingObjectsAllocatesNothing(t *testing.T) {
	for name, opts := range map[string]nvmepage.Options{
		"pool": {Engine: nvmepage.Pool}, "io_uring": {Engine: nvmepage.Uring}, "depth 1": {Depth: 1},
	} {
		opts.Chunk = 1 << 20
		for _, size := range []int{5000, 64 << 10, 1 << 20, 5 << 20} {
			t.Run(fmt.Sprintf("%s, %d bytes", name, size), func(t *testing.T) { allocateNothing(t, opts, size) })
		}
	}
}

func allocateNothing(t *testing.T, opts nvmepage.Options, size int) {
	s, ctx := open(t, opts), t.Context()
	items := make([]nvmepage.Item, 5)
	for i := range items {
		items[i] = nvmepage.Item{ID: uint64(i), Data: nvmepage.Aligned(size, 4096)}
	}
	var err error
	keep := func(e error) {
		if err == nil {
			err = e
		}
	}
	step := func() {
		keep(s.SaveAll(ctx, items))
		keep(s.LoadAll(ctx, items))
		for _, it := range items {
			keep(s.Save(ctx, it.ID, it.Data))
			keep(s.Load(ctx, it.ID, it.Data))
		}
		keep(s.Drop(items[0].ID))
	}
	for range 3 {
		step()
	}
	// More goroutines wait at once than ever before now and then, and the runtime
	// allocates for each that waits: that must end.
	n := 1.0
	for i := 0; i < 5 && n != 0; i++ {
		n = testing.AllocsPerRun(10, step)
	}
	if n != 0 {
		t.Errorf("%v allocations a round, want none", n)
	}
	must(t, err)
}
