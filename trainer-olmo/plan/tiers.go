package plan

import (
	"errors"
	"fmt"
	"strings"

	"github.com/asteria-runtime/asteria/trainer-olmo/asteria"
	"github.com/asteria-runtime/asteria/trainer-olmo/config"
)

// Tier is what one memory tier holds of the optimizer's state, fastest first.
type Tier struct {
	Name     string
	Bytes    int64
	Capacity int64 // 0: no limit, or that of the drive
}

// The places of the tiers in [Tensor.Tiers] and [Plan.Tiers].
const (
	device = iota
	host
	nvme
	tiers // how many there are
)

// placement fills the tiers in the order of parameters: factors from the device
// tier down, everything else from the host tier down. While a run goes on objects
// move, the sums stay.
type placement struct {
	left [tiers]int64 // what still fits
	used [tiers]int64
}

// unlimited stands for a tier without a limit.
const unlimited = int64(1) << 62

// newPlacement is empty tiers of the configured sizes.
func newPlacement(c *config.Config) *placement {
	f := &placement{}
	f.left[device], f.left[host] = int64(c.Tiers.Device), int64(c.Tiers.Host)
	if c.RAMBudget() == 0 {
		f.left[host] = unlimited
	}
	if c.Tiers.NVMe.Path != "" {
		if f.left[nvme] = int64(c.Tiers.NVMe.Size); f.left[nvme] == 0 {
			f.left[nvme] = unlimited
		}
	}
	return f
}

// put places bytes from a tier down, then from the top: memory is memory before a
// drive is asked. What fits nowhere is counted on the last tier, so that a refusal
// can tell by how much.
func (f *placement) put(from int, bytes int64) (parts [tiers]int64) {
	order := [tiers]int{device, host, nvme}
	if from == host {
		order[0], order[1] = host, device
	}
	for i, t := range order {
		n := min(bytes, f.left[t])
		if i == tiers-1 {
			n = bytes
		}
		parts[t] = n
		f.left[t], f.used[t], bytes = f.left[t]-n, f.used[t]+n, bytes-n
	}
	return parts
}

// placedClass is a class that tiers hold, and the tier that it prefers.
type placedClass struct {
	key  string
	from int
}

// placedClasses are those of a run. Inside the step a refresh works on memory of
// its thread, which is not placed.
func placedClasses(a asteria.Plan) []placedClass {
	classes := []placedClass{{asteria.ClassFactors, device}, {asteria.ClassRoots, host}, {asteria.ClassMoments, host}}
	if a.Pending > 0 {
		classes = append(classes, placedClass{asteria.ClassJobs, host})
	}
	return classes
}

// place distributes the state over the tiers, by class and by parameter. It
// returns the bytes of each class that are not in RAM.
func (p *Plan) place(c *config.Config, a asteria.Plan) (away map[string]int64) {
	f, away := newPlacement(c), map[string]int64{}
	byName := map[string][tiers]int64{}
	for _, class := range placedClasses(a) {
		for _, l := range a.Lines {
			parts := f.put(class.from, l.Bytes[class.key])
			away[class.key] += parts[nvme]
			sum := byName[l.Name]
			for t, n := range parts {
				sum[t] += n
			}
			byName[l.Name] = sum
		}
	}
	for i := range p.Tensors {
		p.Tensors[i].Tiers = byName[p.Tensors[i].Name]
	}
	capacity := [tiers]int64{int64(c.Tiers.Device), int64(c.Tiers.Host), int64(c.Tiers.NVMe.Size)}
	for t, name := range [tiers]string{asteria.TierDevice, asteria.TierHost, asteria.TierNVMe} {
		if f.used[t] > 0 || capacity[t] > 0 {
			p.Tiers = append(p.Tiers, Tier{name, f.used[t], capacity[t]})
		}
	}
	p.offHeap = f.used[device] + f.used[host]
	return away
}

// checkTiers refuses tiers that cannot hold the state, with the arithmetic.
func (p *Plan) checkTiers(c *config.Config, a asteria.Plan) error {
	ram := c.RAMBudget()
	if ram == 0 {
		return nil
	}
	var parts []string
	need := int64(0)
	for _, class := range placedClasses(a) {
		if n := a.Class(class.key); n > 0 {
			parts, need = append(parts, fmt.Sprintf("%s %s", class.key, Size(n))), need+n
		}
	}
	if pad := a.Placed - need; pad > 0 {
		parts, need = append(parts, "whole pages "+Size(pad)), a.Placed
	}
	sum := fmt.Sprintf("the optimizer's state needs %s = %s (%s bytes)", strings.Join(parts, " + "), Size(need), Group(need))
	budget := fmt.Sprintf("tiers.device %s + tiers.host %s", Size(int64(c.Tiers.Device)), Size(int64(c.Tiers.Host)))
	size := int64(c.Tiers.NVMe.Size)
	bounded := 2
	if c.Tiers.Device > 0 {
		bounded++
	}
	slack := a.Slack(bounded)
	switch {
	case a.Group > ram:
		return fmt.Errorf("%w: the step of the largest block needs %s of state at once, %s allow %s, %s too few", ErrOverBudget, Size(a.Group), budget, Size(ram), Size(a.Group-ram))
	case need <= ram:
		return nil
	case c.Tiers.NVMe.Path == "":
		return fmt.Errorf("%w: %s, %s allow %s, %s too few; set tiers.nvme.path or raise a limit", ErrOverBudget, sum, budget, Size(ram), Size(need-ram))
	case size > 0 && need+slack > ram+size:
		return fmt.Errorf("%w: %s and %s free to move the largest part of it, %s + tiers.nvme.size %s allow %s, %s too few", ErrOverBudget, sum, Size(slack), budget, Size(size), Size(ram+size), Size(need+slack-ram-size))
	}
	return nil
}

// ErrOverBudget is wrapped when a plan does not fit its limits.
var ErrOverBudget = errors.New("plan: over budget")
