package asteria

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/tierctl"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
	"github.com/asteria-runtime/asteria/uvm"
)

// Note: the life of a refresh in tiers
//
// A snapshot exists from the step that takes it until the refresh has ended, a
// result from the refresh until its adoption. Between, both are objects without
// contents, which take neither memory nor I/O. The worker leases both, the step
// that adopts leases the result with the block's state, and nobody else touches
// them: a step hands its snapshot out only after it has let go of its lease.

// taskObjects are the objects of one refresh.
type taskObjects[T gemm.Float] struct {
	store    *store[T]
	parcel   *parcel[T] // the block's
	snapshot uint64
	result   uint64
	perm     []int // of the result, always in memory
	bytes    int64 // of the result
	parts    []resultPart
}

// resultPart is where one array of a result lies in its object.
type resultPart struct {
	name  string // such as root.0
	mode  int
	at, n int // elements
}

// newTaskObjects makes the objects of a refresh of u and readies job for them.
func newTaskObjects[T gemm.Float](s *store[T], u *unit[T], job *kron.Job[T]) (*taskObjects[T], error) {
	elements, indices := u.block.ResultLen()
	t := &taskObjects[T]{store: s, parcel: u.parcel, perm: make([]int, indices), bytes: objectBytes[T](elements)}
	var err error
	if t.snapshot, err = s.add(objectBytes[T](u.block.SnapshotLen()), s.host); err != nil {
		return nil, err
	}
	if t.result, err = s.add(t.bytes, s.host); err != nil {
		return nil, err
	}
	job.Result.Shared = true // its memory goes back; an exchange would keep it
	return t, t.measure(u.block, job)
}

// measure finds the parts of a result by laying one over memory that is never
// touched, and leaves job with the permutations alone.
func (t *taskObjects[T]) measure(b *kron.Block[T], job *kron.Job[T]) error {
	blank, err := uvm.Host{}.Alloc(t.bytes)
	if err != nil {
		return err
	}
	base := elements[T](blank.Bytes())
	res := &job.Result
	b.CutResult(res, base, t.perm)
	for k := range b.Modes() {
		t.part("root", k, base, res.Root[k])
		t.part("rotation", k, base, res.Rotation[k])
		t.part("values", k, base, res.Values[k])
		res.Root[k], res.Rotation[k], res.Values[k] = nil, nil, nil
	}
	return blank.Close()
}

func (t *taskObjects[T]) part(name string, mode int, base, x []T) {
	if len(x) == 0 {
		return
	}
	at := (uintptr(unsafe.Pointer(unsafe.SliceData(x))) - uintptr(unsafe.Pointer(unsafe.SliceData(base)))) / unsafe.Sizeof(T(0))
	t.parts = append(t.parts, resultPart{fmt.Sprintf("%s.%d", name, mode), mode, int(at), len(x)})
}

// bind points job at leased memory; a nil slice leaves its part as it is.
func (t *taskObjects[T]) bind(b *kron.Block[T], job *kron.Job[T], snapshot, result []byte) {
	if snapshot != nil {
		b.CutSnapshot(&job.Snapshot, elements[T](snapshot))
	}
	if result != nil {
		b.CutResult(&job.Result, elements[T](result), t.perm)
	}
}

// lease acquires both objects for a worker.
func (t *taskObjects[T]) lease(ctx context.Context, w *worker[T], b *kron.Block[T], job *kron.Job[T]) error {
	s, h := t.store, &w.holder
	h.n = 0
	h.add(t.snapshot)
	h.add(t.result)
	// The worker's use is the next one there is: it stands for the step that runs.
	now := s.tick(s.turn.Load(), 0)
	if err := s.take(ctx, h, now, b.Name(), &s.jobs); err != nil {
		return err
	}
	t.bind(b, job, h.lease.Bytes(0), h.lease.Bytes(1))
	return nil
}

// letGo ends a worker's lease: the snapshot has served.
func (t *taskObjects[T]) letGo(w *worker[T]) {
	w.holder.lease.Discard(0)
	w.holder.lease.Expect(t.store.tick(t.parcel.due.Load(), t.parcel.place))
	w.holder.lease.Release(true)
}

// failed ends the contents of a refresh that has no result. What was abandoned may
// be in use for ever.
func (t *taskObjects[T]) failed(abandoned bool) {
	end := t.store.ctl.Discard
	if abandoned {
		end = t.store.ctl.Abandon
	}
	for _, id := range []uint64{t.snapshot, t.result} {
		if err := end(id); err != nil {
			t.store.opts.Logger.Warn("asteria: the memory of a failed refresh was not given back", "block", t.parcel.name, "err", err)
		}
	}
}

