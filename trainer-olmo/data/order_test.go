package data

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestArgsortIsNumpys(t *testing.T) {
	var file struct {
		Cases []struct {
			Keys  []int64
			Order []int
		}
	}
	readJSON(t, "testdata/argsort.json", &file)
	if len(file.Cases) == 0 {
		t.Fatal("no cases")
	}
	for _, c := range file.Cases {
		if got := argsort(c.Keys); !cmp.Equal(c.Order, got) {
			t.Errorf("%d keys: order differs from numpy's", len(c.Keys))
		}
	}
}

// The heap serves inputs that make quicksort slow; it is tried on its own.
func TestHeapsortSorts(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := argsorter{keys: make([]int64, 1+r.IntN(60))}
		for i := range s.keys {
			s.keys[i] = r.Int64N(20)
			s.order = append(s.order, i)
		}
		s.heapsort(0, len(s.keys)-1)
		if !slices.IsSortedFunc(s.order, func(a, b int) int { return int(s.keys[a] - s.keys[b]) }) {
			t.Fatalf("seed %d: not sorted", seed)
		}
	}
}

func TestEveryInstanceIsInAnEpochOnce(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		s := schedule{n: 1 + r.IntN(300), chunk: 1 + r.IntN(4), world: 1 + r.IntN(4), seed: seed, legacy: seed%2 == 1}
		s.batch = s.world * (1 + r.IntN(3))
		if s.legacy {
			s.chunk = 1
			s.keepLast = seed%4 == 1
		}
		for epoch := range int64(3) {
			checkEpoch(t, &s, epoch)
		}
	}
}

// checkEpoch counts the instances of all ranks of one epoch.
func checkEpoch(t *testing.T, s *schedule, epoch int64) {
	t.Helper()
	seen := make([]int, s.n)
	served := 0
	for k := range s.batches() {
		row, got, err := s.row(epoch*s.batches() + k)
		if err != nil || got != s.firstEpoch()+epoch {
			t.Fatalf("%+v: epoch %d, %v", s, got, err)
		}
		ranks := 0
		for rank := range s.world {
			ranks += len(rankColumns(row, rank, s.world))
		}
		if ranks != len(row) {
			t.Fatalf("%+v: ranks take %d of %d", s, ranks, len(row))
		}
		for _, i := range row {
			seen[i]++
			served++
		}
	}
	if s.keepLast {
		if served != s.length() || slices.Min(seen) < 1 {
			t.Fatalf("%+v: %d served, some not at all", s, served)
		}
		return
	}
	if slices.Max(append(seen, 0)) > 1 || served != int(s.batches())*s.batch {
		t.Fatalf("%+v: an instance came twice, or %d instances in %d batches", s, served, s.batches())
	}
}

func TestChunksStayTogether(t *testing.T) {
	order := CoreOrder(nil, 23, 4, 9, 1)
	if len(order) != 20 {
		t.Fatalf("%d instances, want 20 of 23", len(order))
	}
	for i, v := range order {
		if i%4 != 0 && v != order[i-1]+1 || i%4 == 0 && v%4 != 0 {
			t.Fatalf("order %v", order)
		}
	}
}

func TestOrdersReuseMemory(t *testing.T) {
	dst := make([]uint32, 0, 64)
	if n := testing.AllocsPerRun(10, func() {
		dst = CoreOrder(dst, 60, 2, 3, 1)
		dst = LegacyOrder(dst, 60, 7, true, 3, 1)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestShufflePermutes(t *testing.T) {
	for n := range 70 {
		order := CoreOrder(nil, n, 1, uint64(n), 1)
		slices.Sort(order)
		for i, v := range order {
			if int(v) != i {
				t.Fatalf("n %d: not a permutation", n)
			}
		}
	}
}
