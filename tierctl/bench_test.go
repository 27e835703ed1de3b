package tierctl

import (
	"testing"

	"github.com/asteria-runtime/asteria/tierctl/tierctltest"
)

func benchController(b *testing.B, capacity int64) *Controller {
	b.Helper()
	c, err := New(Options{Tiers: []Tier{{Name: "host", Capacity: capacity}, {Name: "nvme", Backing: &tierctltest.Memory{}}}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	for id := range uint64(1000) {
		if err := c.Add(id, 64, 0); err != nil {
			b.Fatal(err)
		}
	}
	return c
}

func benchAcquire(b *testing.B, c *Controller, distinct uint64) {
	b.ReportAllocs()
	now := Tick(0)
	var l Lease
	for b.Loop() {
		now++
		if err := c.Acquire(b.Context(), &l, now, uint64(now)%distinct); err != nil {
			b.Fatal(err)
		}
		l.Release(false)
	}
}

func BenchmarkAcquireHit(b *testing.B)  { benchAcquire(b, benchController(b, 0), 1000) }
func BenchmarkAcquireMiss(b *testing.B) { benchAcquire(b, benchController(b, 64*500), 1000) }

func BenchmarkPlan(b *testing.B) {
	c := benchController(b, 64*500)
	levels, objects := c.Snapshot()
	levels[0].Capacity = 64 * 250
	b.ReportAllocs()
	for b.Loop() {
		if len(Plan(levels, objects, NextUse, 0)) != 250 {
			b.Fatal("moves")
		}
	}
}
