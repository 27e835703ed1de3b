package hiersynctest

import (
	"context"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/asteria-runtime/asteria/hiersync"
)

// Check is one property. Run is called on all ranks of a world at the same time
// and leaves it working.
type Check struct {
	Name string
	Run  func(ctx context.Context, c *hiersync.Comm) error
}

// Checks lists the properties that every engine must have.
func Checks() []Check {
	return []Check{
		{"sums have the stated order, whatever the size", sums},
		{"averages divide the sum", averages},
		{"integers are reduced exactly", integers},
		{"broadcasts reach all from any root", broadcasts},
		{"a root may overwrite its buffer at once", overwrites},
		{"allgather takes uneven and empty parts", allgathers},
		{"ranks without contribution get the sum of the others", absent},
		{"all ranks agree", agrees},
		{"no rank leaves a barrier before the last has come", barriers},
		{"many operations may be under way", overlaps},
		{"the same data give the same bits again", repeats},
		{"bytes between nodes are counted and few", counts},
		{"misuse is refused without communication", misuse},
	}
}

// Run runs all checks on worlds that open makes; ranks that share a node have
// equal numbers in nodes. open must return the ends of all ranks.
func Run(t *testing.T, open func(t *testing.T, nodes []int) []*hiersync.Comm) {
	for _, nodes := range Worlds() {
		t.Run(fmt.Sprintf("nodes %v", nodes), func(t *testing.T) {
			comms := open(t, nodes)
			for _, check := range Checks() {
				t.Run(check.Name, func(t *testing.T) { Together(t, comms, check.Run) })
			}
			Together(t, comms, func(_ context.Context, c *hiersync.Comm) error { return c.Close() })
		})
	}
}

// Worlds lists layouts worth testing: one rank, one node, one rank a node, equal
// and uneven nodes, ranks that alternate between nodes.
func Worlds() [][]int {
	return [][]int{
		{0}, {0, 0}, {0, 1}, {0, 0, 0}, {0, 1, 2, 3}, {0, 0, 1, 1}, {0, 1, 0, 1},
		{0, 0, 0, 0}, {0, 1, 2, 3, 4, 5, 6}, {0, 0, 0, 1, 2, 2, 1}, {0, 1, 1, 1, 1, 2, 0, 0, 3},
	}
}

// Together calls f for all ranks at once and reports their errors.
func Together(t *testing.T, comms []*hiersync.Comm, f func(ctx context.Context, c *hiersync.Comm) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	errs := make([]error, len(comms))
	var wg sync.WaitGroup
	for i, c := range comms {
		wg.Go(func() { errs[i] = f(ctx, c) })
	}
	wg.Wait()
	for rank, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// sizes are lengths around the edges of slices, small sums and segments.
func sizes() []int { return []int{0, 1, 2, 3, 5, 8, 17, 72, 1023, 1024, 1025, 4099, 20011} }

// Values are the elements that a rank contributes to the test numbered salt: of
// both signs and over many magnitudes, so that the order of a sum shows.
func Values[T hiersync.Float](salt, rank, n int) []T {
	g := rand.New(rand.NewPCG(uint64(salt), uint64(rank)))
	x := make([]T, n)
	for i := range x {
		x[i] = T(g.NormFloat64()) * T(int64(1)<<g.IntN(20))
	}
	return x
}

// Fold is the sum in the order that the topology states, by the definition.
func Fold[T hiersync.Float](t hiersync.Topology, salt, n int) []T {
	return foldOf(t, func(rank int) []T { return Values[T](salt, rank, n) })
}

// foldOf is Fold of any values.
func foldOf[T hiersync.Float](t hiersync.Topology, of func(rank int) []T) []T {
	var nodes [][]T
	for _, ranks := range t.Nodes {
		var values [][]T
		for _, r := range ranks {
			values = append(values, of(r))
		}
		nodes = append(nodes, tree(values))
	}
	return tree(nodes)
}

// tree adds the two halves of a list, of which the first one is the largest power of
// two that leaves something for the second.
func tree[T hiersync.Float](values [][]T) []T {
	n := len(values)
	if n == 1 {
		return values[0]
	}
	half := 1 << (bits.Len(uint(n-1)) - 1)
	sum, right := tree(values[:half]), tree(values[half:])
	for j, x := range right {
		sum[j] += x
	}
	return sum
}

// same compares to the bit (no value of the tests is NaN).
func same[T hiersync.Element](what string, got, want []T) error {
	if slices.Equal(got, want) {
		return nil
	}
	for i := range want {
		if i < len(got) && got[i] != want[i] {
			return fmt.Errorf("%s of %d: element %d is %v, want %v", what, len(want), i, got[i], want[i])
		}
	}
	return fmt.Errorf("%s: %d elements, want %d", what, len(got), len(want))
}
