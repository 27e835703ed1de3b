package tierctl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
)

// object is the controller's own record. All fields are guarded by Controller.mu,
// except the bytes of mem, which belong to whoever holds a lease or moves it.
type object struct {
	id     uint64
	size   int64
	home   int // the addressable tier that it prefers
	tier   int
	mem    Memory // nil while the object lives in the backing, or nowhere
	leases int
	moving bool // its bytes are on their way; nobody else may touch them
	dirty  bool // differs from the backing's copy, if there is one
	backed bool // the backing holds a copy
	empty  bool // has no contents: mem is nil, and a copy in the backing is stale
	doomed bool // its contents end with the last lease
	lost   bool // abandoned; it is no longer in the controller's lists
	hinted bool // waits in the prefetch queue
	unread bool // a prefetch could not read it
	next   Tick
	last   Tick
}

func (o *object) held() bool { return o.leases > 0 || o.moving }

// tier is one level's record.
type tier struct {
	Tier
	limit    int64 // capacity in force: lowered when the tier is degraded
	capped   bool  // limit counts even when it is 0
	grace    int64 // added to limit: lost memory that stood in the way
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
	from    Tick     // Ahead brings in what is used next from here
	until   Tick     // to here; before from: nothing
	stuck   bool     // no room could be made for that; until a lease ends
	carries bool     // the first Acquire call that waits is moving an object
	short   bool     // it waits for room
	leaving int64    // bytes on their way down
	stats   Stats
	relieve bool // a mover is to rebalance
	closed  bool
	scratch []Object // of listing
}

// New returns a controller and starts its movers; Close ends them.
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
	opts.Movers = max(1, opts.Movers)
	c := &Controller{opts: opts, objects: map[uint64]*object{}, tasks: make(chan struct{}, opts.Movers), until: math.MinInt64}
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
	for range opts.Movers {
		c.done.Go(c.serveHints)
	}
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
	if err := c.addable(id, size, level); err != nil {
		return err
	}
	home := level
	level, err := c.place(size, level)
	if err != nil {
		return fmt.Errorf("tierctl: add object %d, %d bytes: %w", id, size, err)
	}
	mem, err := c.tiers[level].alloc(size)
	if err != nil {
		return fmt.Errorf("tierctl: add object %d: tier %s: %w", id, c.tiers[level].Name, err)
	}
	clear(mem.Bytes())
	o := &object{id: id, size: size, home: home, tier: level, mem: mem, next: Never, dirty: true}
	c.enlist(o)
	c.account(o, level, +1)
	return nil
}

// AddEmpty creates an object that has no contents and takes no memory before it is
// leased first; its bytes are zero then. It prefers the given tier.
func (c *Controller) AddEmpty(id uint64, size int64, level int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.addable(id, size, level); err != nil {
		return err
	}
	c.enlist(&object{id: id, size: size, home: level, tier: Nowhere, next: Never, empty: true})
	return nil
}

// addable refuses what no object can be.
func (c *Controller) addable(id uint64, size int64, level int) error {
	if c.closed {
		return ErrClosed
	}
	if _, dup := c.objects[id]; dup || size <= 0 || level < 0 || level > c.last {
		return fmt.Errorf("tierctl: add object %d, %d bytes, tier %d: want a new id, 1 or more bytes, tier 0 to %d", id, size, level, c.last)
	}
	return nil
}

func (c *Controller) enlist(o *object) {
	c.objects[o.id] = o
	c.ids = append(c.ids, o.id)
}

func (c *Controller) delist(o *object) {
	delete(c.objects, o.id)
	c.ids = slices.DeleteFunc(c.ids, func(x uint64) bool { return x == o.id })
	c.queue = slices.DeleteFunc(c.queue, func(x uint64) bool { return x == o.id })
}

// place returns the tier for a new object: the one asked for, the next below it
// with room, or one in which room can be made.
func (c *Controller) place(size int64, level int) (int, error) {
	for l := level; l <= c.last; l++ {
		if c.tiers[l].fits(size) {
			return l, nil
		}
	}
	l, err := c.makeRoom(context.Background(), size, demand)
	for err == nil && l < 0 && c.leaving > 0 {
		c.changed.Wait()
		l, err = c.makeRoom(context.Background(), size, demand)
	}
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

func (t *tier) fits(n int64) bool { return t.limit == 0 && !t.capped || t.used+n <= t.limit+t.grace }

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
	c.delist(o)
	return c.free(o)
}

