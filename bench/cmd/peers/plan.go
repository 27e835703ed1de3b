package main

import (
	"os"
	"strings"

	"github.com/asteria-runtime/asteria/gemm"
)

// item builds one contest when its turn comes, so that only one holds memory.
type item struct {
	group string
	heavy bool // left out with -quick
	build func() *contest
}

// plan lists the contests of one thread count.
func plan(b *bench) []item {
	var p []item
	add := func(group string, heavy bool, build func(group string) *contest) {
		p = append(p, item{group, heavy, func() *contest { return build(group) }})
	}
	for _, n := range orders {
		for _, s := range []shape{square(n, false, false), square(n, false, true), square(n, true, false)} {
			add("SGEMM square", n > 1024, func(g string) *contest { return products[float32](b, s, g) })
		}
	}
	for _, s := range transformer {
		add("SGEMM transformer", false, func(g string) *contest { return products[float32](b, s, g) })
	}
	for _, n := range orders {
		add("DGEMM", n > 1024, func(g string) *contest { return products[float64](b, square(n, false, false), g) })
	}
	for _, n := range orders {
		for _, trans := range []bool{false, true} {
			add("SSYRK", n > 1024, func(g string) *contest { return rankUpdate[float32](b, n, trans, g) })
		}
	}
	for _, n := range orders {
		addLapack[float32](b, n, add)
		addLapack[float64](b, n, add)
	}
	return p
}

func addLapack[T gemm.Float](b *bench, n int, add func(string, bool, func(string) *contest)) {
	kind, double := "float32", prefix[T]() == "d"
	if double {
		kind = "float64"
	}
	add("EVD "+kind, n > 1024, func(g string) *contest { return eigen[T](b, n, false, g) })
	add("EVD "+kind, n > 512 || double, func(g string) *contest { return eigen[T](b, n, true, g) })
	if !double {
		add("QR "+kind, n > 1024, func(g string) *contest { return orthogonal[T](b, n, g) })
		add("basis refresh "+kind, n > 512, func(g string) *contest { return refresh[T](b, n, g) })
		add("inverse 4th root "+kind, n > 1024, func(g string) *contest { return inverseRoot[T](b, n, g) })
	}
}

func (r *report) measure(b *bench, st *stage, set settings, o options) {
	items := plan(b)
	// Rows of a group stand together, whatever order the plan has.
	for _, g := range groupsOf(items) {
		if !selected(g, o.groups) {
			continue
		}
		first := len(r.Results)
		for _, it := range items {
			if it.group != g || o.quick && it.heavy {
				continue
			}
			c := it.build()
			if len(c.entries) < 2 || !selected(c.shape, o.shapes) {
				continue
			}
			s := set
			if c.flops > 5e9 {
				s.rounds = max(3, set.rounds/2)
			}
			res := c.measure(st, s)
			if c.close != nil {
				c.close()
			}
			if first == len(r.Results) {
				r.printGroup(os.Stdout, g, b.engine.Threads())
			}
			r.Results = append(r.Results, res)
			r.printRow(os.Stdout, &res)
		}
	}
}

func groupsOf(items []item) []string {
	var groups []string
	seen := map[string]bool{}
	for _, it := range items {
		if !seen[it.group] {
			seen[it.group] = true
			groups = append(groups, it.group)
		}
	}
	return groups
}

// selected reports whether a name contains one of the wanted parts, or all are.
func selected(group, wanted string) bool {
	if wanted == "" {
		return true
	}
	for w := range strings.SplitSeq(wanted, ",") {
		if strings.Contains(strings.ToLower(group), strings.ToLower(w)) {
			return true
		}
	}
	return false
}
