package tierctl

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/asteria-runtime/asteria/tierctl/tierctltest"
)

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// newTest returns a controller with host memory of the given capacity over nvme.
func newTest(t *testing.T, capacity int64, m *tierctltest.Memory, change func(*Options)) *Controller {
	t.Helper()
	opts := Options{Tiers: []Tier{{Name: "host", Capacity: capacity}, {Name: "nvme", Backing: m}}}
	if m != nil {
		opts.Tiers[1].Capacity = m.Capacity
	}
	if change != nil {
		change(&opts)
	}
	c, err := New(opts)
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

// touch leases an object, checks the counter in it, and increments it.
func touch(t *testing.T, c *Controller, now Tick, id, want uint64) {
	t.Helper()
	l := new(Lease)
	err := c.Acquire(t.Context(), l, now, id)
	must(t, err)
	if got := binary.LittleEndian.Uint64(l.Bytes(0)); got != want {
		t.Fatalf("object %d holds %d, want %d", id, got, want)
	}
	binary.LittleEndian.PutUint64(l.Bytes(0), want+1)
	l.Release(true)
}

func TestOptionsReportEveryFaultTogether(t *testing.T) {
	m := &tierctltest.Memory{}
	o := Options{Policy: 7, Queue: -1, Tiers: []Tier{
		{Name: "a", Backing: m}, {Name: "b", Capacity: -5},
		{Name: "c", Backing: m, Alloc: func(int64) (Memory, error) { return nil, nil }},
	}}
	err := o.Validate()
	for _, want := range []string{"tier a is not addressable", "tier b: capacity -5", "tier c has both", "policy 7", "queue -1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Validate() = %v, want it to name %q", err, want)
		}
	}
	if (Options{}).Validate() == nil {
		t.Error("no tiers were accepted")
	}
}

func TestStateSurvivesEvictionOfEveryObjectOnEveryStep(t *testing.T) {
	m := &tierctltest.Memory{}
	c := newTest(t, 100, m, nil) // room for one object of five
	for id := range uint64(5) {
		must(t, c.Add(id, 100, 0))
	}
	for step := range uint64(10) {
		for id := range uint64(5) {
			touch(t, c, Tick(step*5+id), id, step)
		}
	}
	s := c.Stats()
	if s.Tiers[0].Peak > 100 || s.Tiers[0].Used != 100 || s.Tiers[1].Objects != 4 {
		t.Fatalf("stats %+v", s)
	}
	if s.Misses != 50 || s.Hits != 0 {
		t.Errorf("%d hits, %d misses: want every use to miss", s.Hits, s.Misses)
	}
}

func TestTheObjectNeededLastLeaves(t *testing.T) {
	c := newTest(t, 300, &tierctltest.Memory{}, nil)
	for id := range uint64(3) {
		must(t, c.Add(id, 100, 0), c.Expect(id, Tick(10+id)))
	}
	must(t, c.Expect(1, 99))
	must(t, c.Add(3, 100, 0))
	if where, _ := c.Where(1); where != 1 {
		t.Fatal("object 1, needed last, did not leave")
	}
}

func TestLRUEvictsWhatWasUsedLongestAgo(t *testing.T) {
	c := newTest(t, 300, &tierctltest.Memory{}, func(o *Options) { o.Policy = LRU })
	for id := range uint64(3) {
		must(t, c.Add(id, 100, 0))
	}
	for now, id := range []uint64{0, 2, 1, 0} {
		touch(t, c, Tick(now+1), id, uint64(now/3))
	}
	must(t, c.Add(3, 100, 0))
	if where, _ := c.Where(2); where != 1 {
		t.Fatal("object 2, used longest ago, did not leave")
	}
}

func TestAnUnchangedObjectLeavesWithoutAWrite(t *testing.T) {
	m := &tierctltest.Memory{}
	c := newTest(t, 100, m, nil)
	must(t, c.Add(1, 100, 0), c.Add(2, 100, 0))
	touch(t, c, 1, 1, 0)
	touch(t, c, 2, 2, 0)
	saves := 0
	m.Fault = func(op string, _ uint64) error {
		if op == "save" {
			saves++
		}
		return nil
	}
	l := new(Lease)
	err := c.Acquire(t.Context(), l, 3, 1)
	must(t, err)
	l.Release(false) // read only
	touch(t, c, 4, 2, 1)
	if saves != 1 || c.Stats().WritesSaved != 1 {
		t.Fatalf("%d writes, %d saved: want one write, of object 2, and none of object 1", saves, c.Stats().WritesSaved)
	}
}

