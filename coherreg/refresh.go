package coherreg

import (
	"context"
	"fmt"
)

// Due announces a refresh of k whose snapshot was taken at step asOf. In Scheduled
// mode it is adopted at exactly step adoptAt, which must lie in
// [asOf, asOf+hard budget]; other modes ignore adoptAt.
//
// It returns ErrInFlight, and counts the announcement as coalesced, when the
// block's previous refresh is not resolved: the caller must not start a job.
func (r *Registry[K, V]) Due(k K, asOf, adoptAt int64) error {
	s, _, err := r.slot(k)
	if err != nil {
		return err
	}
	if r.opts.Mode == Scheduled && (adoptAt < asOf || adoptAt-asOf > r.opts.Budget.Hard) {
		return fmt.Errorf("%w: block %v due at %d cannot be adopted at %d: want %d to %d",
			ErrOrder, k, asOf, adoptAt, asOf, asOf+r.opts.Budget.Hard)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flight != nil {
		r.count(func(t *Stats) { t.Coalesced++ })
		return ErrInFlight
	}
	s.flight = s.begin(asOf, adoptAt)
	r.count(func(t *Stats) { t.Due++; t.InFlight++ })
	return nil
}

// Publish hands in the value of the refresh that was due at asOf and gives it a
// version. ok is false, and the value is dropped and counted, when that refresh
// is not in flight any more or was already resolved.
func (r *Registry[K, V]) Publish(k K, asOf int64, v V) (version uint64, ok bool) {
	return r.resolve(k, asOf, func(s *slot[V], f *flight[V]) {
		s.version++
		f.value, f.version = v, s.version
		r.count(func(t *Stats) { t.Published++ })
	})
}

// Fail resolves the refresh that was due at asOf as "no change": the value in use
// stays, its age grows, staleness does not. ok is as in Publish.
func (r *Registry[K, V]) Fail(k K, asOf int64, cause error) (ok bool) {
	if cause == nil {
		cause = fmt.Errorf("coherreg: refresh of block %v failed without a cause", k)
	}
	_, ok = r.resolve(k, asOf, func(_ *slot[V], f *flight[V]) {
		f.err = cause
		r.count(func(t *Stats) { t.Failed++ })
	})
	return ok
}

func (r *Registry[K, V]) resolve(k K, asOf int64, set func(*slot[V], *flight[V])) (uint64, bool) {
	s, i, err := r.slot(k)
	if err != nil {
		return 0, false
	}
	s.mu.Lock()
	f := s.flight
	if f == nil || f.asOf != asOf || f.done {
		s.mu.Unlock()
		r.count(func(t *Stats) { t.Dropped++ })
		if r.opts.Observer.Drop != nil {
			r.opts.Observer.Drop(i, asOf)
		}
		return 0, false
	}
	set(s, f)
	version := f.version
	f.finish()
	s.mu.Unlock()
	return version, true
}

// Adopt is the adoption point of k at step. It takes the refresh that this step
// must adopt into use, waiting for it if it is late, and reports whether the
// value in use changed. A failed refresh is resolved without a change, and its
// cause is returned with changed false.
//
// When ctx ends first, Adopt returns its cause wrapped with the block and the
// step; the refresh stays in flight, so a later Adopt can still resolve it.
func (r *Registry[K, V]) Adopt(ctx context.Context, k K, step int64) (e Entry[V], changed bool, err error) {
	s, i, err := r.slot(k)
	if err != nil {
		return e, false, err
	}
	s.mu.Lock()
	f := s.flight
	wants := f != nil && r.wants(i, f, step)
	s.mu.Unlock()
	if !wants {
		e, _ = r.Load(k)
		return e, false, nil
	}
	if err := r.await(ctx, s, f, i, step); err != nil {
		return e, false, fmt.Errorf("coherreg: block %v at step %d, due at %d: %w", k, step, f.asOf, err)
	}
	return r.land(s, f, i, step)
}

// wants decides whether this adoption point resolves f, before any waiting; under
// the slot's mu.
func (r *Registry[K, V]) wants(i int, f *flight[V], step int64) bool {
	switch r.opts.Mode {
	case Scheduled:
		return step >= f.adoptAt
	case Replay:
		asOf, ok := r.replay[adoptionKey{i, step}]
		return ok && asOf == f.asOf
	}
	// Ready: leaving this point with staleness equal to the budget would exceed
	// it at the next step, so the point waits from there on.
	return f.done || step-f.asOf >= r.opts.Budget.Hard
}

// await is the bounded barrier.
func (r *Registry[K, V]) await(ctx context.Context, s *slot[V], f *flight[V], i int, step int64) error {
	if s.resolved(f) {
		return nil
	}
	r.count(func(t *Stats) { t.Waits++ })
	if w := r.opts.Observer.Wait; w != nil {
		w(i, step, false)
		defer w(i, step, true)
	}
	return s.wait(ctx, f)
}

// land ends the flight: the value goes into use, unless the refresh failed or a
// newer value was installed meanwhile.
func (r *Registry[K, V]) land(s *slot[V], f *flight[V], i int, step int64) (e Entry[V], changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flight = nil
	if now := s.inUse.Load(); now != nil {
		e = *now
	}
	changed = f.err == nil && f.version > e.Version
	if changed {
		e = Entry[V]{Value: f.value, Version: f.version, AsOf: f.asOf, Adopted: step, Synced: f.asOf}
		s.inUse.Store(r.keep(e))
	}
	err = f.err
	r.record(err, changed, Adoption{Block: i, Step: step, AsOf: f.asOf, Version: f.version})
	f.forget()
	return e, changed, err
}

// keep returns e at an address of its own. Entries are allocated in slabs, so that
// an adoption hardly ever allocates; a slab lives as long as any entry of it is in
// use.
func (r *Registry[K, V]) keep(e Entry[V]) *Entry[V] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.slab) == 0 {
		r.slab = make([]Entry[V], slabEntries)
	}
	p := &r.slab[0]
	r.slab = r.slab[1:]
	*p = e
	return p
}

func (r *Registry[K, V]) record(failed error, changed bool, a Adoption) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, a)
	r.stats.InFlight--
	switch {
	case changed:
		r.stats.Adopted++
		r.stats.MaxAge = max(r.stats.MaxAge, a.Step-a.AsOf)
	case failed == nil:
		r.stats.Dropped++
	}
}

// Drain waits until every refresh in flight is resolved by its worker, without
// adopting any: what a checkpoint needs, which stores pending results.
func (r *Registry[K, V]) Drain(ctx context.Context) error {
	for i := range r.slots {
		s := &r.slots[i]
		s.mu.Lock()
		f, asOf := s.flight, int64(0)
		if f != nil {
			asOf = f.asOf
		}
		s.mu.Unlock()
		if f == nil {
			continue
		}
		if err := s.wait(ctx, f); err != nil {
			return fmt.Errorf("coherreg: drain: block %v, due at %d: %w", r.keys[i], asOf, err)
		}
	}
	return nil
}

// Pending is a refresh in flight, for checkpoints and reports.
type Pending[V any] struct {
	AsOf, AdoptAt int64
	Resolved      bool
	Value         V // when Resolved and Err is nil
	Version       uint64
	Err           error // when the refresh failed
}

// Pending returns the refresh of k in flight, if there is one.
func (r *Registry[K, V]) Pending(k K) (p Pending[V], ok bool) {
	s, _, err := r.slot(k)
	if err != nil {
		return p, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flight
	if f == nil {
		return p, false
	}
	return Pending[V]{f.asOf, f.adoptAt, f.done, f.value, f.version, f.err}, true
}
