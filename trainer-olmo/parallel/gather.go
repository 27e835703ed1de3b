package parallel

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/asteria-runtime/asteria/hiersync"
)

// GatherJSON gives every rank the values of all, in the order of ranks, as JSON
// carries them. All ranks call it together.
func GatherJSON[V any](ctx context.Context, c *hiersync.Comm, own V) ([]V, error) {
	raw, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	sizes := make([]int64, c.Size())
	sizes[c.Rank()] = int64(len(raw))
	if err := hiersync.Allgather(ctx, c, sizes, slices.Repeat([]int{1}, c.Size())); err != nil {
		return nil, err
	}
	counts, at, total := make([]int, len(sizes)), make([]int, len(sizes)), 0
	for rank, n := range sizes {
		counts[rank], at[rank] = int(n), total
		total += int(n)
	}
	buf := make([]byte, total)
	copy(buf[at[c.Rank()]:], raw)
	if err := hiersync.Allgather(ctx, c, buf, counts); err != nil {
		return nil, err
	}
	values := make([]V, len(sizes))
	for rank := range values {
		if err := json.Unmarshal(buf[at[rank]:][:counts[rank]], &values[rank]); err != nil {
			return nil, fmt.Errorf("parallel: what rank %d sent: %w", rank, err)
		}
	}
	return values, nil
}
