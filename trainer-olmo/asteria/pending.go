package asteria

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/asteria-runtime/asteria/coherreg"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// pendingMeta is a block's schedule in a checkpoint: the order of the entries is
// part of its format.
type pendingMeta [16]int64

const (
	pendState   = iota // one of the states below
	pendAsOf           // step of the snapshot, and the result's as-of call
	pendAdoptAt        // step at which it is adopted, with scheduled adoption
	pendBase           // three: version of the basis that it is relative to
	pendMoves   = 6    // bit per side: the permutation is meaningful
	pendFresh   = 7    // bit per side: the eigenvalues are meaningful
	pendErr     = 8    // bit per side: that side failed
	pendVersion = 9    // of the value in use, as the registry counts
	pendInUse   = 10   // step of its snapshot
	pendAdopted = 11   // step of its adoption
	pendWaits   = 12   // 1: a refresh was due and waits for its turn, with ready adoption
)

const (
	stateNone   = iota // no refresh is in flight
	stateResult        // one has ended and waits for its adoption
	stateFailed        // one has failed as a whole and waits to be counted
)

// errBefore stands for the cause of a failure that a checkpoint kept only as a
// fact.
var errBefore = errors.New("asteria: the refresh failed before the checkpoint")

// PendingSections lists the schedule of the refreshes and the results that wait
// for their adoption, in place; it is empty in native mode. It has the same shape
// at every step. Before it is read [Runtime.Settle] must have returned; after it
// has been written, [Runtime.Restored] takes it over.
func (r *Runtime[T]) PendingSections() []param.Section {
	if r.opts.Mode == Native {
		return nil
	}
	var out []param.Section
	for _, u := range r.units {
		r.shadow.describe(u)
		name := "pending/" + u.block.Name() + "/"
		out = append(out, param.Section{Name: name + "meta", I64: u.saved[:]})
		res := &u.task.job.Result
		for k := range u.block.Modes() {
			if r.store != nil {
				out = r.resultSections(u, name, k, out)
			}
			for _, part := range []struct {
				name string
				x    []T
			}{{"root", res.Root[k]}, {"rotation", res.Rotation[k]}, {"values", res.Values[k]}} {
				if part.x != nil && r.store == nil {
					out = append(out, section(fmt.Sprintf("%s%s.%d", name, part.name, k), part.x))
				}
			}
			if p := u.perm[k]; len(p) > 0 {
				out = append(out, param.Section{Name: fmt.Sprintf("%sperm.%d", name, k), I64: p})
			}
		}
	}
	return out
}

// describe writes u's schedule where PendingSections shows it.
func (s *shadow[T]) describe(u *unit[T]) {
	m, name := &u.saved, u.block.Name()
	*m = pendingMeta{}
	if u.waits {
		m[pendWaits] = 1
	}
	if e, ok := s.reg.Load(name); ok {
		m[pendVersion], m[pendInUse], m[pendAdopted] = int64(e.Version), e.AsOf, e.Adopted
	}
	p, flying := s.reg.Pending(name)
	if !flying || !p.Resolved {
		return
	}
	m[pendState], m[pendAsOf], m[pendAdoptAt] = stateResult, p.AsOf, p.AdoptAt
	if p.Err != nil {
		m[pendState] = stateFailed
		return // the result's memory may be another's
	}
	res := &u.task.job.Result
	for k := range kron.MaxOrder {
		m[pendBase+k] = int64(res.Base[k])
		m[pendMoves] |= bit(res.Moves[k], k)
		m[pendFresh] |= bit(res.Fresh[k], k)
		m[pendErr] |= bit(res.Err[k] != nil, k)
	}
	for k, p := range u.perm {
		for i, v := range res.Perm[k] {
			p[i] = int64(v)
		}
	}
}

func bit(set bool, k int) int64 {
	if set {
		return 1 << k
	}
	return 0
}

// Restored takes over what was written through [Runtime.Sections] and
// [Runtime.PendingSections]. It refuses what no run can have written, and names
// the block.
func (r *Runtime[T]) Restored() error {
	errs := []error{r.Check()}
	if r.shadow != nil && r.opts.Mode == Asteria {
		for _, u := range r.units {
			if err := r.shadow.restore(u); err != nil {
				errs = append(errs, fmt.Errorf("asteria: block %s: pending refresh: %w", u.block.Name(), err))
			}
		}
	}
	r.reserve()
	return errors.Join(errs...)
}

