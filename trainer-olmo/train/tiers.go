package train

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/asteria-runtime/asteria/hooks"
	"github.com/asteria-runtime/asteria/nvmepage"
	"github.com/asteria-runtime/asteria/trainer-olmo/asteria"
)

// The drive is measured once, by so many bytes with so many requests in flight.
const (
	preflightBytes = 64 << 20
	preflightDepth = 8
)

// The prefetches are judged every so many steps of a process and at its end: fewer
// than this part of the leases without a wait is explained in the log, once.
const (
	judgeEvery = 20
	wantedHits = 0.95
)

// tiered is an optimizer whose state may lie in tiers.
type tiered interface {
	Tiers() asteria.TierTotals
	Anticipate()
	Freeze() (thaw func())
}

var _ tiered = (*asteria.Runtime[float32])(nil)

// nvme is the NVMe tier of a run; nil is a run without one.
type nvme struct {
	store     *nvmepage.Store
	bandwidth nvmepage.Bandwidth // zero where it could not be measured
	told      bool               // about the prefetches

	last    asteria.TierTotals // after the step before
	fullest moved              // the step that moved most
}

// moved is what one step had the drive do.
type moved struct {
	step          int64
	read, written int64         // bytes
	update        time.Duration // within which most of it happens
}

// openNVMe opens the store that the configuration names and adds it to the tiers
// that it describes. Left-overs of dead runs are reclaimed, of live ones not
// touched: the state itself comes from the checkpoint.
func (r *run[T]) openNVMe(o *asteria.Options) error {
	if o.Tiers == nil {
		return nil
	}
	o.Tiers.Logger = r.log
	path := r.cfg.Tiers.NVMe.Path
	if path == "" {
		return nil
	}
	if err := os.MkdirAll(path, 0o777); err != nil {
		return fmt.Errorf("train: tiers.nvme.path: %w", err)
	}
	n := new(nvme)
	var err error
	if n.store, err = nvmepage.Open(nvmepage.Options{Paths: []string{path}, Logger: r.log}); err != nil {
		return fmt.Errorf("train: tiers.nvme.path: %w", err)
	}
	r.nvme = n
	if n.bandwidth, err = nvmepage.Preflight(context.Background(), path, preflightBytes, preflightDepth); err != nil {
		r.log.Warn("train: tiers.nvme.path could not be measured", "path", path, "err", err)
	}
	if r.cfg.Tiers.Pressure {
		if r.pressure = newPressure(r.opts.System, r.log); r.pressure != nil {
			o.Tiers.Pressure = r.pressure.wanted
		}
	}
	o.Tiers.NVMe, o.Tiers.NVMeSize = n.store, int64(r.cfg.Tiers.NVMe.Size)
	r.log.Info("train: NVMe tier", "path", path, "engine", n.store.Stats().Engine, "direct", n.store.Stats().Direct,
		"read", rate(n.bandwidth.Read), "write", rate(n.bandwidth.Write))
	return nil
}

// rate is a bandwidth for people.
func rate(bytesPerSecond float64) string { return fmt.Sprintf("%.0f MB/s", bytesPerSecond/1e6) }

func (n *nvme) close() error {
	if n == nil {
		return nil
	}
	return n.store.Close()
}

// anticipate has the state of the next update fetched while the layers compute.
func (r *run[T]) anticipate(s *hooks.Schedule) (remove func()) {
	o, ok := r.stepper.opt.(tiered)
	if !ok || r.nvme == nil && !accelerated(o) {
		return func() {}
	}
	fetch := func(context.Context, hooks.Event) error { o.Anticipate(); return nil }
	forward := s.On(hooks.PreForward, "tiers", nil, fetch)
	backward := s.On(hooks.PreBackward, "tiers", nil, fetch)
	return func() { forward(); backward() }
}

// judgePrefetch says once, with the arithmetic, why updates wait for the drive.
func (r *run[T]) judgePrefetch() {
	o, ok := r.stepper.opt.(tiered)
	if !ok || r.nvme == nil {
		return
	}
	t, step := o.Tiers(), r.stepper.pos.Step
	r.nvme.note(t, step, step == r.started+1)
	if r.nvme.told || (step-r.started)%judgeEvery != 0 && step != r.stop || t.HitRate() >= wantedHits {
		return
	}
	r.nvme.told = true
	narrow := ""
	if p, ok := o.(interface{ Plan() asteria.Plan }); ok {
		narrow = tooNarrow(t, p.Plan().Group)
	}
	r.log.Warn("train: updates wait for the NVMe tier: " +
		r.nvme.arithmetic(t, step-r.started, r.clock.seconds/float64(max(1, r.clock.steps))) + narrow)
}