// announceRefresh has room made for what the refresh that the next step begins, if
// it does, fills.
func (u *unit[T]) announceRefresh() {
	if !u.point.due || u.point.flying {
		return
	}
	t := u.task.tiers
	now := t.store.tick(t.store.turn.Load(), u.parcel.place)
	t.store.announce(t.snapshot, now)
	if u.point.inside {
		t.store.announce(t.result, now)
	}
}

// leasePoint acquires all that a step with an adoption point touches: the block's
// state, the result that it adopts, the snapshot that it takes.
func (r *Runtime[T]) leasePoint(w *worker[T], u *unit[T], p *point) error {
	t, h := u.task.tiers, &w.holder
	h.begin(u.parcel.ids)
	result, snapshot := -1, -1
	if p.installs() {
		r.store.freezer.claim(r.store, u.parcel, t.bytes, p.inside)
	}
	if p.installs() || p.inside {
		result = h.add(t.result)
	}
	if p.due && !p.flying {
		snapshot = h.add(t.snapshot)
	}
	if err := r.lease(w, u); err != nil {
		return err
	}
	bytes := func(at int) []byte {
		if at < 0 {
			return nil
		}
		return h.lease.Bytes(at)
	}
	t.bind(u.block, &u.task.job, bytes(snapshot), bytes(result))
	return nil
}

// leavePoint ends the lease: a result that was adopted has served, unless a save
// wants it, and so has a snapshot that is not handed to the workers.
func (r *Runtime[T]) leavePoint(w *worker[T], u *unit[T], p *point) {
	t, h := u.task.tiers, &w.holder
	at := h.n - 1
	if p.due && !p.flying {
		switch {
		case p.lost:
			h.lease.Abandon(at)
		case !p.launch:
			h.lease.Discard(at)
		}
		at--
	}
	keep := false
	if p.lost {
		h.lease.Abandon(at)
	} else if p.installs() || p.inside {
		if keep = p.installs() && r.store.freezer.keepResult(u.parcel, t.result); !keep {
			h.lease.Discard(at)
		}
	}
	if p.launch {
		u.parcel.due.Store(r.store.turn.Load() + r.shadow.opts.lagAt(p.now, r.shadow.every))
		r.store.announce(t.snapshot, tierctl.Never) // a worker's, who will come when it can
	}
	h.lease.Release(true)
	if keep {
		r.renewResult(u)
	}
}

// renewResult gives u's refreshes another object for their results.
func (r *Runtime[T]) renewResult(u *unit[T]) {
	t, err := u.task.tiers, error(nil)
	if t.result, err = r.store.add(t.bytes, r.store.host); err != nil {
		panic("asteria: a store that is open refused an empty object")
	}
}

// resultSections describe one side of u's result that waits for its adoption. Where
// none waits they read as zero, and what is written to them is dropped.
func (r *Runtime[T]) resultSections(u *unit[T], prefix string, mode int, out []param.Section) []param.Section {
	_, double := any(T(0)).(float64)
	for _, part := range u.task.tiers.parts {
		if part.mode != mode {
			continue
		}
		name := prefix + part.name
		out = append(out, param.Section{Name: name, Held: &param.Held{Len: part.n, Double: double, Hold: func(write bool) (param.Section, func(), error) {
			mem, release, err := r.holdResult(u, part, write)
			if err != nil {
				return param.Section{}, nil, err
			}
			return section(name, mem), release, nil
		}}})
	}
	return out
}

// holdResult leases the object of u's result, if one waits.
func (r *Runtime[T]) holdResult(u *unit[T], part resultPart, write bool) (mem []T, release func(), err error) {
	s, now := r.store, uint64(0)
	if !s.freezer.running() && u.saved[pendState] == stateResult {
		now = u.task.tiers.result
	}
	id, err := s.freezer.resultOf(s, u.parcel, now, write)
	switch {
	case err != nil:
		return nil, nil, err
	case id == 0 && write:
		return make([]T, part.n), func() {}, nil
	case id == 0:
		return s.zeros(part.n), func() {}, nil
	}
	mem, release, err = s.lend(u.parcel.name, id, write, func() {})
	if err != nil {
		return nil, nil, err
	}
	return mem[part.at : part.at+part.n : part.at+part.n], release, nil
}
