package tierctl

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Lease holds a group of objects addressable. The zero value is ready for Acquire,
// and so is a released one: reusing it saves allocations.
type Lease struct {
	c       *Controller
	objects []*object
	missed  int
}

// Len returns the number of objects in the group.
func (l *Lease) Len() int { return len(l.objects) }

// Bytes returns the memory of the group's i-th object, in the order of Acquire. It
// does not move until Release and must not be used afterwards.
func (l *Lease) Bytes(i int) []byte { return l.objects[i].mem.Bytes() }

// Missed is the number of objects of the group that had to be fetched first.
func (l *Lease) Missed() int { return l.missed }

// Expect announces the next use of every object of the group, as
// [Controller.Expect] does.
func (l *Lease) Expect(at Tick) {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range l.objects {
		o.next = at
	}
}

// Discard ends the contents of the group's i-th object with this lease, as
// [Controller.Discard] does.
func (l *Lease) Discard(i int) {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	l.objects[i].doomed = true
}

// Abandon gives up the group's i-th object as [Controller.Abandon] does, and keeps
// its memory in use for ever, beyond Release: for a computation within the lease
// that may never return. The places of the others in the group do not change.
func (l *Lease) Abandon(i int) {
	c, o := l.c, l.objects[i]
	c.mu.Lock()
	defer c.mu.Unlock()
	o.leases++ // the lease that never ends
	c.abandon(o)
}

// Release ends the lease. dirty says that bytes of the group were written, so that
// copies in the backing are out of date. A second Release panics.
func (l *Lease) Release(dirty bool) {
	c := l.c
	if c == nil {
		panic("tierctl: lease released twice")
	}
	l.c = nil
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range l.objects {
		o.leases--
		o.dirty = o.dirty || dirty
		c.settle(o)
	}
	c.changed.Broadcast()
	c.resume()
}

// Acquire makes a group of distinct objects addressable and holds it in l. now is
// the time of this use: what was announced for the objects with Expect at or before
// now is forgotten, so announce the next use after the call. It waits, in the order
// of the calls, until there is room; the goroutine must not hold another lease.
func (c *Controller) Acquire(ctx context.Context, l *Lease, now Tick, ids ...uint64) error {
	if l.c != nil {
		panic("tierctl: lease in use")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l.objects, l.missed = l.objects[:0], 0
	err := c.resolve(l, ids)
	if err == nil && !c.takeResident(l) {
		err = c.wait(ctx, l)
	}
	if err != nil {
		return fmt.Errorf("tierctl: acquire %s: %w", describe(ids), err)
	}
	l.c = c
	for _, o := range l.objects {
		o.last = now
		if o.next <= now {
			o.next = Never
		}
	}
	c.stats.Misses += int64(l.missed)
	c.stats.Hits += int64(len(l.objects) - l.missed)
	return nil
}

// describe lists ids for an error, without making the caller's slice escape.
func describe(ids []uint64) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatUint(id, 10))
	}
	return b.String()
}

// takeResident takes the leases when everything is addressable and nobody waits for
// room: the ordinary case, without a wait or an allocation. It passes a call that
// waits for the backing, which will have to wait for this lease at most once.
func (c *Controller) takeResident(l *Lease) bool {
	if len(c.tickets) > 0 && !c.carries || c.closed {
		return false
	}
	for _, o := range l.objects {
		if o.mem == nil || o.moving || o.doomed {
			return false
		}
	}
	for _, o := range l.objects {
		o.leases++
	}
	return true
}

// wait takes the leases when it is this call's turn and there is room.
func (c *Controller) wait(ctx context.Context, l *Lease) error {
	stop := context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.changed.Broadcast()
	})
	defer stop()
	ticket := new(int)
	c.tickets = append(c.tickets, ticket)
	defer c.leave(ticket)
	for ; ; c.changed.Wait() {
		if err := c.stopped(ctx); err != nil {
			return err
		}
		if c.tickets[0] != ticket {
			continue
		}
		ready, err := c.bring(ctx, l)
		for err == nil && !ready && c.atRest() {
			// Nobody will ever make room.
			if !c.grantLost() {
				return fmt.Errorf("%w: %s", ErrFull, c.fill())
			}
			ready, err = c.bring(ctx, l)
		}
		if err != nil || ready {
			return err
		}
	}
}

// leave gives up a place in the queue of Acquire calls.
func (c *Controller) leave(ticket *int) {
	if c.tickets[0] == ticket {
		c.short = false
		c.resume()
	}
	c.tickets = slices.DeleteFunc(c.tickets, func(t *int) bool { return t == ticket })
	c.changed.Broadcast()
}

// atRest reports whether no object is leased or moving, so that nothing will change.
func (c *Controller) atRest() bool {
	for _, id := range c.ids {
		if c.objects[id].held() {
			return false
		}
	}
	return true
}

func (c *Controller) stopped(ctx context.Context) error {
	if c.closed {
		return ErrClosed
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// resolve fills the group and refuses one that can never fit.
func (c *Controller) resolve(l *Lease, ids []uint64) error {
	var size, limit int64
	for i, id := range ids {
		o, ok := c.objects[id]
		if !ok {
			return fmt.Errorf("%w: %d", ErrUnknown, id)
		}
		if slices.Contains(ids[:i], id) {
			return fmt.Errorf("object %d stands twice", id)
		}
		l.objects = append(l.objects, o)
		size += o.size
	}
	for i := range c.tiers[:c.last+1] {
		if c.tiers[i].Capacity == 0 {
			return nil
		}
		limit += c.tiers[i].Capacity
	}
	if size > limit {
		return fmt.Errorf("%w: %d bytes asked for, capacity %d", ErrFull, size, limit)
	}
	return nil
}

// bring makes the group addressable and takes the leases. It reports false when it
// must wait for another goroutine. The lock is given up during transfers, so the
// group is looked at again after each.
func (c *Controller) bring(ctx context.Context, l *Lease) (ready bool, err error) {
	c.short = false
	for _, o := range l.objects {
		o.leases++ // so that making room for one does not evict another
	}
	defer func() {
		if ready {
			return
		}
		for _, o := range l.objects {
			o.leases--
			c.settle(o)
		}
	}()
	for _, o := range l.objects {
		if o.moving || o.doomed {
			return false, nil
		}
		if o.mem != nil {
			continue
		}
		c.carries, o.unread = true, false
		ok, err := c.fetch(ctx, o, demand)
		c.carries = false
		c.short = err == nil && !ok
		if err != nil || !ok {
			return false, err
		}
		l.missed++
	}
	return true, nil
}
