package coherreg

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

func newTest(t *testing.T, opts Options, keys ...string) *Registry[string, int] {
	t.Helper()
	if len(keys) == 0 {
		keys = []string{"a", "b", "c"}
	}
	r, err := New[string, int](keys, opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOptionsReportEveryFaultTogether(t *testing.T) {
	o := Options{Mode: 9, Budget: Budget{Soft: 4, Hard: -1}, Replay: []Adoption{{}}}
	err := o.Validate()
	for _, want := range []string{"mode 9", "hard budget -1", "soft budget 4", "log to replay"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Validate() = %v, want it to name %q", err, want)
		}
	}
}

func TestDuplicateKeysAreRefused(t *testing.T) {
	if _, err := New[string, int]([]string{"a", "b", "a"}, Options{}); err == nil {
		t.Fatal("two blocks named a were accepted")
	}
}

func TestScheduledAdoptsAtExactlyTheGivenStep(t *testing.T) {
	r := newTest(t, Options{Budget: Budget{Hard: 5}})
	must(t, r.Due("a", 10, 13))
	if v, ok := r.Publish("a", 10, 42); !ok || v != 1 {
		t.Fatalf("Publish = %d, %v", v, ok)
	}
	for step := int64(10); step < 13; step++ {
		if _, changed, err := r.Adopt(t.Context(), "a", step); changed || err != nil {
			t.Fatalf("step %d: changed %v, err %v: the value was ready but not due for adoption", step, changed, err)
		}
	}
	e, changed, err := r.Adopt(t.Context(), "a", 13)
	if err != nil || !changed || e.Value != 42 || e.AsOf != 10 || e.Age(13) != 3 {
		t.Fatalf("step 13: %+v, changed %v, err %v", e, changed, err)
	}
	if n, _ := r.Staleness("a", 14); n != 0 {
		t.Fatalf("staleness %d with nothing in flight", n)
	}
}

func TestAScheduleOutsideTheBudgetIsRefused(t *testing.T) {
	r := newTest(t, Options{Budget: Budget{Hard: 5}})
	for _, at := range []int64{9, 16} {
		if err := r.Due("a", 10, at); !errors.Is(err, ErrOrder) {
			t.Errorf("due at 10, adopt at %d: %v, want ErrOrder", at, err)
		}
	}
}

func TestALateValueIsWaitedForAtItsStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTest(t, Options{Budget: Budget{Hard: 2}})
		must(t, r.Due("a", 0, 2))
		done := make(chan Entry[int])
		go func() {
			e, _, _ := r.Adopt(t.Context(), "a", 2)
			done <- e
		}()
		synctest.Wait()
		if r.Stats().Waits != 1 {
			t.Fatal("Adopt did not wait for the late value")
		}
		r.Publish("a", 0, 7)
		if e := <-done; e.Value != 7 {
			t.Fatalf("adopted %+v", e)
		}
	})
}

func TestTheBarrierEndsWithItsContextAndTheRefreshStaysInFlight(t *testing.T) {
	r := newTest(t, Options{Budget: Budget{Hard: 2}})
	must(t, r.Due("a", 0, 1))
	cause := errors.New("deadline of the run")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	_, _, err := r.Adopt(ctx, "a", 1)
	if !errors.Is(err, cause) || !strings.Contains(err.Error(), "block a at step 1, due at 0") {
		t.Fatalf("err = %v", err)
	}
	r.Publish("a", 0, 5)
	if e, changed, err := r.Adopt(t.Context(), "a", 1); err != nil || !changed || e.Value != 5 {
		t.Fatalf("a later Adopt gave %+v, %v, %v", e, changed, err)
	}
}

func TestReadyAdoptsAtTheFirstPointAfterPublicationAndWaitsAtTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTest(t, Options{Mode: Ready, Budget: Budget{Hard: 3}})
		must(t, r.Due("a", 0, 0))
		for step := int64(0); step < 3; step++ {
			if _, changed, err := r.Adopt(t.Context(), "a", step); changed || err != nil {
				t.Fatalf("step %d: changed %v, err %v", step, changed, err)
			}
		}
		go func() { r.Publish("a", 0, 1) }()
		if e, changed, _ := r.Adopt(t.Context(), "a", 3); !changed || e.Age(3) != 3 {
			t.Fatalf("at the budget: %+v, changed %v", e, changed)
		}
		must(t, r.Due("a", 4, 0))
		r.Publish("a", 4, 2)
		if e, changed, _ := r.Adopt(t.Context(), "a", 5); !changed || e.Value != 2 {
			t.Fatalf("ready value at the next point: %+v, changed %v", e, changed)
		}
	})
}

