package hooks

import (
	"cmp"
	"slices"
)

// Every is due at the steps with step = phase modulo n: every n-th step, phase 0
// at the multiples of n. phase may be any integer; n is at least 1.
func Every(n, phase int64) When {
	if n < 1 {
		panic("hooks: period below 1")
	}
	phase = mod(phase, n)
	return func(ev Event) bool { return mod(ev.Step, n) == phase }
}

// mod is the remainder in [0, n).
func mod(a, n int64) int64 { return ((a % n) + n) % n }

// Stagger assigns each job, such as one block's refresh of the given cost, a
// phase in [0, period), so that the cost that falls due together is even over
// the steps. It takes the jobs by falling cost and gives each to the phase with
// the least so far (Graham, 1969: the largest sum is at most the mean plus the
// largest cost); between equals it takes the one farthest from those in use, so
// that few jobs spread out. The result depends on the arguments alone.
//
// Costs are in any unit, not negative, and their sum fits an int64.
func Stagger(costs []int64, period int64) []int64 {
	if period < 1 {
		panic("hooks: period below 1")
	}
	order := make([]int, len(costs))
	for i, c := range costs {
		if c < 0 {
			panic("hooks: negative cost")
		}
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(costs[b], costs[a]) })
	phases := make([]int64, len(costs))
	// More phases than jobs: only the first of the spread order can be chosen.
	load := newLoads(period, len(costs))
	for _, i := range order {
		phases[i] = load.add(costs[i])
	}
	return phases
}

// loads holds the sums of the phases that may be chosen.
type loads struct {
	phase []int64 // in the order of preference
	sum   []int64
	jobs  []int // breaks ties between sums, so that jobs without cost spread too
}

func newLoads(period int64, jobs int) *loads {
	p := spread(period, min(period, int64(jobs)))
	return &loads{phase: p, sum: make([]int64, len(p)), jobs: make([]int, len(p))}
}

func (l *loads) add(cost int64) (phase int64) {
	best := 0
	for k := range l.phase {
		if c := cmp.Or(cmp.Compare(l.sum[k], l.sum[best]), cmp.Compare(l.jobs[k], l.jobs[best])); c < 0 {
			best = k
		}
	}
	l.sum[best] += cost
	l.jobs[best]++
	return l.phase[best]
}

// spread returns n phases of a cycle of the given period, each the farthest from
// those before it (the lowest where several are): 0, then the middle, then the
// quarters.
func spread(period, n int64) []int64 {
	var out []int64
	if n > 0 {
		out = append(out, 0)
	}
	for int64(len(out)) < n {
		out = append(out, middle(out, period))
	}
	return out
}

// middle returns the middle of the widest gap between phases in use.
func middle(used []int64, period int64) int64 {
	sorted := slices.Sorted(slices.Values(used))
	at, width := int64(0), int64(-1)
	for i, p := range sorted {
		next := sorted[0] + period
		if i+1 < len(sorted) {
			next = sorted[i+1]
		}
		if next-p > width {
			at, width = p, next-p
		}
	}
	return at + width/2
}
