package asteria

import (
	"context"
	"errors"
	"fmt"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/hiersync"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/trainer-olmo/parallel"
)

// Note: owners
//
// All ranks hold the same state and take the same step on it; only refreshes are
// too expensive to be done by each. Every block has one owner, which takes the
// snapshot and runs the refresh. Its result goes to all ranks before any of them
// adopts it, the owner included: the ranks agree on what has landed, then the
// owners broadcast, then every rank installs the same numbers. So a run has the
// bits of one in which every rank refreshes every block.
//
// What happens when is known on all ranks without asking: due steps, adoption steps
// and what runs inside a step are functions of counters that are part of the state.
// Only how a refresh went has to be told, and with Ready adoption when it ended.
// Where nothing of that is at stake a step sends nothing.

// Roots says how ranks come to the same roots.
type Roots uint8

const (
	// OwnerRoots are computed by the block's owner and broadcast.
	OwnerRoots Roots = iota
	// AverageRoots are the mean of those that every rank computes: inverse roots
	// only, since a mean of bases is none.
	AverageRoots
)

var rootsNames = [...]string{"owner", "average"}

// String returns the word used in configuration files.
func (r Roots) String() string {
	if int(r) < len(rootsNames) {
		return rootsNames[r]
	}
	return fmt.Sprintf("roots(%d)", uint8(r))
}

// Peers are the ranks that train the same parameters with the same gradients. All
// of them make a runtime with the same options, and call Step, Settle and Restored
// together.
type Peers struct {
	// Comm joins them; the caller closes it. Its deadline bounds every wait.
	Comm *hiersync.Comm
	// Ranks is their number for a plan without a Comm.
	Ranks int
	// Roots says whose results are adopted.
	Roots Roots
}

// size is the number of ranks; a nil receiver is one rank alone.
func (p *Peers) size() int {
	switch {
	case p == nil:
		return 1
	case p.Comm != nil:
		return p.Comm.Size()
	}
	return max(1, p.Ranks)
}

// rank is this one's number; a plan is that of rank 0, which owns the block with the
// largest refresh.
func (p *Peers) rank() int {
	if p == nil || p.Comm == nil {
		return 0
	}
	return p.Comm.Rank()
}

// refreshes reports whether this rank refreshes the blocks of an owner.
func (p *Peers) refreshes(owner int) bool {
	return p == nil || p.Roots == AverageRoots || p.rank() == owner
}

// validate reports every fault, given the other options.
func (p *Peers) validate(o Options) error {
	if p == nil {
		return nil
	}
	var errs []error
	if int(p.Roots) >= len(rootsNames) {
		errs = append(errs, fmt.Errorf("asteria: unknown roots %d", p.Roots))
	}
	if p.Roots == AverageRoots && o.Method != kron.Shampoo {
		errs = append(errs, fmt.Errorf("asteria: average roots with %v, whose refreshes are bases, of which a mean is none; want shampoo, or owner roots", o.Method))
	}
	if o.Tiers != nil && p.size() > 1 {
		errs = append(errs, fmt.Errorf("asteria: tiers with %d peers: %w", p.size(), errors.ErrUnsupported))
	}
	return errors.Join(errs...)
}

// perBlock reports whether every block has the memory of its own refresh.
func (o Options) perBlock() bool { return o.Mode == Asteria || o.Peers.size() > 1 }

// owners returns the owner of each block: a pure function of the blocks' names and
// shapes and of the number of ranks.
func owners[T gemm.Float](sites []site[T], ranks int) []int {
	units := make([]parallel.Unit, len(sites))
	for i, s := range sites {
		units[i] = parallel.Unit{Name: s.block.Name(), Cost: s.block.RefreshCost()}
	}
	return parallel.Owners(units, ranks)
}

// Owners returns the rank that refreshes each block, in the order of Health.
func (r *Runtime[T]) Owners() []int {
	out := make([]int, len(r.units))
	for i, u := range r.units {
		out[i] = u.owner
	}
	return out
}

// windowSize is how many exchanges of arrays are under way at once.
const windowSize = 32

// window starts exchanges in order and keeps a bounded number of them under way.
type window struct {
	handles [windowSize]hiersync.Handle
	n       int
	err     error // the first
}

// start begins the next exchange, unless one has failed.
func (w *window) start(f func(*hiersync.Handle) error) {
	h := &w.handles[w.n%windowSize]
	w.n++
	w.note(h.Wait(context.Background()))
	if w.err == nil {
		w.note(f(h))
	}
}

// drain waits for everything that is under way: the buffers are the caller's again.
func (w *window) drain() error {
	for i := range w.handles {
		w.note(w.handles[i].Wait(context.Background()))
	}
	err := w.err
	w.err = nil
	return err
}

func (w *window) note(err error) {
	if w.err == nil {
		w.err = err
	}
}