func TestASecondRefreshOfABlockInFlightIsCoalescedAndCounted(t *testing.T) {
	r := newTest(t, Options{Mode: Ready, Budget: Budget{Hard: 9}})
	must(t, r.Due("a", 0, 0))
	if err := r.Due("a", 1, 0); !errors.Is(err, ErrInFlight) {
		t.Fatalf("err = %v, want ErrInFlight", err)
	}
	must(t, r.Due("b", 1, 0))
	if s := r.Stats(); s.Coalesced != 1 || s.Due != 2 || s.InFlight != 2 {
		t.Fatalf("stats %+v", s)
	}
}

func TestLateAndForeignValuesAreDroppedAndCounted(t *testing.T) {
	var dropped []int64
	r := newTest(t, Options{Budget: Budget{Hard: 5}, Observer: Observer{
		Drop: func(block int, asOf int64) { dropped = append(dropped, asOf) },
	}})
	if _, ok := r.Publish("a", 0, 1); ok {
		t.Error("a value that was never due was accepted")
	}
	must(t, r.Due("a", 10, 12))
	if _, ok := r.Publish("a", 9, 1); ok {
		t.Error("a value of another snapshot was accepted")
	}
	r.Publish("a", 10, 2)
	if _, ok := r.Publish("a", 10, 3); ok {
		t.Error("a published value was replaced")
	}
	if e, _, _ := r.Adopt(t.Context(), "a", 12); e.Value != 2 {
		t.Errorf("adopted %+v", e)
	}
	if !slices.Equal(dropped, []int64{0, 9, 10}) || r.Stats().Dropped != 3 {
		t.Errorf("dropped %v, stats %+v", dropped, r.Stats())
	}
}

func TestAFailedRefreshChangesNothingAndAgeGrowsWithoutStaleness(t *testing.T) {
	r := newTest(t, Options{Budget: Budget{Hard: 5}})
	_, err := r.Install("a", Entry[int]{Value: 1, AsOf: 0})
	must(t, err)
	must(t, r.Due("a", 10, 12))
	cause := errors.New("non-finite factor")
	if !r.Fail("a", 10, cause) {
		t.Fatal("Fail was refused")
	}
	e, changed, err := r.Adopt(t.Context(), "a", 12)
	if changed || !errors.Is(err, cause) || e.Value != 1 || e.Age(12) != 12 {
		t.Fatalf("%+v, changed %v, err %v", e, changed, err)
	}
	if n, _ := r.Staleness("a", 13); n != 0 {
		t.Fatalf("staleness %d after a failure", n)
	}
	must(t, r.Due("a", 20, 22))
}

func TestANewerInstalledValueIsNotReplacedByALateOne(t *testing.T) {
	r := newTest(t, Options{Budget: Budget{Hard: 5}})
	must(t, r.Due("a", 0, 3))
	r.Publish("a", 0, 1)
	v, err := r.Install("a", Entry[int]{Value: 9, AsOf: 2})
	must(t, err)
	e, changed, err := r.Adopt(t.Context(), "a", 3)
	if changed || err != nil || e.Value != 9 || e.Version != v {
		t.Fatalf("%+v, changed %v, err %v", e, changed, err)
	}
	if _, err := r.Install("a", Entry[int]{Version: v}); !errors.Is(err, ErrOrder) {
		t.Fatalf("a version was given twice: %v", err)
	}
}

func TestReconcileInstallsOnlyOverTheVersionAgreedOn(t *testing.T) {
	r := newTest(t, Options{Budget: Budget{Hard: 5}})
	v, err := r.Install("a", Entry[int]{Value: 1, AsOf: 4})
	must(t, err)
	if r.Reconcile("a", v+1, 7, 9) {
		t.Error("reconciled a version that is not in use")
	}
	if !r.Reconcile("a", v, 7, 9) {
		t.Error("the version in use was not reconciled")
	}
	if e, _ := r.Load("a"); e.Value != 7 || e.Synced != 9 || e.AsOf != 4 || e.Version != v {
		t.Errorf("%+v", e)
	}
}