func TestAGroupIsTakenAsAWholeAndItsBytesStay(t *testing.T) {
	c := newTest(t, 200, &tierctltest.Memory{}, nil)
	for id := range uint64(4) {
		must(t, c.Add(id, 100, 0))
	}
	l := new(Lease)
	err := c.Acquire(t.Context(), l, 1, 0, 3)
	must(t, err)
	a, b := &l.Bytes(0)[0], &l.Bytes(1)[0]
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Acquire(ctx, new(Lease), 2, 1); !errors.Is(err, context.Canceled) {
		t.Fatalf("a third object found room: %v", err)
	}
	if c.Prefetch(1) != 1 {
		t.Fatal("the hint was not taken")
	}
	for c.Stats().HintsDropped == 0 {
		time.Sleep(time.Millisecond)
	}
	if a != &l.Bytes(0)[0] || b != &l.Bytes(1)[0] {
		t.Fatal("leased bytes moved")
	}
	l.Release(false)
}

func TestAWaitingGroupGetsRoomWhenALeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &tierctltest.Memory{}
		c, err := New(Options{Tiers: []Tier{{Name: "host", Capacity: 100}, {Name: "nvme", Backing: m}}})
		must(t, err)
		must(t, c.Add(1, 100, 0), c.Add(2, 100, 0))
		l := new(Lease)
		err = c.Acquire(t.Context(), l, 1, 1)
		must(t, err)
		got := make(chan error)
		go func() {
			second := new(Lease)
			err := c.Acquire(t.Context(), second, 2, 2)
			if err == nil {
				second.Release(false)
			}
			got <- err
		}()
		synctest.Wait()
		select {
		case err := <-got:
			t.Fatalf("the second group did not wait: %v", err)
		default:
		}
		l.Release(true)
		must(t, <-got, c.Close())
	})
}

func TestWhatCanNeverFitIsRefusedAtOnce(t *testing.T) {
	c := newTest(t, 250, &tierctltest.Memory{}, nil)
	for id := range uint64(3) {
		must(t, c.Add(id, 100, 0))
	}
	if err := c.Acquire(t.Context(), new(Lease), 1, 0, 1, 2); !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "300 bytes") {
		t.Errorf("three objects in room for two: %v", err)
	}
	if err := c.Add(9, 251, 0); !errors.Is(err, ErrFull) {
		t.Errorf("an object larger than the tier: %v", err)
	}
}

func TestRoomSplitOverTiersThatNoGroupFitsIsAnErrorNotAWait(t *testing.T) {
	m := &tierctltest.Memory{}
	c, err := New(Options{Tiers: []Tier{
		{Name: "device", Capacity: 150}, {Name: "host", Capacity: 150}, {Name: "nvme", Backing: m},
	}})
	must(t, err)
	for id := range uint64(3) {
		must(t, c.Add(id, 100, 0))
	}
	if err := c.Acquire(t.Context(), new(Lease), 1, 0, 1, 2); !errors.Is(err, ErrFull) {
		t.Errorf("err = %v, want ErrFull", err)
	}
	touch(t, c, 2, 2, 0)
	must(t, c.Close())
}

func TestUnknownTwiceAndBadObjectsAreNamed(t *testing.T) {
	c := newTest(t, 100, &tierctltest.Memory{}, nil)
	must(t, c.Add(1, 10, 0))
	if err := c.Acquire(t.Context(), new(Lease), 1, 42); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "42") {
		t.Errorf("unknown: %v", err)
	}
	if err := c.Acquire(t.Context(), new(Lease), 1, 1, 1); err == nil {
		t.Error("an object was taken twice in one group")
	}
	for _, err := range []error{c.Add(1, 10, 0), c.Add(2, 0, 0), c.Add(2, 10, 5), c.Expect(9, 1), c.Remove(9)} {
		if err == nil {
			t.Error("a bad call was accepted")
		}
	}
}

