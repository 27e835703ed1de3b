package parallel

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/asteria-runtime/asteria/hiersync"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// Sections is the state of a sharded optimizer seen as the state of an unsharded
// one: the same names, lengths and order, so that a checkpoint does not depend on
// the number of ranks. All ranks call its methods together.
type Sections struct {
	c   *hiersync.Comm
	own []param.Section
	all []whole
}

// whole is a section of the unsharded optimizer.
type whole struct {
	name  string
	kind  byte // 'f', 'd', 'i': float32, float64, int64
	total int
	parts []part // none when every rank has the section itself
	mine  int    // index in own, -1 when this rank has no part
}

// part is what one rank holds of a section: elements [lo, lo+n).
type part struct{ rank, lo, n int }

// described is a section as its rank tells the others of it.
type described struct {
	Name    string
	Kind    byte
	Lo, Len int
	Total   int
	Key     [4]int // order: state of the method before AdamW's; parameter; tile; place in the list
	Shared  bool
}

// Sections describes own, the sections of this rank's optimizer over
// [Shard.Mine], as parts of the whole. Their names are "method/parameter/what", or
// "method/parameter#tile/what", or without a parameter for what every rank has.
// byName says that the method keeps parameters in the order of their names.
func (s *Shard[T]) Sections(ctx context.Context, own []param.Section, byName bool) (*Sections, error) {
	list := make([]described, len(own))
	order := s.order(byName)
	for i, sec := range own {
		d, err := s.describe(sec, order)
		if err != nil {
			return nil, err
		}
		d.Key[3] = i
		list[i] = d
	}
	all, err := GatherJSON(ctx, s.c, list)
	if err != nil {
		return nil, err
	}
	return &Sections{c: s.c, own: own, all: merge(all, s.c.Rank())}, nil
}

// Renew takes own, the sections of this rank's optimizer as they lie now, in place of
// those that it was made of: an adoption exchanges buffers.
func (s *Sections) Renew(own []param.Section) {
	if len(own) != len(s.own) {
		panic("parallel: an optimizer has got other sections")
	}
	s.own = own
}

// order is the place of each parameter in the method's order.
func (s *Shard[T]) order(byName bool) map[string]int {
	names := make([]string, len(s.params))
	for i, p := range s.params {
		names[i] = p.Name
	}
	if byName {
		slices.Sort(names)
	}
	order := map[string]int{}
	for i, n := range names {
		order[n] = i
	}
	return order
}

// describe finds what a section is a part of.
func (s *Shard[T]) describe(sec param.Section, order map[string]int) (described, error) {
	d := described{Name: sec.Name}
	d.Kind, d.Len = kindOf(sec)
	d.Total = d.Len
	words := strings.Split(sec.Name, "/")
	if words[0] != "kron" {
		d.Key[0] = 1
	}
	if len(words) < 3 {
		d.Shared, d.Key[1] = true, -1
		return d, nil
	}
	name, tile, _ := strings.Cut(words[1], "#")
	if tile != "" {
		if _, err := fmt.Sscan(tile, &d.Key[2]); err != nil {
			return d, fmt.Errorf("parallel: section %s: tile %q: %w", sec.Name, tile, err)
		}
	}
	at, ok := order[name]
	if !ok {
		return d, fmt.Errorf("parallel: section %s: no parameter %s", sec.Name, name)
	}
	d.Key[1] = at
	for _, k := range s.pieces {
		if k.Owner == s.c.Rank() && s.params[k.Unit].Name == name && s.counts[k.Unit] != nil {
			d.Lo, d.Total = k.Lo, len(s.params[k.Unit].Value)
			if d.Len != k.Hi-k.Lo {
				return d, fmt.Errorf("parallel: section %s: %d elements for a piece of %d", sec.Name, d.Len, k.Hi-k.Lo)
			}
		}
	}
	return d, nil
}

func kindOf(s param.Section) (kind byte, n int) {
	switch {
	case s.F32 != nil:
		return 'f', len(s.F32)
	case s.F64 != nil:
		return 'd', len(s.F64)
	}
	return 'i', len(s.I64)
}

