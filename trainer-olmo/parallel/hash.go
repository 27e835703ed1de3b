package parallel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/hiersync"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// ErrDiverged is wrapped by a [DivergedError].
var ErrDiverged = errors.New("parallel: the ranks hold different parameters")

// DivergedError names the first block in which ranks differ.
type DivergedError struct {
	Step  int64
	Block string // name of the parameter
	Ranks []int  // those that differ from the majority; from rank 0 when there is none
}

// Error names block, step and ranks.
func (e *DivergedError) Error() string {
	return fmt.Sprintf("%v: first in %s, after step %d, ranks %v", ErrDiverged, e.Block, e.Step, e.Ranks)
}

// Unwrap returns ErrDiverged.
func (e *DivergedError) Unwrap() error { return ErrDiverged }

// Hash is a hash of the bits of x (FNV-1a over words): equal bits, equal hash, on
// every rank.
func Hash[T gemm.Float](x []T) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	switch x := any(x).(type) {
	case []float32:
		for _, v := range x {
			h = (h ^ uint64(math.Float32bits(v))) * prime
		}
	case []float64:
		for _, v := range x {
			h = (h ^ math.Float64bits(v)) * prime
		}
	}
	return h
}

// Compare hashes all parameters and compares the hashes of all ranks. Every rank
// calls it, and every rank gets the same *DivergedError when they differ.
func Compare[T gemm.Float](ctx context.Context, c *hiersync.Comm, params []param.Param[T], step int64) error {
	n := len(params)
	all := make([]uint64, n*c.Size())
	for i, p := range params {
		all[c.Rank()*n+i] = Hash(p.Value)
	}
	if err := hiersync.Allgather(ctx, c, all, slices.Repeat([]int{n}, c.Size())); err != nil {
		return err
	}
	for i, p := range params {
		hashes := make([]uint64, c.Size())
		for r := range hashes {
			hashes[r] = all[r*n+i]
		}
		if odd := minority(hashes); len(odd) > 0 {
			return &DivergedError{Step: step, Block: p.Name, Ranks: odd}
		}
	}
	return nil
}

// minority lists the ranks whose hash is not the most frequent one; of equally
// frequent ones that of the lowest rank counts as right.
func minority(hashes []uint64) []int {
	count := map[uint64]int{}
	for _, h := range hashes {
		count[h]++
	}
	right := hashes[0]
	for _, h := range hashes {
		if count[h] > count[right] {
			right = h
		}
	}
	var odd []int
	for r, h := range hashes {
		if h != right {
			odd = append(odd, r)
		}
	}
	return odd
}
