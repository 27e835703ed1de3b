package asteria

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asteria-runtime/asteria/coherreg"
	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/hiersync"
	"github.com/asteria-runtime/asteria/hooks"
)

// peers is what a runtime has beside the others when it shares its refreshes with
// other ranks; see Note: owners.
type peers[T gemm.Float] struct {
	comm   *hiersync.Comm
	list   []*unit[T] // whose refreshes an exchange is about, in the order of names
	heads  []int64
	handle hiersync.Handle
	window window

	intra, inter int64 // bytes that this rank sent to bring results to all, by link
}

func newPeers[T gemm.Float](p *Peers, blocks int) *peers[T] {
	return &peers[T]{comm: p.Comm, list: make([]*unit[T], 0, blocks), heads: make([]int64, blocks*headLen)}
}

// stepTogether steps all blocks, on all ranks alike: what has to be known of other
// ranks is exchanged before the blocks' steps, and between the halves of those whose
// refresh runs inside the step.
func (r *Runtime[T]) stepTogether() error {
	if err := r.land(); err != nil {
		return err
	}
	r.half((*firstHalves[T])(r))
	p := r.peers
	p.list = p.list[:0]
	for _, u := range r.units {
		if u.point.inside && !u.point.flying {
			p.list = append(p.list, u)
		}
	}
	if err := r.exchange(nil); err != nil {
		return err
	}
	if len(p.list) > 0 {
		r.half((*secondHalves[T])(r))
	}
	return r.launchAll()
}

// half runs one half of the steps of all blocks.
func (r *Runtime[T]) half(h interface {
	gemm.Task
	one(*worker[T], *unit[T])
}) {
	for _, u := range r.alone {
		h.one(r.wide, u)
	}
	r.eng.Run(len(r.queue), h)
}

// firstHalves is the runtime as the engine's task, see queued.
type firstHalves[T gemm.Float] Runtime[T]

// Do implements [gemm.Task].
func (h *firstHalves[T]) Do(chunk, worker int) { h.one(h.workers[worker], h.queue[chunk]) }

// one steps u up to its adoption point, and through it unless a refresh runs inside
// the step: then the owner computes it now.
func (h *firstHalves[T]) one(w *worker[T], u *unit[T]) {
	r, p := (*Runtime[T])(h), &u.point
	u.block.Begin(u.state, u.param, u.grad, r.lr, w.ops, w.scratch)
	u.err = r.adopt(w, u, p)
	if p.due {
		u.err = errors.Join(u.err, r.snapshotShared(w, u, p))
	}
	if !p.inside || p.flying {
		u.finish(w, r.lr)
	}
}

// finish ends u's step.
func (u *unit[T]) finish(w *worker[T], lr float64) {
	u.block.Finish(u.state, u.param, u.grad, lr, w.ops, w.scratch)
	if err := w.ops.Sync(); u.err == nil {
		u.err = err
	}
}

// secondHalves does the rest of the steps with a refresh inside.
type secondHalves[T gemm.Float] Runtime[T]

// Do implements [gemm.Task].
func (h *secondHalves[T]) Do(chunk, worker int) { h.one(h.workers[worker], h.queue[chunk]) }

func (h *secondHalves[T]) one(w *worker[T], u *unit[T]) {
	if !u.point.inside || u.point.flying {
		return
	}
	t, err := u.task, error(nil)
	if u.point.cause != nil {
		err = u.block.Fail(u.state, 0, u.point.cause)
	} else {
		err = u.block.Install(u.state, &t.job.Result, w.ops, w.scratch)
	}
	t.record.end(&u.health)
	u.err = errors.Join(u.err, err)
	u.finish(w, h.lr)
}

// snapshotShared takes the snapshot that is due if this rank is to refresh it, and
// refreshes at once what runs inside the step. What fails here is told to all ranks
// with the other failures.
func (r *Runtime[T]) snapshotShared(w *worker[T], u *unit[T], p *point) error {
	if p.flying {
		return r.coalesce(u, p)
	}
	t := u.task
	t.asOf = p.now
	p.launch = !p.inside
	if !u.mine {
		return nil
	}
	if err := w.ops.Sync(); err != nil {
		return err
	}
	if err := r.fetch(u.state); err != nil {
		return err
	}
	t.outcome = u.block.Snapshot(u.state, &t.job.Snapshot)
	t.over = t.outcome != nil
	if p.launch || t.over {
		t.record.begin()
		return nil
	}
	start := time.Now()
	w.record.begin()
	w.inside.begin(u.block.Name())
	_ = u.block.Refresh(context.Background(), w.inside, w.ops, &t.job.Snapshot, &t.job.Result)
	if w.inside.lost {
		return r.leaveBehind(w, u)
	}
	t.record, t.took, t.over = *w.record, time.Since(start), true
	u.cost.note(t.took, t.took*time.Duration(r.threadsOf(w)))
	if f := r.shadow.opts.Observer.Refreshed; f != nil {
		f(u.block.Name(), 0, start, t.took)
	}
	return nil
}

