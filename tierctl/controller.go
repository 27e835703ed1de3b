package tierctl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
)

// object is the controller's own record. All fields are guarded by Controller.mu,
// except the bytes of mem, which belong to whoever holds a lease or moves it.
type object struct {
	id     uint64
	size   int64
	tier   int
	mem    Memory // nil while the object lives in the backing
	leases int
	moving bool // its bytes are on their way; nobody else may touch them
	dirty  bool // differs from the backing's copy, if there is one
	backed bool // the backing holds a copy
	hinted bool // waits in the prefetch queue
	next   Tick
	last   Tick
}

func (o *object) held() bool { return o.leases > 0 || o.moving }

// tier is one level's record.
type tier struct {
	Tier
	limit    int64 // capacity in force: lowered when the tier is degraded
	capped   bool  // limit counts even when it is 0
	used     int64
	peak     int64
	objects  int
	degraded bool
	failures int64
}

// Controller owns objects and moves them between tiers.
type Controller struct {
	opts  Options
	last  int // index of the last addressable tier
	tasks chan struct{}
	done  sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond // a lease ended, a move ended, or the controller closed
	tiers   []tier
	objects map[uint64]*object
	ids     []uint64 // in the order of Add: every listing uses it
	tickets []*int   // Acquire calls in their order; only the first may take room
	queue   []uint64 // prefetches waiting
	staged  int64    // bytes of prefetches in flight
	stats   Stats
	closed  bool
	scratch []Object // of listing
}

// New returns a controller and starts its prefetch goroutine; Close ends it.
func New(opts Options) (*Controller, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Queue == 0 {
		opts.Queue = 16
	}
	c := &Controller{opts: opts, objects: map[uint64]*object{}, tasks: make(chan struct{}, 1)}
	c.changed = sync.NewCond(&c.mu)
	for _, t := range opts.Tiers {
		c.tiers = append(c.tiers, tier{Tier: t, limit: t.Capacity})
	}
	c.last = len(c.tiers) - 1
	if c.tiers[c.last].Backing != nil {
		c.last--
	}
	if opts.Staging == 0 {
		c.opts.Staging = c.tiers[c.last].Capacity / 8
	}
	c.done.Go(c.serveHints)
	return c, nil
}

// backing returns the tier that is not addressable, nil when there is none.
func (c *Controller) backing() *tier {
	if c.last == len(c.tiers)-1 {
		return nil
	}
	return &c.tiers[c.last+1]
}

// Add creates an object of size zeroed bytes in the given tier, or in the next
// addressable one below that has room.
func (c *Controller) Add(id uint64, size int64, level int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	if _, dup := c.objects[id]; dup || size <= 0 || level < 0 || level > c.last {
		return fmt.Errorf("tierctl: add object %d, %d bytes, tier %d: want a new id, 1 or more bytes, tier 0 to %d", id, size, level, c.last)
	}
	level, err := c.place(size, level)
	if err != nil {
		return fmt.Errorf("tierctl: add object %d, %d bytes: %w", id, size, err)
	}
	mem, err := c.tiers[level].alloc(size)
	if err != nil {
		return fmt.Errorf("tierctl: add object %d: tier %s: %w", id, c.tiers[level].Name, err)
	}
	o := &object{id: id, size: size, tier: level, mem: mem, next: Never, dirty: true}
	c.objects[id] = o
	c.ids = append(c.ids, id)
	c.account(o, level, +1)
	return nil
}

// place returns the tier for a new object: the one asked for, the next below it
// with room, or one in which room can be made.
func (c *Controller) place(size int64, level int) (int, error) {
	for l := level; l <= c.last; l++ {
		if c.tiers[l].fits(size) {
			return l, nil
		}
	}
	l, err := c.makeRoom(context.Background(), size, -1)
	if err == nil && l < 0 {
		err = fmt.Errorf("%w: everything is leased: %s", ErrFull, c.fill())
	}
	return l, err
}

// fill says how full the addressable tiers are, for errors.
func (c *Controller) fill() string {
	s := ""
	for i := range c.tiers[:c.last+1] {
		t := &c.tiers[i]
		s += fmt.Sprintf("%s %d of %d bytes; ", t.Name, t.used, t.Capacity)
	}
	return s[:len(s)-2]
}

func (t *tier) fits(n int64) bool { return t.limit == 0 && !t.capped || t.used+n <= t.limit }

