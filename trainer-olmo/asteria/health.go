package asteria

import (
	"context"
	"math"
	"time"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/invroot"
)

// BlockHealth is the state of one block's roots or bases and the evidence of its
// last refresh. Where a refresh covers several sides it tells the worst.
type BlockHealth struct {
	Block       string  `json:"block"`
	Age         int64   `json:"age"`         // steps since the statistics of the oldest result in use, -1 before the first
	Version     uint64  `json:"version"`     // results adopted, the least of all sides
	Solver      string  `json:"solver"`      // method of the last refresh
	Precision   string  `json:"precision"`   // arithmetic that it ended in
	Residual    float64 `json:"residual"`    // the solver's measure, relative
	Condition   float64 `json:"condition"`   // of the matrix inverted or rotated, after damping
	Damping     float64 `json:"damping"`     // multiple of the identity that was added, absolute
	Retries     int64   `json:"retries"`     // attempts that failed inside solvers, over the run
	ToDouble    int64   `json:"to_double"`   // refreshes that ended in float64, over the run
	Refreshes   int64   `json:"refreshes"`   // refreshes adopted, over the run
	Failed      int64   `json:"failed"`      // refreshes that failed and kept the previous result
	Consecutive int64   `json:"consecutive"` // of these, since the last success
	Discarded   int64   `json:"discarded"`   // results refused because their base had been replaced
	Staleness   int64   `json:"staleness"`   // steps that the refresh in flight has been due for, 0 when none is
	Tier        string  `json:"tier"`        // slowest tier that the state is in, "" without tiers
	Seconds     float64 `json:"seconds"`     // time of the last refresh, 0 in native mode
}

// Health returns every block's health, in the order of names.
func (r *Runtime[T]) Health() []BlockHealth {
	out := make([]BlockHealth, len(r.units))
	for i, u := range r.units {
		h := u.health
		m := u.state.Meta
		h.Age, h.Version = u.age()
		h.Refreshes, h.Failed = m.Refreshes(), m.Failed()
		h.Consecutive, h.Discarded = m.Consecutive(), m.Discarded()
		h.Seconds = time.Duration(u.cost.Load()).Seconds()
		if r.store != nil {
			h.Tier = r.store.tierOf(u.parcel)
		}
		if r.shadow != nil {
			h.Staleness, _ = r.shadow.reg.Staleness(h.Block, m.Calls())
		}
		out[i] = h
	}
	return out
}

// age returns the steps since the statistics of the oldest result in use, -1
// before the first, and the least version of all sides.
func (u *unit[T]) age() (age int64, version uint64) {
	age, version = -1, math.MaxUint64
	m := u.state.Meta
	for k := range u.block.Modes() {
		if u.block.FactorOrder(k) == 0 {
			continue
		}
		version = min(version, m.Version(k))
		if m.Version(k) > 0 {
			age = max(age, m.Calls()-m.AsOf(k))
		}
	}
	return age, version
}

// Totals are counts over all blocks.
type Totals struct {
	Blocks    int
	AgeMax    int64 // steps since the statistics of the oldest result in use, 0 before the first
	Refreshes int64 // refreshes adopted, over the run
	Failed    int64 // refreshes that failed and kept the previous result, over the run
	Retries   int64 // attempts that failed inside solvers, since the start
	Discarded int64 // results refused because their base had been replaced, over the run

	Abandoned int64 // refreshes given up while they ran, since the start

	// In the mode Asteria, since the start:
	InFlight     int64         // refreshes due and not adopted
	Backlog      int           // of these, not begun
	Adopted      int64         // refreshes adopted late
	Coalesced    int64         // refreshes not begun because one of the block was in flight, or waited for its turn
	Spared       int64         // refreshes that Async.Selective left out
	Waits        int64         // adoption points that had to wait
	Waited       time.Duration // by them; several may wait at once
	WorkersBusy  time.Duration // time that the workers spent in refreshes that ended
	AdoptedAfter int64         // most steps between a snapshot and its adoption
}

