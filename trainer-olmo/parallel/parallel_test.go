package parallel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/asteria-runtime/asteria/hiersync"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// units are n seeded units of all kinds: empty, small, large, whole and divisible.
func randomUnits(seed uint64, n int) []Unit {
	g := rand.New(rand.NewPCG(seed, 1))
	units := make([]Unit, n)
	for i := range units {
		elements := []int{0, 1, g.IntN(40), g.IntN(5000)}[g.IntN(4)]
		units[i] = Unit{
			Name: fmt.Sprintf("p%03d", i), Elements: elements, Bytes: int64(elements) * int64(4+g.IntN(20)),
			Cost: g.Int64N(1000), Whole: g.IntN(2) == 0,
		}
	}
	return units
}

// TestA14EveryUnitIsOwnedOnce is field failure A14: 0 to 40 parameters over 1 to 9
// ranks, every element owned by exactly one rank, as a pure function of its input.
func TestA14EveryUnitIsOwnedOnce(t *testing.T) {
	for ranks := 1; ranks <= 9; ranks++ {
		for n := 0; n <= 40; n++ {
			units := randomUnits(uint64(100*ranks+n), n)
			pieces := Cut(units, ranks)
			if again := Cut(slices.Clone(units), ranks); !slices.Equal(pieces, again) {
				t.Fatalf("%d units, %d ranks: two calls differ", n, ranks)
			}
			at, unit := 0, -1
			for _, p := range pieces {
				if p.Unit != unit {
					if unit >= 0 && at != units[unit].Elements || p.Unit != unit+1 {
						t.Fatalf("%d units, %d ranks: unit %d ends at %d of %d", n, ranks, unit, at, units[max(unit, 0)].Elements)
					}
					unit, at = p.Unit, 0
				}
				if p.Lo != at || p.Owner < 0 || p.Owner >= ranks || p.Hi == p.Lo && units[unit].Elements > 0 {
					t.Fatalf("%d units, %d ranks: piece %+v at %d", n, ranks, p, at)
				}
				at = p.Hi
			}
			if unit != n-1 {
				t.Fatalf("%d units, %d ranks: %d have an owner", n, ranks, unit+1)
			}
			for i, o := range Owners(units, ranks) {
				if o < 0 || o >= ranks {
					t.Fatalf("%d units, %d ranks: unit %d is owned by %d", n, ranks, i, o)
				}
			}
		}
	}
}

func TestOwnersFollowNamesNotTheOrderOfTheList(t *testing.T) {
	units := randomUnits(7, 30)
	want := map[string]int{}
	for i, o := range Owners(units, 4) {
		want[units[i].Name] = o
	}
	rand.New(rand.NewPCG(7, 2)).Shuffle(len(units), func(i, j int) { units[i], units[j] = units[j], units[i] })
	for i, o := range Owners(units, 4) {
		if o != want[units[i].Name] {
			t.Errorf("%s is owned by %d after a shuffle, %d before", units[i].Name, o, want[units[i].Name])
		}
	}
}

func TestCostIsBalanced(t *testing.T) {
	for seed := range uint64(50) {
		g := rand.New(rand.NewPCG(seed, 3))
		units, ranks := make([]Unit, 1+g.IntN(60)), 1+g.IntN(8)
		total, largest := int64(0), int64(0)
		for i := range units {
			units[i] = Unit{Name: fmt.Sprint(i), Cost: 1 + g.Int64N(1000)}
			total += units[i].Cost
			largest = max(largest, units[i].Cost)
		}
		load := make([]int64, ranks)
		for i, o := range Owners(units, ranks) {
			load[o] += units[i].Cost
		}
		// A list schedule never exceeds the mean by more than the largest item.
		if most := slices.Max(load); float64(most) > float64(total)/float64(ranks)+float64(largest) {
			t.Errorf("seed %d: %d units over %d ranks: load %v of %d", seed, len(units), ranks, load, total)
		}
	}
}

