package asteria

import (
	"fmt"
	"sort"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/hooks"
	"github.com/asteria-runtime/asteria/kron"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// Shape names a parameter without its values, for planning.
type Shape struct {
	Name string
	Dims []int
	Role param.Role
}

// Shapes returns the shapes of params, in their order.
func Shapes[T gemm.Float](params []param.Param[T]) []Shape {
	out := make([]Shape, len(params))
	for i, p := range params {
		out[i] = Shape{Name: p.Name, Dims: p.Shape, Role: p.Role}
	}
	return out
}

// site is one block and where it lies: tile of shapes[index].
type site[T gemm.Float] struct {
	block *kron.Block[T]
	index int
	tile  kron.Tile
}

// route decides what belongs to the method and what to AdamW: blocks in the
// order of parameter names, and the indices of the other parameters in theirs.
// It allocates no state.
func route[T gemm.Float](shapes []Shape, o Options) (sites []site[T], rest []int, err error) {
	order := make([]int, len(shapes))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(x, y int) bool { return shapes[order[x]].Name < shapes[order[y]].Name })
	for i := 1; i < len(order); i++ {
		if name := shapes[order[i]].Name; name == shapes[order[i-1]].Name {
			return nil, nil, fmt.Errorf("asteria: two parameters are named %s", name)
		}
	}
	for _, i := range order {
		part, err := routeOne[T](shapes[i], i, o)
		if err != nil {
			return nil, nil, err
		}
		if len(part) == 0 {
			rest = append(rest, i)
		}
		sites = append(sites, part...)
	}
	if !o.Stagger {
		return sites, rest, nil
	}
	return stagger(sites, o, shapes), rest, nil
}

// routeOne returns the blocks of one parameter, none when AdamW serves it
// better: other roles, vectors, and shapes of which no side can have a factor.
func routeOne[T gemm.Float](s Shape, index int, o Options) ([]site[T], error) {
	if !o.preconditions(s.Role) {
		return nil, nil
	}
	tiles, err := kron.Partition(s.Dims, o.tiling(len(s.Dims)))
	if err != nil {
		return nil, nil // more than three sides even after merging
	}
	var sites []site[T]
	for i, tile := range tiles {
		name := s.Name
		if len(tiles) > 1 {
			name = fmt.Sprintf("%s#%d", s.Name, i)
		}
		b, err := kron.NewBlock[T](name, tile.Dims, o.blockOf(s, 0))
		if err != nil {
			return nil, err
		}
		if !b.Factored() || b.Modes() < 2 {
			return nil, nil
		}
		sites = append(sites, site[T]{b, index, tile})
	}
	return sites, nil
}

// blockOf returns the block options for a parameter.
func (o Options) blockOf(s Shape, phase int64) kron.Options {
	k := o.block(phase)
	if !o.NoDecay.Decays(s.Name, s.Role) {
		k.WeightDecay = 0
	}
	if s.Role == param.Embedding || s.Role == param.Head {
		k.NoFactor[0] = true
	}
	return k
}

// stagger gives every block its phase. It is a function of the shapes alone, so
// that every rank and every resumed run agrees.
func stagger[T gemm.Float](sites []site[T], o Options, shapes []Shape) []site[T] {
	costs := make([]int64, len(sites))
	for i, s := range sites {
		costs[i] = s.block.RefreshCost()
	}
	for i, phase := range hooks.Stagger(costs, o.block(0).Every) {
		s := &sites[i]
		b, err := kron.NewBlock[T](s.block.Name(), s.tile.Dims, o.blockOf(shapes[s.index], phase))
		if err != nil {
			panic("asteria: a phase made valid options invalid")
		}
		s.block = b
	}
	return sites
}
