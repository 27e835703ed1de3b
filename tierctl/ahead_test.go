package tierctl

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asteria-runtime/asteria/tierctl/tierctltest"
)

// bubble runs f in a synctest bubble with a controller over four objects of 100
// bytes, of which host memory holds two; object i is used next at time i.
func bubble(t *testing.T, change func(*Options), f func(t *testing.T, c *Controller, m *tierctltest.Memory)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := &tierctltest.Memory{Delay: 10 * time.Millisecond}
		opts := Options{Tiers: []Tier{{Name: "host", Capacity: 200}, {Name: "nvme", Backing: m}}, Staging: 200}
		if change != nil {
			change(&opts)
		}
		c, err := New(opts)
		must(t, err)
		for id := range uint64(4) {
			must(t, c.Add(id, 100, 0), c.Expect(id, Tick(id)))
		}
		f(t, c, m)
		must(t, c.Close())
	})
}

// where is the tier of every object.
func where(t *testing.T, c *Controller) (tiers [4]int) {
	t.Helper()
	for id := range tiers {
		var err error
		tiers[id], err = c.Where(uint64(id))
		must(t, err)
	}
	return tiers
}

func TestAheadFillsTheCapacityInTheOrderOfUse(t *testing.T) {
	bubble(t, nil, func(t *testing.T, c *Controller, _ *tierctltest.Memory) {
		c.Ahead(0, 1)
		time.Sleep(time.Second)
		if got := where(t, c); got != [4]int{0, 0, 1, 1} {
			t.Fatalf("tiers %v after looking ahead to 1", got)
		}
		touch(t, c, 0, 0, 0) // used, and not announced again: what comes next takes its place
		c.Ahead(1, 3)
		time.Sleep(time.Second)
		if got := where(t, c); got != [4]int{1, 0, 0, 1} {
			t.Errorf("tiers %v after the use of object 0", got)
		}
		if s := c.Stats(); s.Tiers[0].Peak > 200 || s.HintsDropped != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestWithLRUNothingIsBroughtAhead(t *testing.T) {
	bubble(t, func(o *Options) { o.Policy = LRU }, func(t *testing.T, c *Controller, _ *tierctltest.Memory) {
		before := where(t, c)
		c.Ahead(0, 3)
		time.Sleep(time.Second)
		if got := where(t, c); got != before {
			t.Errorf("tiers %v, were %v", got, before)
		}
	})
}

// What cannot be read is tried once; whoever leases it gets the error, and tries anew.
func TestAheadTriesABadObjectOnce(t *testing.T) {
	bubble(t, nil, func(t *testing.T, c *Controller, m *tierctltest.Memory) {
		cause := errors.New("checksum mismatch")
		var loads atomic.Int64
		m.Fault = func(op string, id uint64) error {
			if op == "load" && id == 1 && loads.Add(1) <= 2 {
				return cause
			}
			return nil
		}
		for i := range Tick(3) {
			c.Ahead(0, i)
			time.Sleep(time.Second)
		}
		if n := loads.Load(); n != 1 {
			t.Errorf("%d reads of an object that cannot be read", n)
		}
		if err := c.Acquire(t.Context(), new(Lease), 1, 1); !errors.Is(err, cause) {
			t.Errorf("err = %v", err)
		}
		touch(t, c, 1, 1, 0)
	})
}

// A group in memory does not wait for one that is being read.
func TestAnAddressableGroupPassesOneThatIsBeingRead(t *testing.T) {
	bubble(t, nil, func(t *testing.T, c *Controller, _ *tierctltest.Memory) {
		touch(t, c, 0, 1, 0)
		touch(t, c, 0, 0, 0)
		done := make(chan error)
		go func() {
			var l Lease
			err := c.Acquire(t.Context(), &l, 3, 3)
			if err == nil {
				l.Release(false)
			}
			done <- err
		}()
		synctest.Wait() // it evicts one of them for object 3 now
		resident := uint64(0)
		if c.objects[0].moving {
			resident = 1
		}
		start := time.Now()
		touch(t, c, 1, resident, 1)
		if d := time.Since(start); d != 0 {
			t.Errorf("it waited %v", d)
		}
		must(t, <-done)
	})
}

// What the system wants back is not filled.
func TestAheadLeavesWhatTheSystemWantsBack(t *testing.T) {
	bubble(t, func(o *Options) { o.Pressure = func() float64 { return 0.5 } }, func(t *testing.T, c *Controller, _ *tierctltest.Memory) {
		c.Ahead(0, 3)
		time.Sleep(time.Second)
		_, err := c.Rebalance(t.Context())
		must(t, err)
		time.Sleep(time.Second)
		if got := where(t, c); got != [4]int{0, 1, 1, 1} {
			t.Errorf("tiers %v, want the first object alone", got)
		}
	})
}

// A lease that waits for room gets what comes free before anything is read ahead.
func TestALeaseThatWaitsComesBeforeWhatIsReadAhead(t *testing.T) {
	bubble(t, nil, func(t *testing.T, c *Controller, _ *tierctltest.Memory) {
		var a, b Lease
		must(t, c.Acquire(t.Context(), &a, 0, 0), c.Acquire(t.Context(), &b, 1, 1))
		start, waited := time.Now(), make(chan time.Duration)
		go func() {
			var l Lease
			if err := c.Acquire(t.Context(), &l, 3, 3); err != nil {
				t.Error(err)
			} else {
				l.Release(false)
			}
			waited <- time.Since(start)
		}()
		synctest.Wait()
		c.Ahead(1, 3) // object 2 is needed before 3, but nobody waits for it
		a.Release(true)
		if d := <-waited; d > 20*time.Millisecond {
			t.Errorf("the lease waited %v, want one write and one read", d)
		}
		b.Release(true)
	})
}

// Room is made for what comes into being, where nobody waits yet.
func TestAheadMakesRoomForWhatComesIntoBeing(t *testing.T) {
	bubble(t, nil, func(t *testing.T, c *Controller, _ *tierctltest.Memory) {
		must(t, c.AddEmpty(9, 50, 0), c.Expect(9, 1))
		c.Ahead(0, 1)
		time.Sleep(time.Second)
		start := time.Now()
		touch(t, c, 1, 9, 0)
		if d := time.Since(start); d != 0 {
			t.Errorf("an object without contents waited %v", d)
		}
		must(t, c.Discard(9)) // its next use is forgotten: all room is for the others
		c.Ahead(1, 3)
		time.Sleep(time.Second)
		if used := c.Stats().Tiers[0].Used; used != 200 {
			t.Errorf("%d bytes in use, want 200", used)
		}
	})
}
