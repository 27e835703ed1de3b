package coherreg

import (
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
)

// Errors that callers branch on.
var (
	// ErrInFlight is returned by Due when the block's previous refresh is not
	// resolved yet: the new one is coalesced into it and counted.
	ErrInFlight = errors.New("coherreg: a refresh of this block is in flight")
	// ErrUnknown is wrapped when a key was not given to New.
	ErrUnknown = errors.New("coherreg: unknown block")
	// ErrOrder is wrapped when steps of a block go backwards or an adoption is
	// scheduled outside the budget.
	ErrOrder = errors.New("coherreg: step out of order")
)

// Entry is a value in use. It is immutable.
type Entry[V any] struct {
	Value   V
	Version uint64 // 1 for the first value of a block, then growing
	AsOf    int64  // step whose state the value reflects
	Adopted int64  // step that took it into use
	Synced  int64  // step at which replicas last agreed on it; AsOf until they did
}

// Age is the number of steps since the state that the value reflects.
func (e Entry[V]) Age(step int64) int64 { return step - e.AsOf }

// Registry holds the state of a fixed set of blocks. See the package comment for
// its rules and concurrency.
type Registry[K comparable, V any] struct {
	opts  Options
	index map[K]int
	keys  []K
	slots []slot[V]

	mu     sync.Mutex // guards log and stats; never held while a slot's mu is taken
	log    []Adoption
	stats  Stats
	replay map[adoptionKey]int64 // (block, step) -> as-of step
	slab   []Entry[V]            // not used yet; see keep
}

// slabEntries is how many entries are allocated at once.
const slabEntries = 64

// slot is one block. Lock order: slot.mu, then Registry.mu.
type slot[V any] struct {
	inUse atomic.Pointer[Entry[V]]

	mu      sync.Mutex
	version uint64     // last version given out
	flight  *flight[V] // nil, or &only
	only    flight[V]
}

// New returns a registry of the given blocks, whose order is the order of every
// listing. Keys must be distinct.
func New[K comparable, V any](keys []K, opts Options) (*Registry[K, V], error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	r := &Registry[K, V]{
		opts: opts, index: make(map[K]int, len(keys)),
		keys: append([]K(nil), keys...), slots: make([]slot[V], len(keys)),
	}
	for i, k := range keys {
		if j, dup := r.index[k]; dup {
			return nil, fmt.Errorf("coherreg: block %v stands at %d and at %d", k, j, i)
		}
		r.index[k] = i
		r.slots[i].only.resolved = make(chan struct{}, 1)
	}
	return r, r.loadReplay(opts.Replay)
}

func (r *Registry[K, V]) slot(k K) (*slot[V], int, error) {
	i, ok := r.index[k]
	if !ok {
		return nil, 0, fmt.Errorf("%w: %v", ErrUnknown, k)
	}
	return &r.slots[i], i, nil
}

// Load returns the value in use. It never waits.
func (r *Registry[K, V]) Load(k K) (Entry[V], bool) {
	i, ok := r.index[k]
	if !ok {
		return Entry[V]{}, false
	}
	e := r.slots[i].inUse.Load()
	if e == nil {
		return Entry[V]{}, false
	}
	return *e, true
}

// Staleness of k at step: step minus the as-of step of the refresh in flight, 0
// when none is.
func (r *Registry[K, V]) Staleness(k K, step int64) (int64, error) {
	s, _, err := r.slot(k)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flight == nil {
		return 0, nil
	}
	return step - s.flight.asOf, nil
}

// Stale yields, in the order of New, the blocks whose staleness at step exceeds
// the soft budget.
func (r *Registry[K, V]) Stale(step int64) iter.Seq[K] {
	return func(yield func(K) bool) {
		for _, k := range r.keys {
			if n, _ := r.Staleness(k, step); n > r.opts.Budget.Soft && !yield(k) {
				return
			}
		}
	}
}

// All yields every block that has a value, in the order of New, for checkpoints.
func (r *Registry[K, V]) All() iter.Seq2[K, Entry[V]] {
	return func(yield func(K, Entry[V]) bool) {
		for _, k := range r.keys {
			if e, ok := r.Load(k); ok && !yield(k, e) {
				return
			}
		}
	}
}

// Install puts a value in use outside the adoption schedule: the first root of a
// block, computed inside the step that needs it, or the state of a checkpoint.
// The version must be larger than any that the block had; 0 means the next one.
func (r *Registry[K, V]) Install(k K, e Entry[V]) (version uint64, err error) {
	s, _, err := r.slot(k)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Version == 0 {
		e.Version = s.version + 1
	}
	if e.Version <= s.version {
		return 0, fmt.Errorf("%w: install of version %d over %d of block %v", ErrOrder, e.Version, s.version, k)
	}
	s.version = e.Version
	s.inUse.Store(&e)
	return e.Version, nil
}

// Reconcile replaces the value in use by what the replicas agreed on at step, if
// that is still the version in use; a newer one is left alone.
func (r *Registry[K, V]) Reconcile(k K, version uint64, v V, step int64) bool {
	s, _, err := r.slot(k)
	if err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.inUse.Load()
	if e == nil || e.Version != version {
		return false
	}
	next := *e
	next.Value, next.Synced = v, step
	s.inUse.Store(&next)
	return true
}

// Stats counts what happened since New. It is a copy.
type Stats struct {
	Due       int64 // refreshes announced
	Coalesced int64 // announcements while one was in flight
	Published int64 // values accepted from workers
	Failed    int64 // refreshes resolved without a value
	Dropped   int64 // late values that nobody waited for any more
	Adopted   int64 // values taken into use at an adoption point
	Waits     int64 // adoption points that had to wait
	InFlight  int64 // refreshes due and not resolved by an adoption
	MaxAge    int64 // largest age at which a value was adopted
}

// Stats returns a copy of the counters.
func (r *Registry[K, V]) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

func (r *Registry[K, V]) count(f func(*Stats)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.stats)
}
