package asteria

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// Note: saving while training
//
// A save holds the state of one step, although it streams parcel by parcel while
// later steps go on. From Freeze until the save has passed a parcel, nobody may
// change it in place: a step that is about to copies it first, into objects that
// the tiers place like any other, so that RAM stays within its budgets and what
// does not fit lies on NVMe. Where no tier has room for the copies, the step waits
// until the save has passed. It holds no lease meanwhile, so the save gets on.
//
// A result that waits for its adoption needs no copy: nobody writes it again. The
// step that adopts it leaves the object to the save and takes a new one.

// errPassed says that a frozen section was read out of order.
var errPassed = errors.New("asteria: the section was saved already")

// frozen is how a parcel stands towards the save that runs; under freezer.mu.
type frozen struct {
	pending bool      // to be saved as it was at Freeze
	reading int       // leases of the save on the original
	copying bool      // a step is making the copy
	copies  [2]uint64 // objects that hold what is to be saved; 0 for none
	copied  bool

	result  uint64 // object of a result that waited for its adoption at Freeze, 0 for none
	adopted bool   // that one was adopted: the object is the save's alone
}

// freezer orders a save and the steps beside it.
type freezer[T gemm.Float] struct {
	mu      sync.Mutex
	changed sync.Cond
	on      bool
	passed  int   // parcels before this one are saved
	extra   int64 // bytes of copies
	serial  holder
}

// Freeze keeps the state as it is now for a save, until thaw is called. The
// refreshes must be settled, see [Runtime.Settle]; the sections of [Runtime.Sections]
// and then of [Runtime.PendingSections] must be read in their order, once. Without
// tiers it does nothing: the save copies what it needs.
func (r *Runtime[T]) Freeze() (thaw func()) {
	s := r.store
	if s == nil {
		return func() {}
	}
	f := &s.freezer
	f.mu.Lock()
	defer f.mu.Unlock()
	f.on, f.passed = true, 0
	for _, p := range s.parcels {
		p.kept.pending = true
	}
	for _, u := range r.units {
		if r.resultWaits(u) {
			u.parcel.kept.result = u.task.tiers.result
		}
	}
	return func() { f.thaw(s) }
}

// thaw ends the save, however it went.
func (f *freezer[T]) thaw(s *store[T]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range s.parcels {
		f.release(s, p)
		if p.kept.adopted {
			s.drop(p.kept.result)
		}
		p.kept.result, p.kept.adopted = 0, false
	}
	f.on, f.extra = false, 0
	f.changed.Broadcast()
}

// pass releases every parcel before the given one.
func (f *freezer[T]) pass(s *store[T], before int) {
	for ; f.passed < before; f.passed++ {
		f.release(s, s.parcels[f.passed])
	}
}

// release ends the save's hold on p.
func (f *freezer[T]) release(s *store[T], p *parcel[T]) {
	k := &p.kept
	if !k.pending {
		return
	}
	for i, id := range k.copies {
		if id != 0 {
			k.copies[i] = 0
			f.extra -= p.size[i]
			s.drop(id)
		}
	}
	k.pending, k.copied = false, false
	f.changed.Broadcast()
}

// drop removes an object that nobody uses any more, or will after its last lease.
func (s *store[T]) drop(id uint64) {
	if err := s.ctl.Abandon(id); err != nil {
		s.opts.Logger.Warn("asteria: an object was not given back", "err", err)
	}
}

// yield returns when p may be changed. The caller holds no lease.
func (f *freezer[T]) yield(s *store[T], p *parcel[T]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for refused := false; p.kept.pending && !p.kept.copied; {
		if refused || p.kept.reading > 0 || !f.room(s, p.bytes()) {
			f.changed.Wait()
			continue
		}
		refused = !f.copy(s, p)
	}
}

// room reports whether the tiers have space for so many bytes more than the plan
// says, by their sizes.
func (f *freezer[T]) room(s *store[T], bytes int64) bool {
	o := &s.opts
	if o.Host == 0 || o.NVMe != nil && o.NVMeSize == 0 {
		return true
	}
	return s.placed+s.gap+f.extra+bytes <= o.Device+o.Host+o.NVMeSize
}

// copy makes p's copy, without the lock, and reports whether it could.
func (f *freezer[T]) copy(s *store[T], p *parcel[T]) bool {
	p.kept.copying = true
	f.mu.Unlock()
	copies, err := s.duplicate(p)
	f.mu.Lock()
	p.kept.copying = false
	f.changed.Broadcast()
	if err != nil {
		s.opts.Logger.Info("asteria: a step waits for the save, for want of memory for a copy", "block", p.name, "err", err)
		return false
	}
	if !p.kept.pending {
		// The save has passed meanwhile. A copy kept now would be taken for one of
		// the next save's step.
		s.dropCopies(copies)
		return true
	}
	p.kept.copies, p.kept.copied = copies, true
	f.extra += p.bytes()
	return true
}