func TestRowsAreSharedOut(t *testing.T) {
	for n := range 40 {
		for ranks := 1; ranks <= 9; ranks++ {
			at := 0
			for r := range ranks {
				lo, hi := Rows(n, r, ranks)
				if lo != at || hi < lo || hi-lo > n/ranks+1 {
					t.Fatalf("rank %d of %d gets rows [%d, %d) of %d", r, ranks, lo, hi, n)
				}
				at = hi
			}
			if at != n {
				t.Fatalf("%d rows over %d ranks: %d given", n, ranks, at)
			}
		}
	}
}

// TestGroupsOfRanksAreRanks: the rows of a rank are those of the groups that it stands
// for among more.
func TestGroupsOfRanksAreRanks(t *testing.T) {
	for n := range 41 {
		for ranks := 1; ranks <= 8; ranks *= 2 {
			for groups := ranks; groups <= 64; groups *= 2 {
				for r := range ranks {
					lo, hi := Rows(n, r, ranks)
					first, _ := Rows(n, r*groups/ranks, groups)
					_, last := Rows(n, (r+1)*groups/ranks-1, groups)
					if first != lo || last != hi {
						t.Fatalf("%d rows: rank %d of %d has [%d, %d), its groups of %d [%d, %d)", n, r, ranks, lo, hi, groups, first, last)
					}
				}
			}
		}
	}
}

// onRanks runs f on every rank of a world of n.
func onRanks(t *testing.T, n int, f func(ctx context.Context, c *hiersync.Comm) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	nodes := make([]int, n)
	for i := range nodes {
		nodes[i] = i % 2
	}
	w, err := hiersync.NewTwin(ctx, hiersync.TwinOptions{Ranks: n, Nodes: nodes})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, c := range w.Comms() {
		wg.Go(func() {
			if err := errors.Join(f(ctx, c), c.Close()); err != nil {
				t.Errorf("rank %d: %v", c.Rank(), err)
			}
		})
	}
	wg.Wait()
}

// TestGradientsAreSummed starts layers in the backward pass's order on some ranks
// and all at the end on others.
func TestGradientsAreSummed(t *testing.T) {
	onRanks(t, 3, func(ctx context.Context, c *hiersync.Comm) error {
		var buckets []Bucket[float64]
		for i, layer := range []int{-1, 0, 1, 2, -1} {
			grad := make([]float64, 5*i)
			for j := range grad {
				grad[j] = float64(c.Rank() + j)
			}
			buckets = append(buckets, Bucket[float64]{Layer: layer, Grad: grad})
		}
		g := NewGradients(c, buckets)
		if c.Rank() != 1 {
			for layer := 2; layer >= 0; layer-- {
				if err := g.Ready(layer); err != nil {
					return err
				}
			}
		}
		if err := g.Finish(ctx); err != nil {
			return err
		}
		for _, b := range buckets {
			for j, x := range b.Grad {
				if x != float64(3*j+3) {
					return fmt.Errorf("layer %d, element %d: %v", b.Layer, j, x)
				}
			}
		}
		return nil
	})
}

func TestLossesKeepTheOrderOfRows(t *testing.T) {
	const n = 7
	onRanks(t, 4, func(ctx context.Context, c *hiersync.Comm) error { // alternating between two nodes
		l := NewLosses(c)
		for range 3 {
			lo, hi := Rows(n, Place(c), c.Size())
			var mine, squares []float64
			for i := lo; i < hi; i++ {
				mine, squares = append(mine, math.Sqrt(float64(i))), append(squares, float64(i*i))
			}
			rows, z, labels, err := l.Share(ctx, n, mine, squares, c.Rank())
			if err != nil || labels != 6 || len(rows) != n || len(z) != n {
				return fmt.Errorf("%v, z %v, labels %d: %w", rows, z, labels, err)
			}
			for i, x := range rows {
				if x != math.Sqrt(float64(i)) || z[i] != float64(i*i) {
					return fmt.Errorf("row %d is %v and %v", i, x, z[i])
				}
			}
		}
		return nil
	})
}

