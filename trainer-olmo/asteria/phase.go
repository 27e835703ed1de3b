package asteria

import "sort"

// phases assigns each block its phase in the interval: in order of falling
// cost, the phase with the least work so far, the earliest among equals
// (longest processing time first: at most 4/3 of the best balance). It is a
// function of the costs alone, so that every rank and every resumed run agrees.
func phases(costs []float64, every int64) []int64 {
	order := byFallingCost(costs)
	load := make([]float64, every)
	out := make([]int64, len(costs))
	for _, i := range order {
		best := int64(0)
		for p, w := range load {
			if w < load[best] {
				best = int64(p)
			}
		}
		out[i] = best
		load[best] += costs[i]
	}
	return out
}

// byFallingCost returns the indices of costs from the largest to the smallest,
// equal ones in their order.
func byFallingCost(costs []float64) []int {
	order := make([]int, len(costs))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(x, y int) bool { return costs[order[x]] > costs[order[y]] })
	return order
}