// leaveBehind makes a failure on all ranks of a refresh inside the step that was
// left behind: neither its memory nor its solver is used again.
func (r *Runtime[T]) leaveBehind(w *worker[T], u *unit[T]) error {
	if err := r.renewTask(u); err != nil {
		return err
	}
	u.task.outcome, u.task.over = hooks.ErrAbandoned, true
	return r.mend(w)
}

// launchAll hands out the snapshots that the step took, and announces them on all
// ranks.
func (r *Runtime[T]) launchAll() error {
	s := r.shadow
	for _, u := range r.units {
		if !u.point.launch {
			continue
		}
		u.shared = false
		u.task.adoptAt = u.point.now + s.opts.lagAt(u.point.now, s.every)
		if err := s.reg.Due(u.block.Name(), u.point.now, u.task.adoptAt); err != nil {
			return err
		}
		if u.mine && !u.task.over {
			s.pace.add(u.task, s.takes(u))
		}
	}
	return nil
}

// land looks at what is before every block's step, and resolves on all ranks alike
// the refreshes in flight that this step adopts.
func (r *Runtime[T]) land() error {
	s, p := r.shadow, r.peers
	p.list = p.list[:0]
	for _, u := range r.units {
		u.point = r.look(u)
		u.point.lands = u.point.flying && s.mayLand(u, u.point.now)
		if u.point.lands && !u.shared {
			p.list = append(p.list, u)
		}
	}
	if err := r.exchange(func(u *unit[T]) bool { return s.mustLand(u, u.point.now) }); err != nil {
		return err
	}
	for _, u := range r.units {
		if u.point.lands && u.shared {
			r.resolve(u)
		}
	}
	s.turns.take(func(u *unit[T]) bool { return u.point.flying })
	return nil
}

// resolve adopts u's refresh in the registry, where its outcome is the same on all
// ranks.
func (r *Runtime[T]) resolve(u *unit[T]) {
	s, p := r.shadow, &u.point
	s.turns.landed(p.now - u.task.asOf)
	_, _, err := s.reg.Adopt(context.Background(), u.block.Name(), p.now)
	p.landed, p.flying, p.cause = true, false, err
	if err == nil && s.failed[replayKey{u.index, p.now}] {
		p.cause = ErrReplayed
	}
	if errors.Is(u.task.outcome, hooks.ErrAbandoned) {
		t, terr := r.newTask(s, u) // the old one's memory may be in use for ever
		if terr != nil {
			p.cause = &StateError{Block: u.block.Name(), Err: terr}
			return
		}
		t.asOf, u.task = u.task.asOf, t
		return
	}
	u.task.record.end(&u.health)
	u.task.record.begin()
	if u.mine {
		u.cost.note(u.task.took, u.task.used)
	}
}

// mayLand reports whether u's refresh in flight may be adopted at a step.
func (s *shadow[T]) mayLand(u *unit[T], now int64) bool {
	f, _ := s.reg.Pending(u.block.Name())
	switch {
	case s.opts.Replay != nil:
		return s.adopts[replayKey{u.index, now}] == f.AsOf
	case s.opts.Adopt == Ready:
		return true
	}
	return now >= f.AdoptAt
}

// mustLand reports whether the step waits for it.
func (s *shadow[T]) mustLand(u *unit[T], now int64) bool {
	if s.opts.Replay != nil || s.opts.Adopt == Scheduled {
		return true
	}
	// What was left out before it has been due for longer.
	left := (s.group - 1) * s.every
	return now-u.task.asOf >= s.opts.staleness()-left
}