// tooNarrow says that the budgets leave no room to read ahead, if so: they hold the
// state of one block's step, which takes as much as group, and not that of the next.
func tooNarrow(t asteria.TierTotals, group int64) string {
	budget := int64(0)
	for _, u := range t.Tiers[:t.N] {
		if u.Name != asteria.TierNVMe {
			budget += u.Capacity
		}
	}
	if budget >= 2*group {
		return ""
	}
	return fmt.Sprintf("; the budgets of %d bytes hold the step of one large block, which takes up to %d, and not the next one's too: nothing is read ahead of it", budget, group)
}

// note takes note of what a step moved; with the first one of a process the state was
// placed, which does not count.
func (n *nvme) note(t asteria.TierTotals, step int64, first bool) {
	m := moved{step, t.Read - n.last.Read, t.Written - n.last.Written, t.Stepping - n.last.Stepping}
	if !first && m.read+m.written > n.fullest.read+n.fullest.written {
		n.fullest = m
	}
	n.last = t
}

// arithmetic compares what a step moves, and what of it cannot move before the
// update or after it, with what the drive can do.
func (n *nvme) arithmetic(t asteria.TierTotals, steps int64, step float64) string {
	steps = max(1, steps)
	read, written := t.Read/steps, t.Written/steps
	per := func(d time.Duration) float64 { return d.Seconds() / float64(steps) }
	b := n.bandwidth
	text := fmt.Sprintf("%.1f%% of the leases waited less than 1 ms; a step reads %d and writes %d bytes and takes %.3f s, its update %.3f s, in which leases wait %.3f s in all",
		100*t.HitRate(), read, written, step, per(t.Stepping), per(t.StepWaited))
	if b.Read == 0 || b.Write == 0 {
		return text + "; the drive was not measured"
	}
	need := float64(read)/b.Read + float64(written)/b.Write
	update := float64(t.Above)/b.Read + float64(t.Above)/b.Write
	full := n.fullest
	return text + fmt.Sprintf("; at %s read and %s written this alone takes the drive %.3f s; %d bytes are above the budgets and move during the update, which takes it %.3f s; the fullest step, %d, read %d and wrote %d bytes, which takes it %.3f s, in an update of %.3f s: a larger tiers.host moves less",
		rate(b.Read), rate(b.Write), need, t.Above, update,
		full.step, full.read, full.written, float64(full.read)/b.Read+float64(full.written)/b.Write, full.update.Seconds())
}

// logTiers tells, when the run ends, what the tiers did.
func (r *run[T]) logTiers() {
	o, ok := r.stepper.opt.(tiered)
	if !ok {
		return
	}
	t := o.Tiers()
	if t.N == 0 {
		return
	}
	steps := time.Duration(max(1, r.stepper.pos.Step-r.started))
	r.log.Info("train: tiers", "hits", fmt.Sprintf("%.4f", t.HitRate()), "wait", (t.StepWaited / steps).String(), "read", t.Read, "written", t.Written)
	for _, u := range t.Tiers[:t.N] {
		r.log.Info("train: tier", "tier", u.Name, "bytes", u.Used, "peak", u.Peak, "capacity", u.Capacity, "degraded", u.Degraded)
	}
}

// degradedTiers says what is wrong with the tiers, for health.json.
func degradedTiers(o any) (reasons []string) {
	x, ok := o.(tiered)
	if !ok {
		return nil
	}
	t := x.Tiers()
	for _, u := range t.Tiers[:t.N] {
		if u.Degraded {
			reasons = append(reasons, fmt.Sprintf("tier %s: %d writes failed: what should go there stays in memory", u.Name, u.Failures))
		}
		if u.Over > 0 {
			reasons = append(reasons, fmt.Sprintf("tier %s: %d bytes above its capacity of %d", u.Name, u.Over, u.Capacity))
		}
	}
	if t.Lost > 0 {
		reasons = append(reasons, fmt.Sprintf("%d bytes are held by refreshes that were given up", t.Lost))
	}
	return reasons
}
