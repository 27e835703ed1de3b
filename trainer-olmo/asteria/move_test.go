package asteria

import (
	"context"
	"fmt"
	"testing"

	"github.com/asteria-runtime/asteria/kron"
)

// Whoever moves the moments after an adoption, the next step, a worker or the one who
// asks for the state, the bits are the same, and those of an adoption in one piece.
func TestMovesGiveTheSameBitsByWhomever(t *testing.T) {
	const steps = 26
	for _, m := range methods {
		o := asyncOptions(m)
		inOnePiece := o
		inOnePiece.Tiers = &Tiers{Device: 1 << 30}
		var want map[string]string
		for _, tc := range []struct {
			name  string
			opts  Options
			after func(*Runtime[float32])
		}{
			{"in one piece", inOnePiece, func(*Runtime[float32]) {}},
			{"by whoever comes first", jittery(o, 5), func(*Runtime[float32]) {}},
			{"by the step", o, (*Runtime[float32]).finishMoves},
			{"by workers", o, func(r *Runtime[float32]) {
				if err := r.shadow.pool.Drain(context.Background()); err != nil {
					t.Error(err)
				}
			}},
		} {
			for _, threads := range []int{1, 2} {
				params := network[float32]()
				r := newRuntime(t, params, threads, tc.opts)
				for step := int64(1); step <= steps; step++ {
					run(t, r, params, step, step)
					tc.after(r)
				}
				got := bits(params, r)
				if want == nil {
					want = got
				}
				same(t, fmt.Sprintf("%v %s, %d threads", m, tc.name, threads), got, want)
				r.Close()
			}
		}
	}
}

// Workers make the moves without any help: after the pool has come to rest nothing is
// left to do for the next step.
func TestWorkersMoveTheMoments(t *testing.T) {
	params := network[float32]()
	r := newRuntime(t, params, 1, asyncOptions(kron.SOAP))
	moved := 0
	for step := int64(1); step <= 20; step++ {
		run(t, r, params, step, step)
		if err := r.shadow.pool.Drain(context.Background()); err != nil {
			t.Fatal(err)
		}
		for _, u := range r.units {
			if u.moves.todo.Pending() {
				t.Fatalf("step %d: the moments of %s were not moved", step, u.block.Name())
			}
			if u.moves.state != nil {
				moved++
			}
		}
	}
	if moved == 0 {
		t.Error("there was nothing to move")
	}
}

// Where nothing moves beside training, no worker has memory for it.
func TestOnlyLateAdoptionsMoveBeside(t *testing.T) {
	late := asyncOptions(kron.SOAP)
	native, tiers, none := late, late, late
	native.Mode = Native
	tiers.Tiers = &Tiers{Device: 1 << 30}
	none.Async.Staleness, none.Async.Lag = -1, -1
	for name, tc := range map[string]struct {
		opts Options
		want bool
	}{"late": {late, true}, "native": {native, false}, "tiers": {tiers, false}, "no staleness": {none, false}} {
		if got := tc.opts.movesBeside(); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	bytes := func(o Options) int64 {
		p, err := PlanFor[float32](Shapes(network[float32]()), 1, o)
		if err != nil {
			t.Fatal(err)
		}
		return p.Class(ClassScratch)
	}
	if a, b := bytes(late), bytes(native); a <= b {
		t.Errorf("the plan has %d bytes of scratch for a late runtime, %d for a native one", a, b)
	}
}
