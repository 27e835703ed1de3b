package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asteria-runtime/asteria/trainer-olmo/asteria"
)

// The keys of tiers become the runtime's budgets: none places nothing, and device
// alone bounds RAM as host does.
func TestTiersAreTranslated(t *testing.T) {
	for _, c := range []struct {
		set    []string
		want   *asteria.Tiers
		budget int64
	}{
		{nil, nil, 0},
		{[]string{"tiers.host=1GiB"}, &asteria.Tiers{Host: 1 << 30}, 1 << 30},
		{[]string{"tiers.host=1GiB", "tiers.pinned=true"}, &asteria.Tiers{Host: 1 << 30, Pinned: true}, 1 << 30},
		{[]string{"tiers.device=1GiB"}, &asteria.Tiers{Host: 1 << 30}, 1 << 30},
		{[]string{"tiers.device=1GiB", "tiers.host=512MiB"}, &asteria.Tiers{Device: 1 << 30, Host: 512 << 20}, 1536 << 20},
		{[]string{"tiers.host=100MB", "tiers.nvme.path=/nvme", "tiers.nvme.size=1GB"}, &asteria.Tiers{Host: 1e8}, 1e8},
	} {
		got := mustParse(t, base, append(c.set, "optimizer.name=soap")...)
		o, err := got.AsteriaOptions()
		if err != nil {
			t.Errorf("%v: %v", c.set, err)
		}
		if d := cmp.Diff(c.want, o.Tiers); d != "" || got.RAMBudget() != c.budget {
			t.Errorf("%v: budget %d, %s", c.set, got.RAMBudget(), d)
		}
	}
}
