package tierctl

import (
	"cmp"
	"context"
)

// Ahead has the movers bring in whatever is used next at or before until, in the
// order of use, as far as there is room: nothing leaves for it that is needed
// before it. They go on whenever a lease ends, so a caller that announces each next
// use with Expect calls Ahead again only as time goes on. A time before the one
// in force changes nothing. An object whose next use lies in the past, or that
// nobody announced, is not brought in. For objects without contents room is made, up
// to a quarter of the capacity. With [LRU], which knows no next use, nothing is.
func (c *Controller) Ahead(now, until Tick) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.opts.Policy == LRU {
		return
	}
	c.from, c.until = max(c.from, now), max(c.until, until)
	c.resume()
}

// resume wakes a mover, if Ahead wants anything: room may have come free.
func (c *Controller) resume() {
	if c.until >= c.from && !c.closed {
		c.stuck = false
		c.wake()
	}
}

// serveAhead brings in the object that is needed first of those that Ahead wants,
// or makes the room that is to be free, and reports whether it did.
func (c *Controller) serveAhead() bool {
	reserve := c.reserve()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.stuck || c.until < c.from || c.backing() == nil {
		return false
	}
	coming := c.coming()
	if c.crowded(coming, reserve) && c.evictOne(context.Background(), coming, c.until, reserve) {
		return true
	}
	o := c.wanted()
	if o == nil || !c.admits(o, coming, reserve) {
		return false // the end of a lease or of a move wakes a mover
	}
	c.wake() // there may be work for another
	if (coming > 0 || reserve > 0) && !c.shrink(o, coming, reserve) {
		c.stuck = true
		return false
	}
	ok, err := c.stage(o)
	o.unread = err != nil // for whoever leases it; trying again would not end
	c.stuck = c.stuck || !ok && err == nil
	return ok
}

// coming is how many bytes of objects without contents are used next within the
// look-ahead, a quarter of the last addressable tier at most: they want room, and
// nothing is read for them.
func (c *Controller) coming() (bytes int64) {
	for _, id := range c.ids {
		if o := c.objects[id]; o.empty && !o.moving && o.next >= c.from && o.next <= c.until {
			bytes += o.size
		}
	}
	return min(bytes, c.tiers[c.last].level().Capacity/4)
}

// crowded reports whether what is in use and stays leaves less room than for the
// bytes that are coming and the part reserve of the addressable tiers.
func (c *Controller) crowded(coming int64, reserve float64) bool {
	if coming == 0 && reserve == 0 || c.short {
		return false
	}
	used := coming - c.leaving
	for i := range c.tiers[:c.last+1] {
		level := c.tiers[i].level()
		if level.Capacity == 0 {
			return false
		}
		used += level.Used - level.target(reserve)
	}
	return used > 0
}

// wanted returns the object that is needed first of those that Ahead wants and
// that are on their way to no memory yet, nil for none.
func (c *Controller) wanted() (first *object) {
	for _, id := range c.ids {
		o := c.objects[id]
		if o.mem != nil || o.empty || o.moving || o.unread || o.next < c.from || o.next > c.until {
			continue
		}
		if first == nil || cmp.Or(cmp.Compare(o.next, first.next), cmp.Compare(o.id, first.id)) < 0 {
			first = o
		}
	}
	return first
}

// admits reports whether o may be brought in now: within the staging bytes, beside
// the bytes that are coming and the part reserve, and with room that what is needed
// later can make.
func (c *Controller) admits(o *object, coming int64, reserve float64) bool {
	if c.short || c.opts.Staging > 0 && c.staged > 0 && c.staged+o.size > c.opts.Staging {
		return false
	}
	for level := c.last; level >= 0; level-- {
		if _, ok := Room(c.tiers[level].level().less(reserve), c.listing(), level, o.size+coming, c.opts.Policy, o.next); ok {
			return true
		}
	}
	return false
}

// shrink evicts what is needed later than o until o fits beside the bytes that are
// coming and the part reserve, and reports whether it does and no lease waits for room.
func (c *Controller) shrink(o *object, coming int64, reserve float64) bool {
	o.moving = true
	defer c.moved(o)
	for {
		for i := range c.tiers[:c.last+1] {
			if c.tiers[i].level().less(reserve).fits(o.size + coming) {
				return true
			}
		}
		if c.closed || c.short || !c.evictOne(context.Background(), o.size+coming, o.next, reserve) {
			return false
		}
	}
}

// stage fetches o within the staging bytes.
func (c *Controller) stage(o *object) (ok bool, err error) {
	c.staged += o.size
	c.stats.StagingPeak = max(c.stats.StagingPeak, c.staged)
	ok, err = c.fetch(context.Background(), o, o.next)
	c.staged -= o.size
	if err != nil {
		// The object stays where it is; whoever leases it gets the error.
		c.opts.Logger.Warn("prefetch failed", "block", o.id, "err", err)
	}
	if ok {
		c.stats.Prefetched++
	}
	return ok, err
}

// reserve is the part of the addressable capacity that the system wants back.
func (c *Controller) reserve() float64 {
	if c.opts.Pressure == nil {
		return 0
	}
	return min(max(c.opts.Pressure(), 0), 1)
}
