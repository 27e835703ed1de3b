package kron

import (
	"fmt"
	"math"
)

// Note: adoption
//
// Install is the only place where a root or basis changes. Per mode it first
// compares the versions: a basis result is relative to the basis in its
// snapshot, so that applying it to another one would scramble the second moment
// without any sign of it; an inverse root is absolute, but an older one must
// never replace a newer one. What does not fit is discarded and counted.
// The moments that move are those of now, not those of the snapshot.

// Install adopts the good modes of r at the block's adoption point: it takes
// the root or basis, permutes SOAP's second moment, rotates a momentum kept in
// the eigenbasis, replaces KL's eigenvalues where r brings new ones, and raises
// the versions. Modes that failed keep their previous result. It returns an
// error that matches [ErrRefresh] when more than Options.MaxFailures refreshes
// in a row have failed.
func (b *Block[T]) Install(st *State[T], r *Result[T], ops Ops[T], sc *Scratch[T]) error {
	m, err := b.accept(st, r)
	b.move(st, r, m, &st.Root, &r.Root, ops, sc)
	b.take(st, r, m, ops)
	return err
}

// Adopt is [Block.Install] but for the moments, which [Block.Move] brings into the new
// basis later: the bulk of what an adoption costs, and nothing reads them before the
// next Begin. r must not be Shared; until the move it keeps the replaced bases, and
// neither may change.
func (b *Block[T]) Adopt(st *State[T], r *Result[T], ops Ops[T]) (Move, error) {
	if r.Shared {
		return Move{}, fmt.Errorf("kron: block %s: Adopt of a shared result, want Install", b.name)
	}
	m, err := b.accept(st, r)
	b.take(st, r, m, ops)
	return m, err
}

// Move is what an adoption has left to do to the moments.
type Move struct {
	modes    [MaxOrder]bool // that were adopted
	second   bool
	momentum bool
	direct   [MaxOrder]bool // by the job's rotation
}

// Pending reports whether there is anything to do.
func (m Move) Pending() bool { return m.second || m.momentum }

// Move does what [Block.Adopt] of r left, on any goroutine: it reads the bases of st
// and r and writes the moments of st.
func (b *Block[T]) Move(st *State[T], r *Result[T], m Move, ops Ops[T], sc *Scratch[T]) {
	b.move(st, r, m, &r.Root, &st.Root, ops, sc)
}

// accept finds the modes of r to adopt and counts the others.
func (b *Block[T]) accept(st *State[T], r *Result[T]) (m Move, err error) {
	moments := b.rotates() && st.Meta.Step() > 0 // before, the momentum is still zero
	failed := -1
	for k := range b.order {
		switch {
		case !b.modes[k].factored:
		case r.Err[k] != nil:
			if failed < 0 {
				failed = k
			}
		case b.outdated(st.Meta, r, k):
			st.Meta[metaDiscarded]++
		default:
			m.modes[k] = true
			m.second = m.second || r.Moves[k] && st.Second != nil
			m.momentum = moments
			m.direct[k] = r.Rotation[k] != nil && r.AsOf > 1 // see Snapshot.beforeMomentum
		}
	}
	if m.modes != ([MaxOrder]bool{}) {
		st.Meta[metaRefreshes]++
	}
	if failed >= 0 {
		return m, b.Fail(st, failed, r.Err[failed])
	}
	st.Meta[metaConsecutive] = 0
	return m, nil
}

// outdated reports whether mode k of r no longer fits what is installed.
func (b *Block[T]) outdated(m *Meta, r *Result[T], k int) bool {
	if b.opts.Method.basis() {
		return r.Base[k] != m.Version(k)
	}
	return m.Version(k) > 0 && r.AsOf < m.AsOf(k)
}

// take puts the roots or bases of the adopted modes in force.
func (b *Block[T]) take(st *State[T], r *Result[T], m Move, ops Ops[T]) {
	for k := range b.order {
		if !m.modes[k] {
			continue
		}
		if r.Fresh[k] {
			for i, lambda := range r.Values[k] {
				st.Gain[k][i] = T(gain(math.Max(0, float64(lambda)), b.modes[k].clamp))
			}
		}
		if r.Shared {
			ops.Copy(st.Root[k], r.Root[k])
		} else {
			st.Root[k], r.Root[k] = r.Root[k], st.Root[k]
		}
		st.Meta[metaVersion+k]++
		st.Meta[metaAsOf+k] = r.AsOf
	}
}

// move brings the moments from the bases before into those after.
func (b *Block[T]) move(st *State[T], r *Result[T], m Move, before, after *[MaxOrder][]T, ops Ops[T], sc *Scratch[T]) {
	if m.second {
		b.moveSecond(st.Second, r, m, ops, sc)
	}
	if m.momentum {
		b.moveMomentum(st.Momentum, r, m, before, after, ops, sc)
	}
}

// moveSecond permutes SOAP's second moment along the modes whose columns change places.
func (b *Block[T]) moveSecond(second []T, r *Result[T], m Move, ops Ops[T], sc *Scratch[T]) {
	j := newJourney(second, sc.buf[0], sc.buf[1])
	for k := range b.order {
		if m.modes[k] && r.Moves[k] {
			j.legs++
		}
	}
	for k := range b.order {
		if m.modes[k] && r.Moves[k] {
			dst, src := j.next()
			ops.PermuteMode(dst, src, b.modes[k].pre, b.modes[k].post, r.Perm[k])
		}
	}
	j.end(ops)
}

// moveMomentum re-expresses a momentum kept in the eigenbasis: along each mode by the
// job's rotation, or by way of the original space.
func (b *Block[T]) moveMomentum(momentum []T, r *Result[T], m Move, before, after *[MaxOrder][]T, ops Ops[T], sc *Scratch[T]) {
	j := newJourney(momentum, sc.buf[0], sc.buf[1])
	for k := range b.order {
		switch {
		case m.direct[k]:
			j.legs++
		case m.modes[k]:
			j.legs += 2
		}
	}
	for k := range b.order {
		if !m.modes[k] {
			continue
		}
		q := r.Rotation[k]
		if !m.direct[k] {
			dst, src := j.next()
			b.along(ops, k, dst, src, before[k], false)
			q = after[k]
		}
		dst, src := j.next()
		b.along(ops, k, dst, src, q, true)
	}
	j.end(ops)
}

// Fail counts a refresh that failed in mode k before there was a result to
// install, such as a snapshot that was not finite. Like [Block.Install] it
// returns an error once too many have failed in a row.
func (b *Block[T]) Fail(st *State[T], k int, cause error) error {
	st.Meta[metaFailed]++
	st.Meta[metaConsecutive]++
	if limit := b.opts.MaxFailures; limit >= 0 && st.Meta.Consecutive() > int64(limit) {
		return &RefreshError{Block: b.name, Mode: k, Consecutive: st.Meta.Consecutive(), Err: cause}
	}
	return nil
}

// MomentumIn sets dst to the momentum in the parameter's space, whichever space
// the options keep it in; zero where none is kept.
func (b *Block[T]) MomentumIn(dst []T, st *State[T], ops Ops[T], sc *Scratch[T]) error {
	if len(dst) != b.size {
		return fmt.Errorf("kron: block %s: momentum of %d elements, want %d", b.name, len(dst), b.size)
	}
	if st.Momentum == nil {
		clear(dst)
		return nil
	}
	x := st.Momentum
	if b.rotates() {
		x = b.rotate(ops, x, &st.Root, false, -1, sc.buf[0], sc.buf[1])
	}
	ops.Copy(dst, x)
	return ops.Sync()
}
