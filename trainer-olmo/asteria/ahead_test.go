package asteria

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/nvmepage"
)

// A look-ahead covers whole parcels, goes round, and reaches the next one at least.
func TestLookAheadReachesAsFarAsItsBytes(t *testing.T) {
	order := func(sizes ...int64) (list []*parcel[float32]) {
		for _, n := range sizes {
			list = append(list, &parcel[float32]{size: [2]int64{n / 2, n - n/2}})
		}
		return list
	}
	for _, tc := range []struct {
		name  string
		order []*parcel[float32]
		ahead int64
		want  []int64
	}{
		{"equal", order(10, 10, 10, 10), 25, []int64{2, 2, 2, 2}},
		{"too little for any", order(10, 10, 10), 1, []int64{2, 2, 2}},
		{"more than all", order(10, 10, 10), 1000, []int64{3, 3, 3}},
		{"uneven", order(30, 10, 10, 10), 40, []int64{2, 3, 2, 2}},
		{"one", order(10), 5, []int64{1}},
		{"none", nil, 5, []int64{}},
	} {
		if d := cmp.Diff(tc.want, reachOf(tc.order, tc.ahead)); d != "" {
			t.Errorf("%s: %s", tc.name, d)
		}
	}
}

// What is read ahead is what does not fit, within an eighth of what does and all of it.
func TestLookAheadIsWhatDoesNotFit(t *testing.T) {
	for _, tc := range [][3]int64{{4000, 1000, 1000}, {1500, 1000, 500}, {1010, 1000, 125}, {500, 1000, 125}} {
		if got := lookAhead(tc[0], tc[1]); got != tc[2] {
			t.Errorf("lookAhead(%d, %d) = %d, want %d", tc[0], tc[1], got, tc[2])
		}
	}
}

// Threads take the blocks off the front of the order in which they are read ahead.
func TestStreamingStepsTakeBlocksInOrder(t *testing.T) {
	o := asyncOptions(kron.SOAP)
	p := planOf(t, o)
	for name, host := range map[string]int64{"streams": p.Placed / 2, "fits": p.Placed} {
		o.Tiers = &Tiers{Host: host, NVMe: openNVMe(t, nvmepage.Options{})}
		params := network[float32]()
		r := newRuntime(t, params, 2, o)
		run(t, r, params, 1, 3)
		want := int64(0)
		if name == "streams" {
			want = int64(len(r.queue) + len(r.workers)) // each worker looks once more
		}
		if got := r.ordered.Load(); got != want {
			t.Errorf("%s: %d blocks asked for in order, want %d", name, got, want)
		}
		if s := r.Tiers(); s.Above != p.Placed-host || s.Stepping <= 0 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}
