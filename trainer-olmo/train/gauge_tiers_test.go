package train

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asteria-runtime/asteria/trainer-olmo/asteria"
)

// tiersThen is an optimizer whose tiers tell one thing after another.
type tiersThen []asteria.TierTotals

func (s *tiersThen) Tiers() asteria.TierTotals {
	t := (*s)[0]
	if len(*s) > 1 {
		*s = (*s)[1:]
	}
	return t
}

// lines are the records that a gauge writes for so many steps.
func lines(t *testing.T, opt any, steps int64) []Record {
	t.Helper()
	folder := t.TempDir()
	m, err := openMetrics(folder, 0)
	if err != nil {
		t.Fatal(err)
	}
	g := newTierGauge(opt)
	for step := range steps {
		m.begin(step+1, 0)
		g.record(m, opt)
		if err := m.end(); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.close(); err != nil {
		t.Fatal(err)
	}
	recs, err := ReadMetrics(folder)
	if err != nil {
		t.Fatal(err)
	}
	return recs
}

// Sizes are of the moment, counts are of the step.
func TestTiersAreRecordedStepByStep(t *testing.T) {
	tier := func(used int64) [3]asteria.TierUse {
		return [3]asteria.TierUse{{Name: "host", Used: used, Peak: 900}, {Name: "nvme", Used: 70, Peak: 80}}
	}
	opt := &tiersThen{
		{N: 2, Tiers: tier(500), StepLeases: 10, StepHits: 9, StepWaited: time.Second, Read: 1000, Written: 10},
		{N: 2, Tiers: tier(600), StepLeases: 14, StepHits: 12, StepWaited: 1500 * time.Millisecond, Read: 1300, Written: 10},
	}
	want := []Record{
		{"step": 1, "epoch": 0, "tier/host/bytes": 500, "tier/host/peak bytes": 900, "tier/nvme/bytes": 70, "tier/nvme/peak bytes": 80,
			"tier/leases": 10, "tier/hits": 9, "tier/hit rate": 0.9, "tier/wait (s)": 1, "tier/read (bytes)": 1000, "tier/written (bytes)": 10},
		{"step": 2, "epoch": 0, "tier/host/bytes": 600, "tier/host/peak bytes": 900, "tier/nvme/bytes": 70, "tier/nvme/peak bytes": 80,
			"tier/leases": 4, "tier/hits": 3, "tier/hit rate": 0.75, "tier/wait (s)": 0.5, "tier/read (bytes)": 300, "tier/written (bytes)": 0},
	}
	if d := cmp.Diff(want, lines(t, opt, 2)); d != "" {
		t.Error(d)
	}
}

// A state without tiers lies in host memory, and nobody leases it.
func TestAStateWithoutTiersIsInHostMemory(t *testing.T) {
	folder := t.TempDir()
	mustRun(t, testConfig(t, folder, "optimizer.name=soap", "train.stop_at=2"), Options{})
	recs, err := ReadMetrics(folder)
	if err != nil {
		t.Fatal(err)
	}
	last := recs[len(recs)-1]
	if last["tier/host/bytes"] <= 0 {
		t.Errorf("no bytes in host memory: %v", last)
	}
	if _, ok := last[mTierLeases]; ok {
		t.Errorf("leases without tiers: %v", last)
	}
	// A first-order method has no state that tiers could hold.
	if d := cmp.Diff([]Record{{"step": 1, "epoch": 0}}, lines(t, struct{}{}, 1)); d != "" {
		t.Error(d)
	}
}

func TestTheTierGaugeAllocatesNothing(t *testing.T) {
	m, err := openMetrics(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	opt := &tiersThen{{N: 1, Tiers: [3]asteria.TierUse{{Name: "host"}}, StepLeases: 3}}
	g := newTierGauge(opt)
	if n := testing.AllocsPerRun(20, func() { m.begin(1, 0); g.record(m, opt) }); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
}
