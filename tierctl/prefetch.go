package tierctl

import "context"

// Prefetch asks that objects be made addressable soon, in this order. It never
// waits: a hint for which there is no place in the queue is dropped and counted,
// and so is one for which, when its turn comes, no room can be made without
// evicting what is needed earlier. It returns the number of hints taken.
func (c *Controller) Prefetch(ids ...uint64) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := 0
	for _, id := range ids {
		o, ok := c.objects[id]
		switch {
		case !ok || c.closed || o.mem != nil || o.empty || o.hinted || o.moving:
			continue
		case len(c.queue) >= c.opts.Queue:
			c.stats.HintsDropped++
			continue
		}
		o.hinted = true
		c.queue = append(c.queue, id)
		taken++
	}
	for range taken {
		c.wake()
	}
	return taken
}

// wake gives a mover that sleeps, if any does, something to look at.
func (c *Controller) wake() {
	select {
	case c.tasks <- struct{}{}:
	default: // all are awake already
	}
}

// serveHints is a mover: it serves prefetches and rebalances.
func (c *Controller) serveHints() {
	for range c.tasks {
		if c.takeRelieve() {
			_, _ = c.Rebalance(context.Background()) // moves that fail mark their tier
		}
		for c.serveHint() || c.serveAhead() {
		}
	}
}

func (c *Controller) takeRelieve() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	due := c.relieve && !c.closed
	c.relieve = false
	return due
}

// serveHint takes one hint and reports whether there was one.
func (c *Controller) serveHint() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.queue) == 0 {
		return false
	}
	o := c.objects[c.queue[0]]
	c.queue = c.queue[1:]
	o.hinted = false
	if o.mem != nil || o.moving || o.empty {
		return true // somebody else brought it meanwhile
	}
	if limit := c.opts.Staging; limit > 0 && c.staged+o.size > limit && c.staged > 0 {
		c.stats.HintsDropped++
		return true
	}
	if ok, err := c.stage(o); !ok && err == nil {
		c.stats.HintsDropped++
	}
	return true
}