// merge orders the sections of all ranks as an unsharded optimizer has them.
func merge(lists [][]described, rank int) []whole {
	type entry struct {
		described
		rank int
	}
	var entries []entry
	for r, list := range lists {
		for _, d := range list {
			entries = append(entries, entry{d, r})
		}
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return slices.Compare(a.Key[:3], b.Key[:3]) })
	var all []whole
	index := map[string]int{}
	for _, e := range entries {
		i, ok := index[e.Name]
		if !ok {
			i = len(all)
			index[e.Name] = i
			all = append(all, whole{name: e.Name, kind: e.Kind, total: e.Total, mine: -1})
		}
		if !e.Shared {
			all[i].parts = append(all[i].parts, part{rank: e.rank, lo: e.Lo, n: e.Len})
		}
		if e.rank == rank {
			all[i].mine = e.Key[3]
		}
	}
	return all
}

// New allocates the whole state, zero, with the names and the order of an
// unsharded optimizer.
func (s *Sections) New() []param.Section {
	out := make([]param.Section, len(s.all))
	for i, w := range s.all {
		out[i] = alloc(w.name, w.kind, w.total)
	}
	return out
}

func alloc(name string, kind byte, n int) param.Section {
	s := param.Section{Name: name}
	switch kind {
	case 'f':
		s.F32 = make([]float32, n)
	case 'd':
		s.F64 = make([]float64, n)
	default:
		s.I64 = make([]int64, n)
	}
	return s
}

// within is elements [lo, hi) of a section.
func within(s param.Section, lo, hi int) param.Section {
	switch {
	case s.F32 != nil:
		s.F32 = s.F32[lo:hi]
	case s.F64 != nil:
		s.F64 = s.F64[lo:hi]
	default:
		s.I64 = s.I64[lo:hi]
	}
	return s
}

func copySection(dst, src param.Section) {
	copy(dst.F32, src.F32)
	copy(dst.F64, src.F64)
	copy(dst.I64, src.I64)
}

// BroadcastSection copies a section of rank root to all ranks.
func BroadcastSection(ctx context.Context, c *hiersync.Comm, root int, s param.Section) error {
	switch {
	case s.F32 != nil:
		return hiersync.Broadcast(ctx, c, root, s.F32)
	case s.F64 != nil:
		return hiersync.Broadcast(ctx, c, root, s.F64)
	}
	return hiersync.Broadcast(ctx, c, root, s.I64)
}

// Gather returns the whole state on rank 0, nil on the others. Sections that rank
// 0 holds in full are those of its optimizer, in place; the others are copies.
func (s *Sections) Gather(ctx context.Context) ([]param.Section, error) {
	lead := s.c.Rank() == 0
	var out []param.Section
	for _, w := range s.all {
		full, err := s.gatherOne(ctx, w, lead)
		if err != nil {
			return nil, err
		}
		if lead {
			out = append(out, full)
		}
	}
	return out, nil
}

func (s *Sections) gatherOne(ctx context.Context, w whole, lead bool) (full param.Section, err error) {
	if len(w.parts) == 0 || len(w.parts) == 1 && w.parts[0].rank == 0 {
		if w.mine >= 0 {
			full = s.own[w.mine]
		}
		return full, nil
	}
	if lead {
		full = alloc(w.name, w.kind, w.total)
	}
	for _, p := range w.parts {
		buf := alloc(w.name, w.kind, 0)
		switch {
		case lead:
			buf = within(full, p.lo, p.lo+p.n)
		case p.rank != s.c.Rank() && p.rank != 0:
			buf = alloc(w.name, w.kind, p.n)
		}
		if p.rank == s.c.Rank() {
			if lead {
				copySection(buf, s.own[w.mine])
			} else {
				buf = s.own[w.mine]
			}
		}
		if p.rank == 0 {
			continue
		}
		if err := BroadcastSection(ctx, s.c, p.rank, buf); err != nil {
			return full, err
		}
	}
	return full, nil
}

// Scatter writes the whole state, which rank 0 passes, into the parts of all
// ranks; the others pass nil.
func (s *Sections) Scatter(ctx context.Context, full []param.Section) error {
	lead := s.c.Rank() == 0
	for i, w := range s.all {
		parts := w.parts
		if len(parts) == 0 {
			parts = []part{{rank: -1, n: w.total}}
		}
		for _, p := range parts {
			buf := alloc(w.name, w.kind, 0)
			if lead {
				buf = within(full[i], p.lo, p.lo+p.n)
			} else {
				buf = alloc(w.name, w.kind, p.n)
			}
			if err := BroadcastSection(ctx, s.c, 0, buf); err != nil {
				return err
			}
			if p.rank == s.c.Rank() || p.rank < 0 {
				copySection(s.own[w.mine], buf)
			}
		}
	}
	return nil
}