// reserve takes the memory that a new run's first factors always ask for, and those
// of a resumed one only sometimes: what a run has is what its plan says.
func (r *Runtime[T]) reserve() {
	if r.opts.Backend != nil || !usesDouble(int64(unsafe.Sizeof(T(0))), r.opts) {
		return
	}
	for _, w := range append(slices.Clone(r.workers), r.wide) {
		if w != nil {
			w.solver.Reserve()
		}
	}
}

// restore puts u's schedule back into the registry.
func (s *shadow[T]) restore(u *unit[T]) error {
	m, name := &u.saved, u.block.Name()
	u.waits = s.turns != nil && m[pendWaits] == 1
	if v := m[pendVersion]; v > 0 {
		e := coherreg.Entry[struct{}]{Version: uint64(v), AsOf: m[pendInUse], Adopted: m[pendAdopted], Synced: m[pendInUse]}
		if _, err := s.reg.Install(name, e); err != nil {
			return err
		}
	}
	if m[pendState] == stateNone {
		return nil
	}
	if m[pendState] > stateFailed || m[pendState] < 0 {
		return fmt.Errorf("state %d, want 0..%d", m[pendState], stateFailed)
	}
	if now := u.state.Meta.Calls(); m[pendAsOf] < 1 || m[pendAsOf] > now {
		return fmt.Errorf("snapshot of step %d after %d steps", m[pendAsOf], now)
	}
	if err := s.restoreResult(u); err != nil {
		return err
	}
	if err := s.reg.Due(name, m[pendAsOf], s.adoptAt(m)); err != nil {
		return err
	}
	u.shared = true // the ranks restore the same
	if m[pendState] == stateFailed {
		s.reg.Fail(name, m[pendAsOf], errBefore)
		return nil
	}
	s.reg.Publish(name, m[pendAsOf], struct{}{})
	return nil
}

// resultWaits reports whether a good result of u waits for its adoption.
func (r *Runtime[T]) resultWaits(u *unit[T]) bool {
	if r.shadow == nil {
		return false
	}
	p, flying := r.shadow.reg.Pending(u.block.Name())
	return flying && p.Resolved && p.Err == nil
}

// adoptAt is the step of the adoption as it was planned, or as this run's budget
// allows if that has become smaller.
func (s *shadow[T]) adoptAt(m *pendingMeta) int64 {
	return max(m[pendAsOf], min(m[pendAdoptAt], m[pendAsOf]+s.opts.staleness()))
}

// restoreResult fills the block's result beside the numbers, which the sections
// hold in place.
func (s *shadow[T]) restoreResult(u *unit[T]) error {
	m, res := &u.saved, &u.task.job.Result
	u.task.asOf, res.AsOf = m[pendAsOf], m[pendAsOf]
	if t := u.task.tiers; t != nil && m[pendState] == stateResult {
		t.parcel.due.Store(t.store.turn.Load() + s.adoptAt(m) - u.state.Meta.Calls() - 1)
		t.store.announce(t.result, t.store.tick(t.parcel.due.Load(), t.parcel.place))
	}
	for k := range kron.MaxOrder {
		res.Base[k] = uint64(m[pendBase+k])
		res.Moves[k], res.Fresh[k] = m[pendMoves]>>k&1 == 1, m[pendFresh]>>k&1 == 1
		res.Err[k] = nil
		if m[pendErr]>>k&1 == 1 {
			res.Err[k] = errBefore
		}
	}
	for k, p := range u.perm {
		if res.Moves[k] && !permutation(p) {
			return fmt.Errorf("side %d: not a permutation", k)
		}
		for i, v := range p {
			res.Perm[k][i] = int(v)
		}
	}
	return nil
}

// permutation reports whether p holds each of 0..len(p)-1 once.
func permutation(p []int64) bool {
	seen := make([]bool, len(p))
	for _, v := range p {
		if v < 0 || v >= int64(len(p)) || seen[v] {
			return false
		}
		seen[v] = true
	}
	return true
}