func TestAHitAllocatesNothing(t *testing.T) {
	c := newTest(t, 1000, &tierctltest.Memory{}, nil)
	must(t, c.Add(1, 100, 0), c.Add(2, 100, 0))
	var l Lease
	n := testing.AllocsPerRun(100, func() {
		if err := c.Acquire(t.Context(), &l, 1, 1, 2); err != nil {
			t.Fatal(err)
		}
		l.Release(true)
	})
	if n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func TestReleasingTwicePanics(t *testing.T) {
	c := newTest(t, 100, &tierctltest.Memory{}, nil)
	must(t, c.Add(1, 10, 0))
	l := new(Lease)
	err := c.Acquire(t.Context(), l, 1, 1)
	must(t, err)
	l.Release(false)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	l.Release(false)
}

func TestRemoveGivesMemoryAndCopyBack(t *testing.T) {
	m := &tierctltest.Memory{}
	c := newTest(t, 100, m, nil)
	must(t, c.Add(1, 100, 0), c.Add(2, 100, 0)) // 1 is in the backing now
	must(t, c.Remove(1), c.Remove(2))
	s := c.Stats()
	if m.Used() != 0 || s.Tiers[0].Used != 0 || s.Tiers[1].Used != 0 || s.Tiers[1].Objects != 0 {
		t.Fatalf("left over: %d bytes in the backing, stats %+v", m.Used(), s)
	}
}

func TestAPrefetchedObjectIsAHit(t *testing.T) {
	c := newTest(t, 200, &tierctltest.Memory{}, nil)
	for id := range uint64(3) {
		must(t, c.Add(id, 100, 0), c.Expect(id, Tick(100-id)))
	}
	// 0, needed last, left for 2. Now 0 is needed first.
	must(t, c.Expect(0, 1), c.Expect(1, 50), c.Expect(2, 60))
	if c.Prefetch(0) != 1 {
		t.Fatal("the hint was not taken")
	}
	for c.Stats().Prefetched == 0 {
		time.Sleep(time.Millisecond)
	}
	touch(t, c, 1, 0, 0)
	if s := c.Stats(); s.Hits != 1 || s.Misses != 0 {
		t.Fatalf("stats %+v", s)
	}
	if where, _ := c.Where(2); where != 1 {
		t.Error("the prefetch evicted an object needed earlier")
	}
}

// A22: more prefetches than staging buffers, and consumers that hold theirs.
func TestA22_HintsBeyondTheStagingBuffersQueueOrAreDroppedNeverDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &tierctltest.Memory{Delay: time.Millisecond}
		c, err := New(Options{
			Tiers: []Tier{{Name: "host", Capacity: 200}, {Name: "nvme", Backing: m}}, Staging: 200, Queue: 4,
		})
		must(t, err)
		ids := make([]uint64, 12)
		for i := range ids {
			ids[i] = uint64(i)
			must(t, c.Add(uint64(i), 100, 0))
		}
		for step := range Tick(2) {
			held := new(Lease)
			must(t, c.Acquire(t.Context(), held, step*100, 0)) // held across the whole step
			for i, id := range ids[1:] {
				must(t, c.Expect(id, step*100+Tick(i)+1))
			}
			c.Prefetch(ids[2:]...) // ten at once
			for i, id := range ids[1:] {
				l := new(Lease)
				err := c.Acquire(t.Context(), l, step*100+Tick(i)+1, id)
				must(t, err)
				l.Release(true)
			}
			held.Release(false)
		}
		s := c.Stats()
		if s.HintsDropped == 0 || s.StagingPeak == 0 || s.StagingPeak > 200 || s.Tiers[0].Peak > 200 {
			t.Fatalf("stats %+v", s)
		}
		must(t, c.Close())
	})
}

