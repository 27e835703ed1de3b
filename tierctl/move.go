package tierctl

import (
	"context"
	"errors"
	"fmt"
)

// demand, in place of the next use of a prefetched object, makes room for a lease:
// everything that is not in use may go, not only what is needed later.
const demand Tick = -1

// fetch brings o from the backing into an addressable tier. It reports false when
// there is no room now: everything there is leased or on its way. keepUntil is as in
// Room. The lock is given up during transfers; o is marked moving meanwhile.
func (c *Controller) fetch(ctx context.Context, o *object, keepUntil Tick) (ok bool, err error) {
	o.moving = true
	defer c.moved(o)
	level := o.home
	if !c.tiers[level].fits(o.size) {
		if level, err = c.makeRoom(ctx, o.size, keepUntil); err != nil || level < 0 {
			return false, err
		}
	}
	t := &c.tiers[level]
	c.account(o, level, +1) // reserve before the lock is given up
	mem, err := c.load(ctx, o, t)
	if err != nil {
		c.account(o, level, -1)
		return false, err
	}
	if o.empty {
		o.mem, o.tier, o.dirty, o.empty = mem, level, true, false
		return true, nil
	}
	c.backing().objects--
	o.mem, o.tier, o.dirty = mem, level, false
	c.stats.Promoted++
	c.stats.BytesPromoted += o.size
	return true, nil
}

// moved ends a move of o.
func (c *Controller) moved(o *object) {
	o.moving = false
	c.settle(o)
	c.changed.Broadcast()
}

// makeRoom makes n bytes free in some addressable tier, the last one if possible,
// and returns its index; -1 when that must wait for a lease or a move to end.
func (c *Controller) makeRoom(ctx context.Context, n int64, keepUntil Tick) (level int, err error) {
	for {
		if keepUntil != demand && c.short {
			return -1, nil // what has come free is for the lease that waits
		}
		for level := c.last; level >= 0; level-- {
			if c.tiers[level].fits(n) {
				return level, nil
			}
		}
		switch {
		case c.evictOne(ctx, n, c.keep(keepUntil), 0):
		case keepUntil != demand || c.leaving > 0:
			// What Ahead brought in would have to be read again.
			return -1, context.Cause(ctx)
		case c.evictOne(ctx, n, demand, 0):
		case ctx.Err() != nil:
			return -1, context.Cause(ctx)
		case c.overcommit():
			return c.last, nil
		default:
			return -1, nil
		}
	}
}

// keep is until when an object must be needed to stay: a lease that needs room
// first takes what lies beyond the look-ahead.
func (c *Controller) keep(until Tick) Tick {
	if until == demand {
		return max(demand, c.until)
	}
	return until
}

// evictOne demotes one object of a tier that could hold n bytes more without its
// objects and the part reserve of its capacity, from below and in the policy's
// order, and reports whether it could.
func (c *Controller) evictOne(ctx context.Context, n int64, keepUntil Tick, reserve float64) bool {
	for level := c.last; level >= 0; level-- {
		victims, ok := Room(c.tiers[level].level().less(reserve), c.listing(), level, n, c.opts.Policy, keepUntil)
		if ok && c.demoteAny(ctx, victims, keepUntil) {
			return true
		}
	}
	return false
}

func (c *Controller) demoteAny(ctx context.Context, ids []uint64, keepUntil Tick) bool {
	for _, id := range ids {
		if o := c.objects[id]; o != nil && !o.held() && o.mem != nil && c.demote(ctx, o, keepUntil) {
			return true
		}
	}
	return false
}

// overcommit reports whether memory may exceed its capacity: the tier below cannot
// take what should leave, and stopping the run would lose more.
func (c *Controller) overcommit() bool {
	b := c.backing()
	return b != nil && b.degraded
}

// load returns memory with o's contents, from the backing or zero, without the
// lock.
func (c *Controller) load(ctx context.Context, o *object, t *tier) (Memory, error) {
	b, empty := c.backing(), o.empty
	c.mu.Unlock()
	defer c.mu.Lock()
	mem, err := t.alloc(o.size)
	if err != nil {
		return nil, fmt.Errorf("tier %s: object %d, %d bytes: %w", t.Name, o.id, o.size, err)
	}
	if empty {
		clear(mem.Bytes())
		return mem, nil
	}
	if err := b.Backing.Load(ctx, o.id, mem.Bytes()); err != nil {
		return nil, errors.Join(fmt.Errorf("tier %s: read object %d: %w", b.Name, o.id, err), mem.Close())
	}
	return mem, nil
}

// demote moves o one tier down, or past tiers in which only what is needed sooner
// than keepUntil could make room. It reports false when o stayed: no room below, or
// its write failed, which is counted and marks the tier. The lock is given up
// during a write; o is marked moving meanwhile.
func (c *Controller) demote(ctx context.Context, o *object, keepUntil Tick) bool {
	from, to := o.tier, o.tier+1
	for to < c.last+1 && !c.roomAt(ctx, o, to, keepUntil) {
		if to++; keepUntil == demand {
			return false
		}
	}
	if to >= len(c.tiers) {
		return false
	}
	t := &c.tiers[to]
	if o.mem == nil || t.Backing != nil && !c.roomBelow(o, t) {
		return false // its contents may have ended while there was room made
	}
	if err := c.carry(ctx, o, to); err != nil {
		c.moved(o)
		if ctx.Err() == nil {
			c.degrade(t, o, err)
		}
		return false
	}
	c.account(o, from, -1)
	o.tier = to
	c.stats.Demoted++
	c.stats.BytesDemoted += o.size
	c.moved(o)
	return true
}