// TestA17DivergenceIsNamed is field failure A17: the first block that differs and the
// ranks that hold it are in the error of every rank.
func TestA17DivergenceIsNamed(t *testing.T) {
	onRanks(t, 5, func(ctx context.Context, c *hiersync.Comm) error {
		params := []param.Param[float32]{
			{Name: "a", Value: []float32{1, 2}}, {Name: "b", Value: []float32{3}}, {Name: "c", Value: []float32{4, 5}},
		}
		if err := Compare(ctx, c, params, 9); err != nil {
			return fmt.Errorf("equal parameters: %w", err)
		}
		if c.Rank() == 3 {
			params[1].Value[0] = math.Nextafter32(3, 4)
			params[2].Value[1] = 0
		}
		err := Compare(ctx, c, params, 10)
		var e *DivergedError
		if !errors.As(err, &e) || !errors.Is(err, ErrDiverged) || e.Block != "b" || e.Step != 10 || !slices.Equal(e.Ranks, []int{3}) {
			return fmt.Errorf("got %w, want block b on rank 3", err)
		}
		if !strings.Contains(err.Error(), "first in b, after step 10, ranks [3]") {
			return fmt.Errorf("unclear: %w", err)
		}
		return nil
	})
}

// TestShardGivesEveryValueToAll lets each rank write what it owns, and then moves
// its state to rank 0 and back.
func TestShardGivesEveryValueToAll(t *testing.T) {
	for _, ranks := range []int{1, 2, 5, 8} {
		onRanks(t, ranks, func(ctx context.Context, c *hiersync.Comm) error { return shardOnce(ctx, c) })
	}
}

func shardOnce(ctx context.Context, c *hiersync.Comm) error {
	units := []Unit{
		{Name: "m0", Elements: 18, Bytes: 400, Whole: true}, {Name: "v", Elements: 3, Bytes: 24}, {Name: "e", Elements: 500, Bytes: 4000},
		{Name: "m1", Elements: 72, Bytes: 300, Whole: true}, {Name: "none"},
	}
	params := make([]param.Param[float32], len(units))
	for i, u := range units {
		params[i] = param.Param[float32]{Name: u.Name, Value: make([]float32, u.Elements), Grad: make([]float32, u.Elements)}
	}
	s := NewShard(c, params, units)
	var own []param.Section
	own = append(own, param.Section{Name: "adamw/updates", I64: []int64{7}})
	for _, p := range s.Mine() {
		for i := range p.Value {
			p.Value[i] = 1
		}
		m := make([]float32, len(p.Value))
		for i := range m {
			m[i] = float32(c.Rank() + 1)
		}
		own = append(own, param.Section{Name: "adamw/" + p.Name + "/m", F32: m})
	}
	if err := s.Exchange(ctx); err != nil {
		return err
	}
	for _, p := range params {
		if slices.ContainsFunc(p.Value, func(x float32) bool { return x != 1 }) {
			return fmt.Errorf("%s: %v: not every element came from an owner", p.Name, p.Value)
		}
	}
	all, err := s.Sections(ctx, own, false)
	if err != nil {
		return err
	}
	return stateOnce(ctx, c, all, units, own)
}

// stateOnce checks the whole state on rank 0 and that it finds its way back.
func stateOnce(ctx context.Context, c *hiersync.Comm, all *Sections, units []Unit, own []param.Section) error {
	whole, err := all.Gather(ctx)
	if err != nil {
		return err
	}
	if c.Rank() == 0 {
		if len(whole) != len(units)+1 || whole[0].I64[0] != 7 {
			return fmt.Errorf("%d sections, the first %+v", len(whole), whole[0])
		}
		for i, u := range units {
			sec := whole[i+1]
			if sec.Name != "adamw/"+u.Name+"/m" || len(sec.F32) != u.Elements || slices.Contains(sec.F32, 0) {
				return fmt.Errorf("section %d is %s with %d elements %v", i, sec.Name, len(sec.F32), sec.F32)
			}
		}
	}
	before := make([][]float32, len(own))
	for i, sec := range own {
		before[i] = slices.Clone(sec.F32)
	}
	if c.Rank() != 0 {
		for _, sec := range own {
			clear(sec.F32)
			clear(sec.I64)
		}
	}
	if err := all.Scatter(ctx, whole); err != nil {
		return err
	}
	for i, sec := range own {
		if !slices.Equal(sec.F32, before[i]) || own[0].I64[0] != 7 {
			return fmt.Errorf("%s came back as %v", sec.Name, sec.F32)
		}
	}
	return nil
}
