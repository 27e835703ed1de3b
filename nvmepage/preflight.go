package nvmepage

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// Bandwidth is what a path can do, in bytes per second.
type Bandwidth struct {
	Write, Read float64
	Direct      bool // measured past the page cache
	Engine      string
}

// passes is how often a preflight measures each way. The best pass counts: a first
// write to a place is the file system's work as well, and what else runs while a
// process starts is not the drive's.
const passes = 3

// Preflight measures a path with objects of 4 MiB, bytes in all in each of a few
// passes, and depth requests in flight. It leaves nothing behind.
func Preflight(ctx context.Context, path string, bytes int64, depth int) (b Bandwidth, err error) {
	const object = 4 << 20
	s, err := Open(Options{Paths: []string{path}, Depth: max(depth, 1), Chunk: object, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return b, err
	}
	defer func() {
		if cerr := s.Close(); err == nil {
			err = cerr
		}
	}()
	st := s.Stats()
	b.Direct, b.Engine = st.Direct, st.Engine
	items := make([]Item, max(depth, 1))
	rounds := max(1, bytes/object/int64(len(items)))
	for i := range items {
		items[i].Data = Aligned(object, s.align)
		items[i].Data[i] = 1 // not all zero: drives may treat zeros specially
	}
	if b.Write, err = rate(ctx, items, rounds, s.SaveAll); err != nil {
		return b, fmt.Errorf("nvmepage: preflight: %w", err)
	}
	if b.Read, err = rate(ctx, items, rounds, s.LoadAll); err != nil {
		return b, fmt.Errorf("nvmepage: preflight: %w", err)
	}
	return b, nil
}

// rate is the best of all passes in bytes per second.
func rate(ctx context.Context, items []Item, rounds int64, f func(context.Context, []Item) error) (best float64, err error) {
	for range passes {
		start := time.Now()
		var moved int64
		for r := range rounds {
			for i := range items {
				items[i].ID = uint64(r)*uint64(len(items)) + uint64(i)
				moved += int64(len(items[i].Data))
			}
			if err := f(ctx, items); err != nil {
				return 0, err
			}
		}
		best = max(best, float64(moved)/time.Since(start).Seconds())
	}
	return best, nil
}
