package tierctltest

import (
	"bytes"
	"context"
	"math/rand/v2"
	"sync"
	"testing"
)

// Backing is what the suite needs; it equals tierctl.Backing.
type Backing interface {
	Save(ctx context.Context, id uint64, src []byte) error
	Load(ctx context.Context, id uint64, dst []byte) error
	Drop(id uint64) error
}

// Run checks a backing against what a controller relies on. newBacking is called
// once per subtest and returns an empty backing with room for a few MiB.
func Run(t *testing.T, newBacking func(t *testing.T) Backing) {
	t.Run("what was saved is loaded", func(t *testing.T) { roundTrip(t, newBacking(t)) })
	t.Run("a second save replaces the first", func(t *testing.T) { replace(t, newBacking(t)) })
	t.Run("what was dropped is gone", func(t *testing.T) { dropped(t, newBacking(t)) })
	t.Run("the saved bytes are those at the time of the call", func(t *testing.T) { copied(t, newBacking(t)) })
	t.Run("objects do not disturb each other", func(t *testing.T) { together(t, newBacking(t)) })
}

func fill(seed uint64, n int) []byte {
	g := rand.New(rand.NewPCG(seed, uint64(n)))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	return b
}

func load(t *testing.T, b Backing, id uint64, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	if err := b.Load(t.Context(), id, got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("object %d of %d bytes came back changed", id, len(want))
	}
}

func save(t *testing.T, b Backing, id uint64, data []byte) {
	t.Helper()
	if err := b.Save(t.Context(), id, data); err != nil {
		t.Fatal(err)
	}
}

func roundTrip(t *testing.T, b Backing) {
	for i, n := range []int{1, 511, 512, 513, 4095, 4096, 4097, 1<<20 + 1} {
		save(t, b, uint64(i), fill(uint64(i), n))
		load(t, b, uint64(i), fill(uint64(i), n))
	}
}

func replace(t *testing.T, b Backing) {
	save(t, b, 7, fill(1, 5000))
	save(t, b, 7, fill(2, 5000))
	load(t, b, 7, fill(2, 5000))
}

func dropped(t *testing.T, b Backing) {
	save(t, b, 7, fill(1, 100))
	if err := b.Drop(7); err != nil {
		t.Fatal(err)
	}
	if err := b.Load(t.Context(), 7, make([]byte, 100)); err == nil {
		t.Fatal("a dropped object was loaded")
	}
}

func copied(t *testing.T, b Backing) {
	data := fill(3, 9000)
	save(t, b, 1, data)
	clear(data)
	load(t, b, 1, fill(3, 9000))
}

func together(t *testing.T, b Backing) {
	var wg sync.WaitGroup
	for id := range uint64(8) {
		wg.Go(func() {
			for round := range uint64(5) {
				data := fill(id<<8|round, 3000+int(id))
				if err := b.Save(t.Context(), id, data); err != nil {
					t.Error(err)
					return
				}
				got := make([]byte, len(data))
				if err := b.Load(t.Context(), id, got); err != nil || !bytes.Equal(got, data) {
					t.Errorf("object %d, round %d: changed, or %v", id, round, err)
				}
			}
		})
	}
	wg.Wait()
}
