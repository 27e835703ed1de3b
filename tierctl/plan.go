package tierctl

import (
	"cmp"
	"slices"
)

// Object is what a planner knows of one object.
type Object struct {
	ID      uint64
	Size    int64
	Tier    int
	NextUse Tick // Never when unknown
	LastUse Tick
	Held    bool // leased or moving: stays where it is
	Copy    bool // the backing holds its space already: going there takes no more
}

// Level is what a planner knows of one tier.
type Level struct {
	Used, Capacity int64 // Capacity 0: no limit
}

// Move takes an object from one tier to another.
type Move struct {
	ID       uint64
	From, To int
}

// order compares two objects by who should go first.
func (p Policy) order(a, b Object) int {
	if p == LRU {
		if c := cmp.Compare(a.LastUse, b.LastUse); c != 0 {
			return c
		}
	} else if c := cmp.Compare(b.NextUse, a.NextUse); c != 0 {
		return c
	}
	return cmp.Compare(a.ID, b.ID)
}

// Plan returns the moves that bring every tier under its target: its capacity less
// the part reserve (0 to 1) of it. Objects go one tier down at a time, the ones
// needed last first, into tiers that have room after their own moves. It is a pure
// function: equal arguments give equal moves, and nothing is changed.
func Plan(levels []Level, objects []Object, p Policy, reserve float64) []Move {
	levels = slices.Clone(levels)
	objects = slices.Clone(objects)
	slices.SortFunc(objects, p.order)
	var moves []Move
	for t := len(levels) - 2; t >= 0; t-- { // from below, so that room is made first
		target := levels[t].target(reserve)
		for i := range objects {
			o := &objects[i]
			if levels[t].Capacity == 0 || levels[t].Used <= target {
				break
			}
			room := o.Copy && t+1 == len(levels)-1
			if o.Tier != t || o.Held || !room && !levels[t+1].fits(o.Size) {
				continue
			}
			moves = append(moves, Move{ID: o.ID, From: t, To: t + 1})
			levels[t].Used -= o.Size
			if !room {
				levels[t+1].Used += o.Size
			}
			o.Tier = t + 1
		}
	}
	return moves
}

func (l Level) target(reserve float64) int64 {
	return l.Capacity - int64(reserve*float64(l.Capacity))
}

// less is the level without the part reserve of its capacity.
func (l Level) less(reserve float64) Level {
	if l.Capacity > 0 {
		l.Capacity = max(1, l.target(reserve))
	}
	return l
}

func (l Level) fits(n int64) bool { return l.Capacity == 0 || l.Used+n <= l.Capacity }

// Room returns the objects that must leave tier so that n more bytes fit, in the
// order in which they should leave, and whether that is possible. An object whose
// next use is not after keepUntil stays: a prefetch must not evict what is needed
// before its own object. It is a pure function.
func Room(level Level, objects []Object, tier int, n int64, p Policy, keepUntil Tick) (victims []uint64, ok bool) {
	var previous *Object
	for !level.fits(n) {
		v := p.following(objects, previous, tier, keepUntil)
		if v == nil {
			return nil, false
		}
		victims = append(victims, v.ID)
		level.Used -= v.Size
		previous = v
	}
	return victims, true
}

// following returns the object of tier that should leave next after previous, nil
// for none. A scan for each victim is cheaper than a sort: there are few victims.
func (p Policy) following(objects []Object, previous *Object, tier int, keepUntil Tick) *Object {
	var best *Object
	for i := range objects {
		o := &objects[i]
		if o.Tier != tier || o.Held || p == NextUse && o.NextUse <= keepUntil {
			continue
		}
		if previous != nil && p.order(*o, *previous) <= 0 {
			continue
		}
		if best == nil || p.order(*o, *best) < 0 {
			best = o
		}
	}
	return best
}