// free gives back all that o occupies and leaves it empty.
func (c *Controller) free(o *object) error {
	err := c.vacate(o)
	if o.backed {
		c.forget(o, c.backing())
	}
	return err
}

// vacate ends o's contents. A copy in the backing keeps its space, stale, so that
// the next eviction needs none.
func (c *Controller) vacate(o *object) (err error) {
	switch {
	case o.mem != nil:
		c.account(o, o.tier, -1)
		err = o.mem.Close()
	case !o.empty:
		c.backing().objects--
	}
	o.mem, o.tier, o.empty, o.doomed, o.dirty, o.next = nil, Nowhere, true, false, false, Never
	c.changed.Broadcast()
	c.resume()
	return err
}

// Discard ends an object's contents: it takes no memory until it is leased again,
// and its bytes are zero then. Its next use is forgotten. Contents in use end with
// the last lease, for which Acquire waits.
func (c *Controller) Discard(id uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, ok := c.objects[id]
	if !ok {
		return fmt.Errorf("%w: %d", ErrUnknown, id)
	}
	o.doomed = !o.empty || o.moving
	c.settle(o)
	return nil
}

// Abandon removes an object that may be in use for ever, such as by a computation
// that never returns. What is in use stays allocated, counts in its tier and in
// Stats.Lost, and goes back if its last lease ends after all.
func (c *Controller) Abandon(id uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, ok := c.objects[id]
	if !ok {
		return fmt.Errorf("%w: %d", ErrUnknown, id)
	}
	c.abandon(o)
	return nil
}

// abandon gives up an object that is listed.
func (c *Controller) abandon(o *object) {
	c.delist(o)
	o.lost = true
	c.stats.Lost += o.size
	if o.leases > 0 {
		c.opts.Logger.Warn("memory is lost to an object that was abandoned in use", "block", o.id, "bytes", o.size)
	}
	c.settle(o)
	c.changed.Broadcast()
}

// settle does what had to wait until o was in nobody's hands.
func (c *Controller) settle(o *object) {
	var err error
	switch {
	case o.held():
		return
	case o.lost:
		c.stats.Lost -= o.size
		t := &c.tiers[c.last]
		t.grace = min(t.grace, c.stats.Lost)
		o.lost = false
		err = c.free(o)
	case o.doomed:
		err = c.vacate(o)
	}
	if err != nil {
		c.opts.Logger.Warn("memory was not given back", "block", o.id, "err", err)
	}
}

// grantLost raises the capacity by what is lost, if it is not yet: the budget is
// exceeded by so much, rather than the run stopped. It reports whether it did.
func (c *Controller) grantLost() bool {
	t := &c.tiers[c.last]
	if t.grace == c.stats.Lost {
		return false
	}
	t.grace = c.stats.Lost
	return true
}

// closeMemory gives o's memory back at the end.
func (o *object) closeMemory() error {
	if o.leases > 0 {
		return fmt.Errorf("tierctl: closed while object %d is leased", o.id)
	}
	mem := o.mem
	if mem == nil {
		return nil
	}
	o.mem, o.empty = nil, true
	return mem.Close()
}

// Where returns the tier that an object lives in, Nowhere for one without contents.
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
	if l.Capacity > 0 {
		l.Capacity += t.grace
	}
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
	var s Stats
	c.ReadStats(&s)
	return s
}

// ReadStats is Stats into s, whose memory it reuses.
func (c *Controller) ReadStats(s *Stats) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := s.Tiers[:0]
	*s = c.stats
	s.Tiers = slices.Grow(list, len(c.tiers))[:len(c.tiers)]
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
}

// Close waits for moves in flight, ends the movers and gives all memory
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
		errs = append(errs, c.objects[id].closeMemory())
	}
	return errors.Join(errs...)
}