// exchange brings the outcomes of the list's refreshes, and the results of those
// that are good, from the ranks that ran them to all. must says which of those in
// flight it waits for; the others take part if they have ended. Without must it is
// about refreshes inside a step. All ranks pass the same list.
func (r *Runtime[T]) exchange(must func(*unit[T]) bool) error {
	p := r.peers
	if len(p.list) == 0 {
		return nil
	}
	before := p.comm.Stats()
	heads := p.heads[:len(p.list)*headLen]
	clear(heads)
	for i, u := range p.list {
		if !u.mine {
			continue
		}
		if must != nil {
			if err := r.shadow.ended(u, p.comm, must(u)); err != nil {
				return err
			}
		}
		if u.task.over {
			u.task.fill(heads[i*headLen:(i+1)*headLen], u.task.outcome, u.owner == p.comm.Rank())
		}
	}
	err := hiersync.StartAllreduce(p.comm, &p.handle, hiersync.Or, heads)
	if err == nil {
		err = p.handle.Wait(context.Background())
	}
	if err == nil {
		err = r.bring(heads, must != nil)
	}
	after := p.comm.Stats()
	p.intra += after.IntraBytes - before.IntraBytes
	p.inter += after.InterBytes - before.InterBytes
	return err
}

// bring moves the results that the heads tell of, and takes note of the outcomes.
func (r *Runtime[T]) bring(heads []int64, flying bool) error {
	p := r.peers
	for i, u := range p.list {
		h := heads[i*headLen : (i+1)*headLen]
		if h[headState]&headEnded == 0 {
			u.point.lands = false
			continue
		}
		if asOf := h[headAsOf]; asOf != u.task.asOf {
			p.window.note(fmt.Errorf("asteria: block %s: the ranks disagree: a refresh of step %d here, of step %d elsewhere", u.block.Name(), u.task.asOf, asOf))
			break
		}
		u.point.cause = u.task.read(h, u.task.outcome)
		u.shared = flying
		if u.point.cause == nil {
			r.send(u)
		}
	}
	if err := p.window.drain(); err != nil {
		return err
	}
	for _, u := range p.list {
		if u.point.cause == nil {
			u.receive()
		}
		if u.shared && flying {
			r.shadow.publish(u)
		}
	}
	return nil
}

// publish puts the outcome of u's refresh in flight, known to all ranks, into the
// registry.
func (s *shadow[T]) publish(u *unit[T]) {
	u.task.over = false
	if u.point.cause != nil {
		s.reg.Fail(u.block.Name(), u.task.asOf, u.point.cause)
		return
	}
	s.reg.Publish(u.block.Name(), u.task.asOf, struct{}{})
}

// ended finds out how u's refresh ended, if it has; with must it waits for that, at
// most until the ranks have lost each other.
func (s *shadow[T]) ended(u *unit[T], comm *hiersync.Comm, must bool) error {
	t := u.task
	if t.over {
		return nil
	}
	select {
	case t.outcome = <-t.ended:
		t.over = true
		return nil
	default:
	}
	if !must {
		return nil
	}
	s.pace.need(t)
	s.noteWait(u.block.Name(), u.index, false)
	defer s.noteWait(u.block.Name(), u.index, true)
	s.waits++
	select {
	case t.outcome = <-t.ended:
		t.over = true
		return nil
	case <-comm.Failed():
		return comm.Err()
	}
}

// settleTogether is Settle on several ranks: what is in flight ends, and its results
// reach all ranks ahead of their step.
func (r *Runtime[T]) settleTogether(ctx context.Context) error {
	s, p := r.shadow, r.peers
	s.pace.flush()
	stop := context.AfterFunc(ctx, func() { s.pool.Abandon() })
	defer stop()
	p.list = p.list[:0]
	for _, u := range r.units {
		u.point = point{}
		if f, flying := s.reg.Pending(u.block.Name()); flying && !f.Resolved {
			p.list = append(p.list, u)
		}
	}
	return r.exchange(func(*unit[T]) bool { return true })
}

// coalesce has the registry count a refresh that is due while the block's last one
// is in flight: a newer snapshot is taken when that one has been adopted.
func (r *Runtime[T]) coalesce(u *unit[T], p *point) error {
	if err := r.shadow.reg.Due(u.block.Name(), p.now, p.now+r.shadow.opts.lagAt(p.now, r.shadow.every)); !errors.Is(err, coherreg.ErrInFlight) {
		return err
	}
	return nil
}

// Sent returns the bytes that this rank has sent to bring results of refreshes to
// all ranks, since the start: to ranks of its own node, and to others.
func (r *Runtime[T]) Sent() (within, between int64) {
	if r.peers == nil {
		return 0, 0
	}
	return r.peers.intra, r.peers.inter
}