// dropCopies gives up the objects of a copy.
func (s *store[T]) dropCopies(copies [2]uint64) {
	for _, id := range copies {
		if id != 0 {
			s.drop(id)
		}
	}
}

// duplicate copies p's objects into new ones, one at a time.
func (s *store[T]) duplicate(p *parcel[T]) (copies [2]uint64, err error) {
	var h holder
	for i, id := range p.ids {
		if id == 0 || err != nil {
			continue
		}
		if copies[i], err = s.add(p.size[i], s.host); err != nil {
			break
		}
		h.n = 0
		h.add(id)
		h.add(copies[i])
		if err = s.ctl.Acquire(context.Background(), &h.lease, 0, h.ids[:h.n]...); err == nil {
			copy(h.lease.Bytes(1), h.lease.Bytes(0))
			h.lease.Release(true)
		}
	}
	if err == nil {
		return copies, nil
	}
	s.dropCopies(copies)
	return [2]uint64{}, err
}

// keepResult leaves the object of a result that was adopted to the save that
// wants it, and reports whether one does.
func (f *freezer[T]) keepResult(p *parcel[T], id uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.on || p.kept.result != id {
		return false
	}
	p.kept.adopted = true
	return true
}

// claim returns when p's result, in an object of so many bytes, may be adopted: at
// once if no save wants it, or if there is room for another object in its place,
// unless this very step writes the next result into it (rewrites).
func (f *freezer[T]) claim(s *store[T], p *parcel[T], bytes int64, rewrites bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for p.kept.result != 0 && !p.kept.adopted {
		if !rewrites && f.room(s, bytes) {
			f.extra += bytes
			return
		}
		f.changed.Wait()
	}
}

// running reports whether a save has the state frozen.
func (f *freezer[T]) running() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.on
}

// zeros returns n elements that are zero and only read. One goroutine saves at a
// time.
func (s *store[T]) zeros(n int) []T {
	if len(s.blank) < n {
		s.blank = make([]T, n)
	}
	return s.blank[:n]
}

// resultOf returns the object of p's result for a save, now for any other reader,
// which has the given one; 0 where none waits.
func (f *freezer[T]) resultOf(s *store[T], p *parcel[T], now uint64, write bool) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.on {
		return now, nil
	}
	if write {
		return 0, errPassed
	}
	f.pass(s, len(s.parcels))
	return p.kept.result, nil
}

// section describes elements [at, at+n) of an object of the index-th parcel.
func (s *store[T]) section(name string, index, object, at, n int) param.Section {
	_, double := any(T(0)).(float64)
	return param.Section{Name: name, Held: &param.Held{Len: n, Double: double, Hold: func(write bool) (param.Section, func(), error) {
		mem, release, err := s.hold(index, object, write)
		if err != nil {
			return param.Section{}, nil, err
		}
		return section(name, mem[at:at+n:at+n]), release, nil
	}}}
}

// hold leases one object of a parcel for a save or a restore.
func (s *store[T]) hold(index, object int, write bool) (mem []T, release func(), err error) {
	p := s.parcels[index]
	if err := s.make(p); err != nil {
		return nil, nil, err
	}
	id, done, err := s.freezer.reads(s, index, object, write)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: block %s", err, p.name)
	}
	return s.lend(p.name, id, write, done)
}

// lend leases one object; done is called when the lease has ended.
func (s *store[T]) lend(name string, id uint64, write bool, done func()) (mem []T, release func(), err error) {
	h := new(holder)
	h.add(id)
	if err := s.ctl.Acquire(context.Background(), &h.lease, 0, id); err != nil {
		done()
		return nil, nil, &StateError{Block: name, Err: err}
	}
	return elements[T](h.lease.Bytes(0)), func() {
		h.lease.Release(write)
		done()
	}, nil
}

// reads returns the object in which the save finds what p's object held at Freeze,
// and what to call afterwards. Without a save it is the object itself.
func (f *freezer[T]) reads(s *store[T], index, object int, write bool) (id uint64, done func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := s.parcels[index]
	if !f.on {
		return p.ids[object], func() {}, nil
	}
	f.pass(s, index)
	if write || index < f.passed || !p.kept.pending {
		return 0, nil, errPassed
	}
	for p.kept.copying {
		f.changed.Wait()
	}
	if p.kept.copied {
		return p.kept.copies[object], func() {}, nil
	}
	p.kept.reading++
	return p.ids[object], func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		p.kept.reading--
		f.changed.Broadcast()
	}, nil
}

// make gives p its first contents, if it has none yet.
func (s *store[T]) make(p *parcel[T]) error {
	f := &s.freezer
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.begun {
		return nil
	}
	h := &f.serial
	h.begin(p.ids)
	if err := s.ctl.Acquire(context.Background(), &h.lease, 0, h.ids[:h.n]...); err != nil {
		return &StateError{Block: p.name, Err: err}
	}
	p.reset(s.views(h, p))
	h.lease.Release(true)
	p.begun = true
	return nil
}