// Totals adds up what [Runtime.Health] lists block by block. It allocates
// nothing, so that it can be asked every step.
func (r *Runtime[T]) Totals() Totals {
	t := Totals{Blocks: len(r.units)}
	for _, u := range r.units {
		age, _ := u.age()
		t.AgeMax = max(t.AgeMax, age)
		t.Refreshes += u.state.Meta.Refreshes()
		t.Failed += u.state.Meta.Failed()
		t.Retries += u.health.Retries
		t.Discarded += u.state.Meta.Discarded()
	}
	if s := r.shadow; s != nil {
		s.totals(&t)
	}
	t.Abandoned += r.calls.Stats().Abandoned
	return t
}

func (s *shadow[T]) totals(t *Totals) {
	if s.pool == nil {
		return
	}
	reg, pool := s.reg.Stats(), s.pool.Stats()
	t.InFlight, t.Adopted, t.Coalesced = reg.InFlight, reg.Adopted, reg.Coalesced
	if s.turns != nil {
		t.Coalesced += s.turns.coalesced
	}
	t.Waits, t.AdoptedAfter, t.Spared = reg.Waits+s.waits, reg.MaxAge, s.spared
	t.Backlog, t.Abandoned, t.WorkersBusy = pool.Backlog, pool.Abandoned, pool.Time
	t.Waited = time.Duration(s.waited.Load())
}

// recorder is a solver that keeps the worst evidence of the calls since begin.
type recorder[T gemm.Float] struct {
	solver Solver[T]
	calls  int
	worst  invroot.Report
	cond   float64
	total  int64 // retries
	double int64
}

func (c *recorder[T]) begin() { *c = recorder[T]{solver: c.solver} }

// note folds the report of the call that just ended into the record.
func (c *recorder[T]) note(err error) error {
	rep := c.solver.Report()
	c.calls++
	c.total += int64(rep.Retries)
	if rep.Precision == invroot.Double {
		c.double++
	}
	c.cond = max(c.cond, rep.Condition)
	if c.calls == 1 {
		c.worst = rep
		return err
	}
	c.worst.Residual = max(c.worst.Residual, rep.Residual)
	c.worst.Ridge = max(c.worst.Ridge, rep.Ridge)
	c.worst.Precision = max(c.worst.Precision, rep.Precision)
	return err
}

// end writes the record into h.
func (c *recorder[T]) end(h *BlockHealth) {
	if c.calls == 0 {
		return // the snapshot was refused before any solver ran
	}
	h.Solver, h.Precision = c.worst.Method.String(), c.worst.Precision.String()
	h.Residual, h.Condition, h.Damping = c.worst.Residual, c.cond, c.worst.Ridge
	h.Retries += c.total
	h.ToDouble += c.double
}

// Root implements [kron.Refresher].
func (c *recorder[T]) Root(ctx context.Context, dst, a gemm.Matrix[T], exponent float64) error {
	return c.note(c.solver.Root(ctx, dst, a, exponent))
}

// Eigen implements [kron.Refresher].
func (c *recorder[T]) Eigen(ctx context.Context, q gemm.Matrix[T], w []T, a gemm.Matrix[T], descending bool) error {
	return c.note(c.solver.Eigen(ctx, q, w, a, descending))
}

// Iterate implements [kron.Refresher].
func (c *recorder[T]) Iterate(ctx context.Context, q, a gemm.Matrix[T], perm []int) error {
	return c.note(c.solver.Iterate(ctx, q, a, perm))
}

// Diagonalize implements [kron.Refresher].
func (c *recorder[T]) Diagonalize(ctx context.Context, q gemm.Matrix[T], w []T, a gemm.Matrix[T], maxIter int, tol float64) error {
	return c.note(c.solver.Diagonalize(ctx, q, w, a, maxIter, tol))
}