func TestStaleListsBlocksBeyondTheSoftBudgetInOrder(t *testing.T) {
	r := newTest(t, Options{Budget: Budget{Soft: 2, Hard: 9}})
	must(t, r.Due("c", 0, 9))
	must(t, r.Due("a", 1, 9))
	must(t, r.Due("b", 5, 9))
	if got := slices.Collect(r.Stale(5)); !slices.Equal(got, []string{"a", "c"}) {
		t.Fatalf("stale at 5: %v", got)
	}
}

func TestDrainWaitsForWorkersAndKeepsTheirResultsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTest(t, Options{Budget: Budget{Hard: 5}})
		must(t, r.Due("b", 3, 8))
		go r.Publish("b", 3, 11)
		must(t, r.Drain(t.Context()))
		p, ok := r.Pending("b")
		if !ok || !p.Resolved || p.Value != 11 || p.AdoptAt != 8 {
			t.Fatalf("pending %+v, %v", p, ok)
		}
		if _, ok := r.Load("b"); ok {
			t.Fatal("Drain adopted a value")
		}
	})
}

func TestUnknownBlocksAreNamed(t *testing.T) {
	r := newTest(t, Options{})
	_, _, err := r.Adopt(t.Context(), "zz", 1)
	for _, err := range []error{err, r.Due("zz", 0, 0)} {
		if !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "zz") {
			t.Errorf("err = %v", err)
		}
	}
	if _, ok := r.Load("zz"); ok {
		t.Error("Load found an unknown block")
	}
}

func TestLoadAllocatesNothing(t *testing.T) {
	r := newTest(t, Options{})
	_, err := r.Install("a", Entry[int]{Value: 1})
	must(t, err)
	if n := testing.AllocsPerRun(100, func() { r.Load("a") }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func TestTakeLogForgetsWhatItGave(t *testing.T) {
	r, err := New[string, int]([]string{"a"}, Options{Budget: Budget{Hard: 1}})
	if err != nil {
		t.Fatal(err)
	}
	adopt := func(step int64) {
		if err := r.Due("a", step, step); err != nil {
			t.Fatal(err)
		}
		r.Publish("a", step, 1)
		if _, changed, err := r.Adopt(context.Background(), "a", step); err != nil || !changed {
			t.Fatal(changed, err)
		}
	}
	adopt(1)
	adopt(2)
	got := r.TakeLog(nil)
	adopt(3)
	got = r.TakeLog(got)
	if len(got) != 3 || got[0].Step != 1 || got[2].Step != 3 || len(r.Log()) != 0 {
		t.Fatalf("took %v, left %v", got, r.Log())
	}
}

// A refresh from Due to Adopt allocates nothing but a slab of entries now and then.
func TestRefreshDoesNotAllocate(t *testing.T) {
	r := newTest(t, Options{Budget: Budget{Hard: 1}})
	var log []Adoption
	step := int64(0)
	if n := testing.AllocsPerRun(1000, func() {
		step++
		if err := r.Due("a", step, step); err != nil {
			t.Fatal(err)
		}
		r.Publish("a", step, 1)
		if err := r.Drain(context.Background()); err != nil {
			t.Fatal(err)
		}
		if _, changed, err := r.Adopt(context.Background(), "a", step); err != nil || !changed {
			t.Fatal(changed, err)
		}
		log = r.TakeLog(log[:0])
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

// Those who wait for a refresh all learn of its end, also when the next one begins
// at once.
func TestEveryWaiterLearns(t *testing.T) {
	r := newTest(t, Options{Budget: Budget{Hard: 1}})
	for step := int64(1); step <= 200; step++ {
		if err := r.Due("a", step, step); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if err := r.Drain(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Go(func() { r.Publish("a", step, int(step)) })
		if e, changed, err := r.Adopt(context.Background(), "a", step); err != nil || !changed || e.Value != int(step) {
			t.Fatal(e, changed, err)
		}
		if step%2 == 0 {
			all.Wait()
			continue
		}
		// The next refresh begins while some may still be waking up.
		step++
		if err := r.Due("a", step, step); err != nil {
			t.Fatal(err)
		}
		if p, ok := r.Pending("a"); !ok || p.Resolved {
			t.Fatalf("the new refresh is resolved already: %+v", p)
		}
		r.Publish("a", step, int(step))
		all.Wait()
		if _, changed, err := r.Adopt(context.Background(), "a", step); err != nil || !changed {
			t.Fatal(changed, err)
		}
	}
}
