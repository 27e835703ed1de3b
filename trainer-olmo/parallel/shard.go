package parallel

import (
	"context"
	"slices"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/hiersync"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// Shard is a rank's part of an optimizer whose state is spread over the ranks: it
// updates the pieces that it owns and gets the others' values from their owners.
// One goroutine.
type Shard[T gemm.Float] struct {
	c       *hiersync.Comm
	params  []param.Param[T]
	pieces  []Piece
	handles []hiersync.Handle // by parameter
	counts  [][]int           // by parameter: elements of each rank; nil for one owner
	owner   []int             // by parameter; of the first piece
}

// NewShard cuts params, of which units describes one each, in their order.
func NewShard[T gemm.Float](c *hiersync.Comm, params []param.Param[T], units []Unit) *Shard[T] {
	if len(units) != len(params) {
		panic("parallel: units do not match parameters")
	}
	s := &Shard[T]{
		c: c, params: params, pieces: Cut(units, c.Size()), handles: make([]hiersync.Handle, len(params)),
		counts: make([][]int, len(params)), owner: make([]int, len(params)),
	}
	for i := len(s.pieces) - 1; i >= 0; i-- {
		p := s.pieces[i]
		s.owner[p.Unit] = p.Owner
		if p.Lo > 0 || p.Hi < len(params[p.Unit].Value) {
			s.cut(p)
		}
	}
	return s
}

// cut notes that a parameter has several owners. Their pieces ascend by rank, so
// that they are the parts of an allgather.
func (s *Shard[T]) cut(p Piece) {
	if s.counts[p.Unit] == nil {
		s.counts[p.Unit] = make([]int, s.c.Size())
	}
	s.counts[p.Unit][p.Owner] = p.Hi - p.Lo
}

// Pieces lists who owns what.
func (s *Shard[T]) Pieces() []Piece { return slices.Clone(s.pieces) }

// Mine lists what this rank's optimizer updates, in the order of the parameters: a
// parameter that it owns alone as it is, a piece of one as a vector of the same
// name and role.
func (s *Shard[T]) Mine() []param.Param[T] {
	var mine []param.Param[T]
	for _, k := range s.pieces {
		if k.Owner != s.c.Rank() {
			continue
		}
		p := s.params[k.Unit]
		if s.counts[k.Unit] != nil {
			p.Shape = []int{k.Hi - k.Lo}
			p.Value, p.Grad = p.Value[k.Lo:k.Hi:k.Hi], p.Grad[k.Lo:k.Hi:k.Hi]
		}
		mine = append(mine, p)
	}
	return mine
}

// Exchange gives every rank the values that their owners have computed. It waits
// for everything that it started, also after an error.
func (s *Shard[T]) Exchange(ctx context.Context) error {
	started := 0
	var err error
	for i, p := range s.params {
		if s.counts[i] != nil {
			err = hiersync.StartAllgather(s.c, &s.handles[i], p.Value, s.counts[i])
		} else {
			err = hiersync.StartBroadcast(s.c, &s.handles[i], s.owner[i], p.Value)
		}
		if err != nil {
			break
		}
		started++
	}
	for i := range started {
		if werr := s.handles[i].Wait(ctx); err == nil {
			err = werr
		}
	}
	return err
}
