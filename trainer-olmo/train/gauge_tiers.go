package train

import "github.com/asteria-runtime/asteria/trainer-olmo/asteria"

// tierGauge writes what the memory tiers did in a step.
type tierGauge struct {
	last  asteria.TierTotals
	whole int64 // bytes of a state that is not in tiers: all of it in host memory
}

// tierMetrics are the names of a tier's metrics, built once.
type tierMetrics struct{ bytes, peak string }

// mTiers are those of every tier, by its name.
var mTiers = map[string]tierMetrics{
	asteria.TierDevice: {"tier/device/bytes", "tier/device/peak bytes"},
	asteria.TierHost:   {"tier/host/bytes", "tier/host/peak bytes"},
	asteria.TierNVMe:   {"tier/nvme/bytes", "tier/nvme/peak bytes"},
}

// The metrics of all tiers together: of a step, except for the rate, which is of
// the leases of the step.
const (
	mTierLeases  = "tier/leases"
	mTierHits    = "tier/hits"
	mTierHitRate = "tier/hit rate"
	mTierWait    = "tier/wait (s)"
	mTierRead    = "tier/read (bytes)"
	mTierWritten = "tier/written (bytes)"
)

// newTierGauge looks at what an optimizer holds: with a plan, it has a state that
// tiers may hold.
func newTierGauge(opt any) *tierGauge {
	g := &tierGauge{}
	if o, ok := opt.(interface{ Plan() asteria.Plan }); ok {
		p := o.Plan()
		for _, class := range []string{asteria.ClassFactors, asteria.ClassRoots, asteria.ClassMoments} {
			g.whole += p.Class(class)
		}
	}
	return g
}

// record adds the readings of a step to its line. A hit is a lease that waited
// less than a millisecond.
func (g *tierGauge) record(m *metricsFile, opt any) {
	o, ok := opt.(interface{ Tiers() asteria.TierTotals })
	if !ok {
		return
	}
	now := o.Tiers()
	if now.N == 0 {
		m.int(mTiers[asteria.TierHost].bytes, g.whole)
		return
	}
	for _, t := range now.Tiers[:now.N] {
		m.int(mTiers[t.Name].bytes, t.Used)
		m.int(mTiers[t.Name].peak, t.Peak)
	}
	leases, hits := now.StepLeases-g.last.StepLeases, now.StepHits-g.last.StepHits
	m.int(mTierLeases, leases)
	m.int(mTierHits, hits)
	if leases > 0 {
		m.num(mTierHitRate, float64(hits)/float64(leases))
	}
	m.num(mTierWait, (now.StepWaited - g.last.StepWaited).Seconds())
	m.int(mTierRead, now.Read-g.last.Read)
	m.int(mTierWritten, now.Written-g.last.Written)
	g.last = now
}
