package config

import "github.com/asteria-runtime/asteria/trainer-olmo/asteria"

// tiers translates the section of that name; nil when it places nothing. The store
// on NVMe is opened by who trains.
func (c *Config) tiers() *asteria.Tiers {
	device, host, pinned := int64(c.Tiers.Device), int64(c.Tiers.Host), c.Tiers.Pinned
	switch {
	case device == 0 && host == 0:
		return nil
	case host == 0:
		// Here both are RAM, and the runtime takes a host tier of 0 for one without
		// a limit.
		return &asteria.Tiers{Host: device, Pinned: pinned}
	}
	return &asteria.Tiers{Device: device, Host: host, Pinned: pinned}
}

// RAMBudget is what tiers.device and tiers.host allow of the optimizer's state in
// RAM, in bytes; 0 means no limit.
func (c *Config) RAMBudget() int64 { return int64(c.Tiers.Device) + int64(c.Tiers.Host) }

// tiers checks the section of that name.
func (v *validator) tiers(c *Config) {
	t, first := &c.Tiers, !c.Optimizer.SecondOrder()
	v.fail(t.NVMe.Path != "" && c.RAMBudget() == 0, "tiers.nvme.path", "%q would never be used: without a limit in tiers.host or tiers.device everything stays in RAM", t.NVMe.Path)
	v.fail(t.Pinned && c.RAMBudget() == 0, "tiers.pinned", "true locks the RAM of tiers that there are not; set tiers.host or tiers.device")
	v.fail(t.NVMe.Path == "" && t.NVMe.Size != 0, "tiers.nvme.size", "%d bytes of no tier; set tiers.nvme.path", int64(t.NVMe.Size))
	v.fail(t.NVMe.Path != "" && first, "tiers.nvme.path", "%q needs a second-order optimizer.name (shampoo, soap, kl-shampoo, kl-soap, eigen-shampoo), not %s", t.NVMe.Path, c.Optimizer.Name)
}
