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
	adopted := false
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
			b.adopt(st, r, k, ops, sc)
			adopted = true
		}
	}
	if adopted {
		st.Meta[metaRefreshes]++
	}
	if failed >= 0 {
		return b.Fail(st, failed, r.Err[failed])
	}
	st.Meta[metaConsecutive] = 0
	return nil
}

// outdated reports whether mode k of r no longer fits what is installed.
func (b *Block[T]) outdated(m *Meta, r *Result[T], k int) bool {
	if b.opts.Method.basis() {
		return r.Base[k] != m.Version(k)
	}
	return m.Version(k) > 0 && r.AsOf < m.AsOf(k)
}

// adopt takes mode k of r into use.
func (b *Block[T]) adopt(st *State[T], r *Result[T], k int, ops Ops[T], sc *Scratch[T]) {
	if r.Moves[k] && st.Second != nil {
		b.permute(ops, k, st.Second, r.Perm[k], sc.buf[0])
	}
	if b.rotates() {
		b.moveMomentum(st, r, k, ops, sc)
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

// moveMomentum re-expresses a momentum kept in the eigenbasis along mode k: by
// the job's rotation, or by way of the original space.
func (b *Block[T]) moveMomentum(st *State[T], r *Result[T], k int, ops Ops[T], sc *Scratch[T]) {
	if st.Meta.Step() == 0 {
		return // still zero
	}
	moved, q := sc.buf[0][:b.size], r.Rotation[k]
	from := st.Momentum
	if q == nil || r.AsOf <= 1 { // see Snapshot.beforeMomentum
		from, q = sc.buf[1][:b.size], r.Root[k]
		b.along(ops, k, from, st.Momentum, st.Root[k], false)
	}
	b.along(ops, k, moved, from, q, true)
	ops.Copy(st.Momentum, moved)
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
