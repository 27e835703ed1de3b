package kron_test

import (
	"testing"

	"github.com/asteria-runtime/asteria/kron"
)

// covering counts how often the moments of a step touch each element: by the slices of
// state they get, which are parts of one array.
type covering struct {
	kron.Ops[float32]
	state  *kron.State[float32]
	counts map[string][]int
}

func (o *covering) note(what string, whole, part []float32) {
	at := cap(whole) - cap(part)
	for i := range part {
		o.counts[what][at+i]++
	}
}

func (o *covering) Lerp(dst, x []float32, w float32) {
	o.note("lerp", o.state.Momentum, dst)
	o.Ops.Lerp(dst, x, w)
}

func (o *covering) LerpSquare(dst, x []float32, w float32) {
	o.note("lerp square", o.state.Second, dst)
	o.Ops.LerpSquare(dst, x, w)
}

func (o *covering) AdamDirection(dst, m, v []float32, mscale, vscale, eps float32) {
	o.note("direction", o.state.Second, v)
	o.Ops.AdamDirection(dst, m, v, mscale, vscale, eps)
}

// A block of more than one chunk and a part of another: every element moves once a
// step, wherever the momentum is kept.
func TestSOAPMovesEveryElementOnce(t *testing.T) {
	const steps = 3
	for _, space := range []kron.MomentumSpace{kron.MomentumOriginal, kron.MomentumEigen} {
		r := newRigWith[float32](t, []int{260, 256}, kron.Options{Momentum: space}, still{})
		o := &covering{Ops: r.worker.Ops, state: r.state, counts: map[string][]int{}}
		for _, what := range []string{"lerp", "lerp square", "direction"} {
			o.counts[what] = make([]int, r.block.Len())
		}
		r.worker.Ops = o
		for _, g := range gradients[float32](3, 1+steps, r.block.Len()) { // the first only makes the basis
			r.step(g, 1e-3)
		}
		for what, counts := range o.counts {
			for i, n := range counts {
				if n != steps {
					t.Fatalf("momentum space %d: %s: element %d moved %d times in %d steps", space, what, i, n, steps)
				}
			}
		}
	}
}