// carry moves o's contents down to a tier with room, for demote.
func (c *Controller) carry(ctx context.Context, o *object, to int) error {
	o.moving = true
	c.leaving += o.size
	defer func() { c.leaving -= o.size }()
	if c.tiers[to].Backing == nil {
		return c.copyDown(ctx, o, to)
	}
	return c.save(ctx, o, &c.tiers[to])
}

// roomBelow makes room for o in the backing and reports whether there is. An object
// keeps its space while it has a copy there; copies of objects that are in memory
// anyway are given up when space is short.
func (c *Controller) roomBelow(o *object, t *tier) bool {
	if o.backed {
		return true
	}
	for _, id := range c.ids {
		if t.fits(o.size) {
			break
		}
		if other := c.objects[id]; other.backed && (other.mem != nil || other.empty) && !other.moving {
			c.forget(other, t)
		}
	}
	return t.fits(o.size)
}

// roomAt makes room for o in an addressable tier, which demotes its own objects for
// that, and reports whether there is. keepUntil is as in Room.
func (c *Controller) roomAt(ctx context.Context, o *object, level int, keepUntil Tick) bool {
	o.moving = true // keeps o from being chosen itself
	defer c.moved(o)
	t := &c.tiers[level]
	for !t.fits(o.size) {
		victims, ok := Room(t.level(), c.listing(), level, o.size, c.opts.Policy, keepUntil)
		if !ok || !c.demoteAny(ctx, victims, keepUntil) {
			return false
		}
	}
	return true
}

// forget gives up the backing's copy of an object that is in memory or empty.
func (c *Controller) forget(o *object, t *tier) {
	o.backed, o.dirty = false, o.mem != nil
	t.used -= o.size
	if err := t.Backing.Drop(o.id); err != nil {
		c.opts.Logger.Warn("copy was not dropped", "tier", t.Name, "block", o.id, "err", err)
	}
}

// save writes o to the backing unless its copy there is current, and gives the
// memory back after the write was confirmed, never before.
func (c *Controller) save(ctx context.Context, o *object, t *tier) error {
	if o.backed && !o.dirty {
		c.stats.WritesSaved++
	} else if err := c.write(ctx, o, t); err != nil {
		return err
	}
	mem := o.mem
	o.mem = nil
	t.objects++
	if err := mem.Close(); err != nil {
		c.opts.Logger.Warn("memory was not given back", "block", o.id, "err", err)
	}
	return nil
}

// write reserves o's space in the backing and writes it, without the lock.
func (c *Controller) write(ctx context.Context, o *object, t *tier) error {
	if !o.backed {
		t.used += o.size
		t.peak = max(t.peak, t.used)
	}
	c.mu.Unlock()
	err := t.Backing.Save(ctx, o.id, o.mem.Bytes())
	c.mu.Lock()
	if err != nil {
		if !o.backed {
			t.used -= o.size
		}
		return err
	}
	o.backed, o.dirty = true, false
	return nil
}

// copyDown moves o's bytes to the memory of an addressable tier.
func (c *Controller) copyDown(_ context.Context, o *object, to int) error {
	t := &c.tiers[to]
	mem, err := t.alloc(o.size)
	if err != nil {
		return err
	}
	copy(mem.Bytes(), o.mem.Bytes())
	old := o.mem
	o.mem = mem
	c.account(o, to, +1)
	return old.Close()
}

// degrade marks a tier whose write failed and takes its present content as its
// limit, so that planners send nothing more.
func (c *Controller) degrade(t *tier, o *object, err error) {
	t.failures++
	t.limit, t.capped = t.used, true
	if !t.degraded {
		t.degraded = true
		c.opts.Logger.Warn("tier degraded: what should leave memory stays there", "tier", t.Name, "block", o.id, "bytes", o.size, "err", err)
	}
}

// Apply carries out moves, such as those of Plan. Objects that are in use or not
// where the move starts are left alone. It returns the number of moves made.
func (c *Controller) Apply(ctx context.Context, moves []Move) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	made := 0
	for _, m := range moves {
		if err := c.stopped(ctx); err != nil {
			return made, err
		}
		o, ok := c.objects[m.ID]
		if !ok {
			return made, fmt.Errorf("%w: %d", ErrUnknown, m.ID)
		}
		if o.tier != m.From || m.To != m.From+1 || o.held() {
			continue
		}
		if c.demote(ctx, o, demand) {
			made++
		}
	}
	return made, nil
}

// Rebalance plans and applies in one call: it demotes what the pressure of the
// system, if any, wants gone.
func (c *Controller) Rebalance(ctx context.Context) (int, error) {
	reserve := c.reserve()
	levels, objects := c.Snapshot()
	return c.Apply(ctx, Plan(levels, objects, c.opts.Policy, reserve))
}

// Relieve has a mover rebalance in the background.
func (c *Controller) Relieve() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.relieve = true
		c.wake()
	}
}
