package hooks

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestEveryIsPeriodic(t *testing.T) {
	for _, c := range []struct{ n, phase int64 }{{1, 0}, {10, 0}, {10, 3}, {10, 13}, {10, -7}, {7, 7}} {
		when := Every(c.n, c.phase)
		for step := int64(-20); step < 40; step++ {
			due := when(Event{Step: step})
			if want := (step-c.phase)%c.n == 0; due != want {
				t.Fatalf("Every(%d, %d) at step %d: %v", c.n, c.phase, step, due)
			}
		}
	}
}

func sums(costs, phases []int64, period int64) []int64 {
	s := make([]int64, period)
	for i, p := range phases {
		s[p] += costs[i]
	}
	return s
}

// Graham's bound for list scheduling on m machines: makespan <= mean + (1-1/m)*max.
func TestStaggerBalances(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		period := 1 + r.Int64N(30)
		costs := make([]int64, r.IntN(80))
		var total, largest int64
		for i := range costs {
			n := 1 + r.Int64N(256)
			costs[i] = n * n * n
			total, largest = total+costs[i], max(largest, costs[i])
		}
		phases := Stagger(costs, period)
		for i, p := range phases {
			if p < 0 || p >= period {
				t.Fatalf("seed %d: job %d has phase %d of %d", seed, i, p, period)
			}
		}
		most := slices.Max(sums(costs, phases, period))
		if bound := float64(total)/float64(period) + float64(largest)*(1-1/float64(period)); float64(most) > bound {
			t.Fatalf("seed %d: %d falls due together, bound %.0f", seed, most, bound)
		}
		if !slices.Equal(phases, Stagger(costs, period)) {
			t.Fatalf("seed %d: two calls differ", seed)
		}
	}
}

func TestStaggerSpreadsFewJobs(t *testing.T) {
	for _, c := range []struct {
		jobs   int
		period int64
		gap    int64 // smallest distance between two jobs
	}{{2, 10, 5}, {4, 16, 4}, {3, 10, 2}, {10, 10, 1}, {1, 5, 5}, {5, 1_000_000, 125_000}} {
		for _, cost := range []int64{0, 1} {
			costs := make([]int64, c.jobs)
			for i := range costs {
				costs[i] = cost
			}
			phases := Stagger(costs, c.period)
			slices.Sort(phases)
			for i, p := range phases {
				next := phases[(i+1)%len(phases)]
				if i+1 == len(phases) {
					next += c.period
				}
				if next-p < c.gap {
					t.Fatalf("%d jobs of cost %d in %d steps: phases %v", c.jobs, cost, c.period, phases)
				}
			}
		}
	}
}
