package asteria

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/tierctl/tierctltest"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// readAll reads sections in their order, one at a time, with a pause after each.
func readAll(sections []param.Section, pause time.Duration) (map[string]string, error) {
	out := map[string]string{}
	for _, s := range sections {
		if s.Held == nil {
			continue // counters are copied when a save begins
		}
		name := s.Name
		err := s.With(false, func(s param.Section) error {
			time.Sleep(pause)
			out[name] = exact(s.F32)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return out, nil
}

// Field failure A25: a save that streams slowly while training goes on holds one
// step's state throughout, pending results included, whether the tiers have room
// for copies of what changes meanwhile or the steps must wait for their turn; and
// it changes nothing.
func TestA25_ASlowSaveHoldsOneStep(t *testing.T) {
	for _, m := range methods {
		for name, tiers := range map[string]func(Plan) *Tiers{
			"RAM without limit": func(Plan) *Tiers { return &Tiers{} },
			"copies on NVMe":    func(p Plan) *Tiers { return &Tiers{Host: p.Group, NVMe: &tierctltest.Memory{}} },
			"no room in RAM":    func(p Plan) *Tiers { return &Tiers{Host: p.Placed} },
			"no room on NVMe": func(p Plan) *Tiers {
				return &Tiers{Host: p.Group, NVMe: &tierctltest.Memory{}, NVMeSize: p.Placed + p.Slack(2) - p.Group}
			},
		} {
			o := asyncOptions(m)
			params := network[float32]()
			whole := newRuntime(t, params, 1, o)
			run(t, whole, params, 1, 26)

			o.Tiers = tiers(planOf(t, o))
			o.Async.Workers = 2
			saved := network[float32]()
			r := newRuntime(t, saved, 2, jittery(o, 3))
			run(t, r, saved, 1, 10) // due at 8, adopted at 11
			slowSave(t, fmt.Sprintf("%v, %s", m, name), r, func() { run(t, r, saved, 11, 19) })
			run(t, r, saved, 20, 26)
			same(t, fmt.Sprintf("%v, %s, after the save", m, name), bits(saved, r), bits(params, whole))
			r.Close()
		}
	}
}

// slowSave freezes r, reads it slowly beside steps, and compares it with what it
// was.
func slowSave(t *testing.T, what string, r *Runtime[float32], steps func()) {
	t.Helper()
	if err := r.Settle(context.Background()); err != nil {
		t.Fatal(err)
	}
	sections := append(r.Sections(), r.PendingSections()...)
	want, err := readAll(sections, 0)
	if err != nil {
		t.Fatal(err)
	}
	thaw := r.Freeze()
	var got map[string]string
	var saving sync.WaitGroup
	saving.Go(func() {
		defer thaw()
		got, err = readAll(sections, time.Millisecond)
	})
	steps()
	saving.Wait()
	if err != nil {
		t.Fatal(what, err)
	}
	same(t, what, got, want)
	if n := r.store.freezer.extra; n != 0 {
		t.Errorf("%s: %d bytes of copies are left", what, n)
	}
}

// A save that ends early, as one that fails does, lets steps go on.
func TestThawFreesStepsThatWait(t *testing.T) {
	o := asyncOptions(kron.SOAP)
	o.Tiers = &Tiers{Host: planOf(t, o).Placed}
	params := network[float32]()
	r := newRuntime(t, params, 2, o)
	run(t, r, params, 1, 5)
	thaw := r.Freeze()
	over := make(chan struct{})
	go func() { run(t, r, params, 6, 6); close(over) }()
	select {
	case <-over:
		t.Fatal("the step changed what a save still has to read")
	case <-time.After(20 * time.Millisecond):
	}
	thaw()
	<-over
	sections := r.Sections()
	thaw = r.Freeze()
	defer thaw()
	if _, err := readAll(sections, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := readAll(sections, 0); err == nil {
		t.Error("frozen state was read twice")
	}
}

// A save that passes a block while a step is copying it wants no copy any more: one
// that stayed would be taken for a block of the next save's step.
func TestACopyThatComesTooLateIsDropped(t *testing.T) {
	var slow atomic.Bool
	goOn := make(chan struct{})
	nvme := &tierctltest.Memory{Fault: func(op string, _ uint64) error {
		if op == "load" && slow.Load() {
			<-goOn
		}
		return nil
	}}
	o := asyncOptions(kron.SOAP)
	o.Tiers = &Tiers{Host: planOf(t, o).Group, NVMe: nvme}
	params := network[float32]()
	r := newRuntime(t, params, 1, o)
	run(t, r, params, 1, 5)
	s := r.store
	thaw := r.Freeze()
	slow.Store(true)
	var steps sync.WaitGroup
	for _, p := range s.parcels {
		steps.Go(func() { s.freezer.yield(s, p) })
	}
	copying := func() (n int) {
		s.freezer.mu.Lock()
		defer s.freezer.mu.Unlock()
		for _, p := range s.parcels {
			n += int(bit(p.kept.copying, 0))
		}
		return n
	}
	for copying() == 0 {
		time.Sleep(time.Millisecond)
	}
	thaw()
	close(goOn)
	steps.Wait()
	for _, p := range s.parcels {
		if p.kept != (frozen{}) {
			t.Errorf("block %s: %+v is left of the save", p.name, p.kept)
		}
	}
	if s.freezer.extra != 0 {
		t.Errorf("%d bytes of copies are left", s.freezer.extra)
	}
}