// A21: the tier below is full, or writes fail: nothing is lost and the run goes on.
func TestA21_AFailedWriteLeavesTheObjectInMemoryAndMarksTheTier(t *testing.T) {
	cause := errors.New("input/output error")
	for name, m := range map[string]*tierctltest.Memory{
		"no space":   {Capacity: 250},
		"every save": {Fault: func(op string, _ uint64) error { return map[string]error{"save": cause}[op] }},
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			c := newTest(t, 200, m, func(o *Options) {
				o.Logger = slog.New(slog.NewTextHandler(&log, nil))
				o.Tiers[1].Capacity = 0 // the controller learns of the limit by failing
			})
			for id := range uint64(8) {
				must(t, c.Add(id, 100, 0))
			}
			for step := range uint64(3) {
				for id := range uint64(8) {
					touch(t, c, Tick(step*8+id), id, step)
				}
			}
			s := c.Stats()
			if n := s.Tiers[1]; !n.Degraded || n.Failures == 0 {
				t.Errorf("the tier is not marked: %+v", n)
			}
			if s.Tiers[0].Over == 0 {
				t.Errorf("memory did not take what the tier refused: %+v", s.Tiers[0])
			}
			if strings.Count(log.String(), "tier degraded") != 1 {
				t.Errorf("want one line, got:\n%s", log.String())
			}
		})
	}
}

func TestAFailedReadIsReturnedWithTheObjectAndTheTier(t *testing.T) {
	m := &tierctltest.Memory{}
	c := newTest(t, 100, m, nil)
	must(t, c.Add(1, 100, 0), c.Add(2, 100, 0))
	cause := errors.New("checksum mismatch")
	m.Fault = func(op string, id uint64) error { return map[string]error{"load": cause}[op] }
	err := c.Acquire(t.Context(), new(Lease), 1, 1)
	if !errors.Is(err, cause) || !strings.Contains(err.Error(), "tier nvme: read object 1") {
		t.Fatalf("err = %v", err)
	}
	m.Fault = nil
	touch(t, c, 2, 1, 0) // still there, still readable
}

func TestCopiesOfResidentObjectsGiveWayWhenTheBackingIsFull(t *testing.T) {
	m := &tierctltest.Memory{Capacity: 300}
	c := newTest(t, 200, m, nil)
	for id := range uint64(4) { // 400 bytes in 500: copies of all four do not fit
		must(t, c.Add(id, 100, 0))
	}
	for step := range uint64(4) {
		for id := range uint64(4) {
			touch(t, c, Tick(step*4+id), id, step)
		}
	}
	if s := c.Stats(); s.Tiers[1].Degraded || s.Tiers[0].Over > 0 {
		t.Fatalf("stats %+v", s)
	}
}

func TestAnEmptyObjectTakesNothingAndReadsAsZero(t *testing.T) {
	m := &tierctltest.Memory{}
	c := newTest(t, 100, m, nil)
	must(t, c.AddEmpty(1, 100, 0), c.AddEmpty(2, 100, 0))
	if s := c.Stats(); s.Tiers[0].Used != 0 || c.Prefetch(1) != 0 {
		t.Fatalf("empty objects are in memory or wait to be: %+v", s)
	}
	touch(t, c, 1, 1, 0)
	touch(t, c, 2, 2, 0) // evicts 1
	touch(t, c, 3, 1, 1) // evicts 2
	must(t, c.Discard(1), c.Discard(2))
	if where, err := c.Where(2); where != Nowhere || err != nil {
		t.Errorf("a discarded object is in tier %d, %v", where, err)
	}
	if s := c.Stats(); s.Tiers[0].Used != 0 || s.Tiers[1].Objects != 0 {
		t.Errorf("discarded objects are kept: %+v", s)
	}
	touch(t, c, 4, 1, 0)
	touch(t, c, 5, 2, 0)
	if err := c.Discard(9); !errors.Is(err, ErrUnknown) {
		t.Errorf("Discard of an unknown object: %v", err)
	}
}

func TestContentsInUseEndWithTheLastLease(t *testing.T) {
	c := newTest(t, 0, nil, func(o *Options) { o.Tiers = o.Tiers[:1] })
	must(t, c.Add(1, 100, 0))
	l, next := new(Lease), new(Lease)
	must(t, c.Acquire(t.Context(), l, 1, 1))
	l.Bytes(0)[0] = 7
	l.Discard(0)
	done := make(chan error)
	go func() { done <- c.Acquire(t.Context(), next, 2, 1) }()
	for waiting := false; !waiting; {
		c.mu.Lock()
		waiting = len(c.tickets) == 1
		c.mu.Unlock()
	}
	if l.Bytes(0)[0] != 7 {
		t.Error("leased bytes changed")
	}
	l.Release(true)
	must(t, <-done)
	if next.Bytes(0)[0] != 0 {
		t.Error("discarded contents came back")
	}
	next.Release(false)
}