func (t *tier) alloc(n int64) (Memory, error) {
	if t.Alloc == nil {
		return heap(make([]byte, n)), nil
	}
	return t.Alloc(n)
}

// heap is memory of the Go heap.
type heap []byte

func (h heap) Bytes() []byte { return h }
func (h heap) Close() error  { return nil }

// account books o into (sign +1) or out of (sign -1) a tier.
func (c *Controller) account(o *object, level, sign int) {
	t := &c.tiers[level]
	t.used += int64(sign) * o.size
	t.objects += sign
	t.peak = max(t.peak, t.used)
}

// Expect announces the next use of an object. The latest announcement counts.
func (c *Controller) Expect(id uint64, at Tick) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, ok := c.objects[id]
	if !ok {
		return fmt.Errorf("%w: %d", ErrUnknown, id)
	}
	o.next = at
	return nil
}

// Remove forgets an object, its memory and its copy. It must not be in use.
func (c *Controller) Remove(id uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, ok := c.objects[id]
	if !ok {
		return fmt.Errorf("%w: %d", ErrUnknown, id)
	}
	if o.held() {
		return fmt.Errorf("tierctl: remove object %d: it is in use", id)
	}
	var err error
	if o.mem != nil {
		c.account(o, o.tier, -1)
		err = o.mem.Close()
	} else {
		c.backing().objects--
	}
	if o.backed {
		o.mem = nil
		c.forget(o, c.backing())
	}
	delete(c.objects, id)
	c.ids = slices.DeleteFunc(c.ids, func(x uint64) bool { return x == id })
	c.queue = slices.DeleteFunc(c.queue, func(x uint64) bool { return x == id })
	c.changed.Broadcast()
	return err
}

// Where returns the tier that an object lives in.
func (c *Controller) Where(id uint64) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, ok := c.objects[id]
	if !ok {
		return 0, fmt.Errorf("%w: %d", ErrUnknown, id)
	}
	return o.tier, nil
}

// Snapshot returns what a planner needs, objects in the order of Add.
func (c *Controller) Snapshot() ([]Level, []Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.levels(), slices.Clone(c.listing())
}

func (c *Controller) levels() []Level {
	levels := make([]Level, len(c.tiers))
	for i := range c.tiers {
		levels[i] = c.tiers[i].level()
	}
	return levels
}

// level is the planner's view; a tier that is degraded down to nothing shows as
// one byte, because 0 means no limit there.
func (t *tier) level() Level {
	l := Level{Used: t.used, Capacity: t.limit}
	if t.capped {
		l.Capacity = max(1, t.limit)
	}
	return l
}

// listing describes all objects, in memory that the next call reuses.
func (c *Controller) listing() []Object {
	list := c.scratch[:0]
	for _, id := range c.ids {
		o := c.objects[id]
		list = append(list, Object{ID: id, Size: o.size, Tier: o.tier, NextUse: o.next, LastUse: o.last, Held: o.held(), Copy: o.backed})
	}
	c.scratch = list
	return list
}

// Stats returns a copy of the counters.
func (c *Controller) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Tiers = make([]TierStats, len(c.tiers))
	for i := range c.tiers {
		t := &c.tiers[i]
		s.Tiers[i] = TierStats{
			Name: t.Name, Objects: t.objects, Used: t.used, Peak: t.peak, Capacity: t.Capacity,
			Degraded: t.degraded, Failures: t.failures,
		}
		if t.Capacity > 0 {
			s.Tiers[i].Over = max(0, t.used-t.Capacity)
		}
	}
	return s
}

// Close waits for moves in flight, ends the prefetch goroutine and gives all memory
// back. Objects are gone afterwards; their copies in the backing stay.
func (c *Controller) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	close(c.tasks)
	c.changed.Broadcast()
	c.mu.Unlock()
	c.done.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for slices.ContainsFunc(c.ids, func(id uint64) bool { return c.objects[id].moving }) {
		c.changed.Wait()
	}
	var errs []error
	for _, id := range c.ids {
		o := c.objects[id]
		if o.leases > 0 {
			errs = append(errs, fmt.Errorf("tierctl: closed while object %d is leased", id))
			continue
		}
		if o.mem != nil {
			errs = append(errs, o.mem.Close())
			o.mem = nil
		}
	}
	return errors.Join(errs...)
}
