package asteria

import (
	"sync/atomic"

	"github.com/asteria-runtime/asteria/gemm"
)

// Note: turns
//
// With ready adoption a refresh that is due does not begin at once: it waits for its
// turn, and the snapshot is taken then. Blocks take turns in the order in which they
// began their last refresh, and a block that is due again while it waits, or while
// its last refresh is in flight, is counted and has one turn. What is in flight stays
// below two bounds.
//
// The first is Async.ReadyShare. A refresh costs the step that adopts it two or three
// products and a snapshot, about as much as it saves if every block does so in every
// step; so at most this part of that cost falls on one step, the same on each.
//
// The second is the window: so many refreshes as the workers end before the next
// step. It grows by one while all that it lets begin are adopted one step later, and
// halves when one is adopted later than that, down to one for each worker. So no
// snapshot grows old in a queue: a slow refresh is adopted after the time that it
// takes, and the next step, not after that of all blocks.
//
// Both depend on steps, blocks and the adoptions so far, so all ranks begin the same;
// a replay begins what the log names.

// turns decides which refreshes begin. One goroutine at a time, landed excepted. The
// nil value lets all that are due begin.
type turns[T gemm.Float] struct {
	order  []*unit[T] // who began a refresh the longest ago comes first
	share  float64    // of cost, in flight at most
	least  int        // of window
	window int        // refreshes in flight at most
	full   bool       // it kept one from beginning in this step

	fresh, late atomic.Int64 // adopted since, one step after their snapshots and later
	coalesced   int64        // due while the block waited or was in flight
}

func newTurns[T gemm.Float](units []*unit[T], share float64, least int) *turns[T] {
	t := &turns[T]{order: append([]*unit[T](nil), units...), least: least, window: least}
	for _, u := range units {
		t.share += share * u.block.AdoptionCost()
	}
	return t
}

// landed takes note of a refresh that is adopted so many steps after its snapshot, or
// has failed. It may be called from any goroutine.
func (t *turns[T]) landed(after int64) {
	switch {
	case t == nil:
	case after > 1:
		t.late.Add(1)
	default:
		t.fresh.Add(1)
	}
}

// take decides for every block's point whether a refresh begins there; flying tells
// which blocks' last ones will still be in flight then. Refreshes inside the step are
// not its business.
func (t *turns[T]) take(flying func(*unit[T]) bool) {
	if t == nil {
		return
	}
	t.adapt()
	t.sort()
	n, cost := 0, 0.0
	for _, u := range t.order {
		if flying(u) {
			n++
			cost += u.block.AdoptionCost()
		}
	}
	open := true
	for _, u := range t.order {
		p := &u.point
		if p.inside {
			u.waits = false
			continue
		}
		if p.due && (u.waits || flying(u)) {
			t.coalesced++
		}
		u.waits, p.due = u.waits || p.due, false
		if !u.waits || flying(u) {
			continue
		}
		c := u.block.AdoptionCost()
		t.full = t.full || open && n >= t.window
		open = open && n < t.window && (n == 0 || cost+c <= t.share)
		if open {
			u.waits, p.due = false, true
			n++
			cost += c
		}
	}
}

// adapt sets the window by what was adopted since the last step.
func (t *turns[T]) adapt() {
	fresh, late := t.fresh.Swap(0), t.late.Swap(0)
	switch {
	case late > 0:
		t.window = max(t.least, t.window/2)
	case fresh > 0 && t.full:
		t.window++
	}
	t.full = false
}

// sort keeps the order; equal ones stay as they are. It is nearly sorted, and nothing
// may be allocated.
func (t *turns[T]) sort() {
	for i := range t.order {
		for j := i; j > 0 && t.order[j].task.asOf < t.order[j-1].task.asOf; j-- {
			t.order[j], t.order[j-1] = t.order[j-1], t.order[j]
		}
	}
}