func TestAnObjectComesBackToTheTierItPrefers(t *testing.T) {
	c := newTest(t, 0, nil, func(o *Options) {
		o.Tiers = []Tier{{Name: "device", Capacity: 100}, {Name: "host"}}
	})
	must(t, c.AddEmpty(1, 60, 0), c.AddEmpty(2, 60, 0), c.AddEmpty(3, 10, 1))
	for id := range uint64(3) {
		touch(t, c, Tick(id), id+1, 0)
	}
	for id, want := range map[uint64]int{1: 0, 2: 1, 3: 1} {
		if where, _ := c.Where(id); where != want {
			t.Errorf("object %d is in tier %d, want %d", id, where, want)
		}
	}
}

// What a computation that never returns holds is counted and does not stop others,
// though nothing else fits beside it.
func TestAbandonedMemoryDoesNotStopTheOthers(t *testing.T) {
	var log strings.Builder
	c := newTest(t, 100, &tierctltest.Memory{}, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	must(t, c.Add(1, 60, 0), c.Add(2, 60, 0), c.Add(3, 30, 0))
	hung := new(Lease)
	must(t, c.Acquire(t.Context(), hung, 1, 1))
	done := make(chan error)
	go func() {
		l := new(Lease)
		err := c.Acquire(t.Context(), l, 2, 2)
		if err == nil {
			l.Release(true)
		}
		done <- err
	}()
	must(t, c.Abandon(1))
	must(t, <-done)
	if s := c.Stats(); s.Lost != 60 || s.Tiers[0].Over != 50 {
		t.Errorf("stats %+v, want 60 bytes lost and the others in their 100", s)
	}
	if !strings.Contains(log.String(), "abandoned in use") {
		t.Errorf("nothing was said: %q", log.String())
	}
	if err := c.Acquire(t.Context(), new(Lease), 3, 1); !errors.Is(err, ErrUnknown) {
		t.Errorf("an abandoned object was leased: %v", err)
	}
	hung.Release(true)
	if s := c.Stats(); s.Lost != 0 || s.Tiers[0].Over != 0 {
		t.Errorf("stats %+v after the hung lease ended, want nothing lost", s)
	}
	must(t, c.Abandon(3)) // not in use: gone at once
	if s := c.Stats(); s.Lost != 0 || s.Tiers[0].Objects+s.Tiers[1].Objects != 1 {
		t.Errorf("stats %+v, want one object left", s)
	}
}

// One object of a lease may be given up within it: the others come back with the
// release, that one never does.
func TestALeaseGivesUpOneOfItsObjects(t *testing.T) {
	c := newTest(t, 100, &tierctltest.Memory{}, nil)
	must(t, c.Add(1, 30, 0), c.Add(2, 30, 0), c.Add(3, 70, 0))
	l := new(Lease)
	must(t, c.Acquire(t.Context(), l, 1, 1, 2))
	lost := l.Bytes(1)
	l.Abandon(1)
	lost[0] = 7 // still ours
	l.Release(true)
	if s := c.Stats(); s.Lost != 30 || s.Tiers[0].Used != 60 {
		t.Errorf("stats %+v, want 30 bytes lost", s)
	}
	if err := c.Acquire(t.Context(), l, 2, 2); !errors.Is(err, ErrUnknown) {
		t.Errorf("an abandoned object was leased: %v", err)
	}
	must(t, c.Acquire(t.Context(), l, 3, 3)) // evicts object 1, not what is lost
	if got := l.Bytes(0); &got[0] == &lost[0] || lost[0] != 7 {
		t.Error("lost memory was given to another object")
	}
	l.Release(false)
}

func TestReadingStatsAllocatesNothing(t *testing.T) {
	c := newTest(t, 100, &tierctltest.Memory{}, nil)
	var s Stats
	if n := testing.AllocsPerRun(10, func() { c.ReadStats(&s) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if diff := len(s.Tiers) - len(c.Stats().Tiers); diff != 0 {
		t.Errorf("%d tiers too many", diff)
	}
}

func TestReliefHappensInTheBackground(t *testing.T) {
	m := &tierctltest.Memory{}
	c := newTest(t, 400, m, func(o *Options) { o.Pressure = func() float64 { return 0.5 } })
	for id := range uint64(4) {
		must(t, c.Add(id, 100, 0))
	}
	c.Relieve()
	for c.Stats().Tiers[0].Used > 200 {
		time.Sleep(time.Millisecond)
	}
	for id := range uint64(4) {
		touch(t, c, 1, id, 0)
	}
}

func TestPressureDemotesEarly(t *testing.T) {
	part := 0.0
	c := newTest(t, 400, &tierctltest.Memory{}, func(o *Options) { o.Pressure = func() float64 { return part } })
	for id := range uint64(4) {
		must(t, c.Add(id, 100, 0), c.Expect(id, Tick(id)))
	}
	if n, err := c.Rebalance(t.Context()); n != 0 || err != nil {
		t.Fatalf("%d moves without pressure, %v", n, err)
	}
	part = 0.5
	if n, err := c.Rebalance(t.Context()); n != 2 || err != nil {
		t.Fatalf("%d moves under pressure, %v", n, err)
	}
	for id, want := range []int{0, 0, 1, 1} {
		if where, _ := c.Where(uint64(id)); where != want {
			t.Errorf("object %d is in tier %d, want %d", id, where, want)
		}
	}
}

func TestPlanIsPureAndDeterministic(t *testing.T) {
	levels := []Level{{Used: 300, Capacity: 200}, {Used: 100, Capacity: 150}, {}}
	objects := []Object{
		{ID: 1, Size: 100, Tier: 0, NextUse: 5}, {ID: 2, Size: 100, Tier: 0, NextUse: 9},
		{ID: 3, Size: 100, Tier: 0, NextUse: 7, Held: true}, {ID: 4, Size: 100, Tier: 1, NextUse: 1},
	}
	want := []Move{{ID: 2, From: 0, To: 1}}
	before := slices.Clone(objects)
	levels[1].Used, levels[1].Capacity = 100, 200
	for range 3 {
		if got := Plan(levels, objects, NextUse, 0); !slices.Equal(got, want) {
			t.Fatalf("moves %v, want %v", got, want)
		}
	}
	if !slices.Equal(objects, before) || levels[0].Used != 300 {
		t.Fatal("Plan changed its arguments")
	}
}

func TestSystemPressureReadsStallsAndTheGroupsLimit(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	psi := "some avg10=%s avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
	cases := map[string]struct {
		files fstest.MapFS
		want  float64
	}{
		"calm":       {fstest.MapFS{"proc/pressure/memory": file(strings.Replace(psi, "%s", "0.00", 1))}, 0},
		"stalled":    {fstest.MapFS{"proc/pressure/memory": file(strings.Replace(psi, "%s", "50.00", 1))}, 0.5},
		"group full": {fstest.MapFS{"sys/fs/cgroup/memory.max": file("1000\n"), "sys/fs/cgroup/memory.current": file("1000\n")}, 0.5},
		"group half": {fstest.MapFS{"sys/fs/cgroup/memory.max": file("1000\n"), "sys/fs/cgroup/memory.current": file("500\n")}, 0},
		"group of files": {fstest.MapFS{"sys/fs/cgroup/memory.max": file("1000\n"), "sys/fs/cgroup/memory.current": file("1000\n"),
			"sys/fs/cgroup/memory.stat": file("anon 600\ninactive_file 400\nactive_file 0\n")}, 0},
		"own group": {fstest.MapFS{"proc/self/cgroup": file("0::/a/b\n"), "sys/fs/cgroup/memory.max": file("max\n"),
			"sys/fs/cgroup/a/b/memory.max": file("1000\n"), "sys/fs/cgroup/a/b/memory.current": file("1000\n")}, 0.5},
		"group without": {fstest.MapFS{"sys/fs/cgroup/memory.max": file("max\n")}, 0},
	}
	for name, c := range cases {
		if got, err := SystemPressure(c.files); err != nil || got != c.want {
			t.Errorf("%s: %v, %v, want %v", name, got, err, c.want)
		}
	}
	if _, err := SystemPressure(fstest.MapFS{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("no files: %v, want ErrUnsupported", err)
	}
}
