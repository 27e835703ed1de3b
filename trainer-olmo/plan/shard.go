package plan

import (
	"fmt"
	"slices"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/trainer-olmo/asteria"
	"github.com/asteria-runtime/asteria/trainer-olmo/config"
	"github.com/asteria-runtime/asteria/trainer-olmo/parallel"
)

// Units describes parameters to [parallel.Cut], in their order: those of a
// second-order method stay whole, with the bytes of their state; those of an
// element-wise one may be cut anywhere. T is the type of the weights.
func Units[T gemm.Float](c *config.Config, shapes []asteria.Shape) ([]parallel.Unit, error) {
	units := make([]parallel.Unit, len(shapes))
	index := map[string]int{}
	for i, s := range shapes {
		n := elements(s.Dims)
		units[i] = parallel.Unit{Name: s.Name, Elements: n, Bytes: 2 * elem * int64(n)}
		index[s.Name] = i
	}
	if !c.Optimizer.SecondOrder() {
		return units, nil
	}
	o, err := c.AsteriaOptions()
	if err != nil {
		return nil, err
	}
	a, err := asteria.PlanFor[T](shapes, c.ComputeThreads(), o)
	if err != nil {
		return nil, err
	}
	for _, l := range a.Lines {
		i, ok := index[l.Name]
		if !ok {
			continue // what the blocks share
		}
		units[i].Bytes, units[i].Whole = l.Total(), l.Method != "adamw"
	}
	return units, nil
}

func elements(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// shares are the shapes that each rank's optimizer updates: its own parameters, and
// of those that are cut its piece as a vector.
func shares(shapes []asteria.Shape, units []parallel.Unit, ranks int) [][]asteria.Shape {
	out := make([][]asteria.Shape, ranks)
	for _, p := range parallel.Cut(units, ranks) {
		s := shapes[p.Unit]
		if p.Lo > 0 || p.Hi < units[p.Unit].Elements {
			s.Dims = []int{p.Hi - p.Lo}
		}
		out[p.Owner] = append(out[p.Owner], s)
	}
	return out
}

// kept are the classes of what a step leaves to the next: an optimizer's state
// without the refreshes in flight.
var kept = []string{asteria.ClassMoments, asteria.ClassFactors, asteria.ClassRoots, asteria.ClassCounter}

func keptBytes(a asteria.Plan) int64 {
	n := int64(0)
	for _, class := range kept {
		n += a.Class(class)
	}
	return n
}

// shard divides the state of a second-order method over the ranks and returns the
// plan of the fullest one. Without parallel.shard every rank has all of it.
func (p *Plan) shard(c *config.Config, whole asteria.Plan, o asteria.Options) (asteria.Plan, error) {
	p.StateBytes = keptBytes(whole)
	if p.Ranks < 2 || !c.Parallel.Shard {
		return whole, nil
	}
	all := shapes(p.Model)
	units, err := Units[float32](c, all)
	if err != nil {
		return whole, err
	}
	fullest := asteria.Plan{}
	for rank, own := range shares(all, units, p.Ranks) {
		a, err := asteria.PlanFor[float32](own, c.ComputeThreads(), o)
		if err != nil {
			return whole, err
		}
		p.Shares = append(p.Shares, keptBytes(a))
		if rank == 0 || a.Total() > fullest.Total() {
			fullest = a
		}
	}
	p.uneven()
	return fullest, nil
}

// shardMoments divides the moments of a first-order method, so many per element.
func (p *Plan) shardMoments(c *config.Config, moments int64) error {
	p.StateBytes = moments * p.Parameters * elem
	if p.Ranks < 2 || !c.Parallel.Shard {
		return nil
	}
	all := shapes(p.Model)
	units, err := Units[float32](c, all)
	if err != nil {
		return err
	}
	for _, own := range shares(all, units, p.Ranks) {
		n := int64(0)
		for _, s := range own {
			n += moments * elem * int64(elements(s.Dims))
		}
		p.Shares = append(p.Shares, n)
	}
	p.uneven()
	return nil
}

// Fullest is the largest of the shares, or all of the state where it is not divided.
func (p *Plan) Fullest() int64 {
	if len(p.Shares) == 0 {
		return p.StateBytes
	}
	return slices.Max(p.Shares)
}

// evenly is the largest share as a multiple of an even one.
func (p *Plan) evenly() float64 {
	return float64(p.Fullest()) * float64(p.Ranks) / float64(max(1, p.StateBytes))
}

// uneven notes that the parameters are too few or too large for the ranks: each that
// has factors is with one rank as a whole.
func (p *Plan) uneven() {
	const tolerated = 1.1
	if p.evenly() > tolerated {
		p.Notes = append(p.Notes, fmt.Sprintf("parallel.shard: the fullest of %d ranks holds %.2f times an even share, because a parameter with factors has one owner; on fewer ranks the shares are more even", p.Ranks, p.evenly()))
	}
}
