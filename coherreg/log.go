package coherreg

import "fmt"

// Adoption is one line of the adoption log: a refresh that an adoption point
// resolved.
type Adoption struct {
	Block   int    `json:"block"` // index of the key in New's order
	Step    int64  `json:"step"`
	AsOf    int64  `json:"as_of"`
	Version uint64 `json:"version,omitempty"` // 0: the refresh failed and changed nothing
}

type adoptionKey struct {
	block int
	step  int64
}

// Log returns a copy of the adoptions so far, since the last [Registry.TakeLog]. Adoptions of one block are in the
// order of their steps; blocks adopted by different goroutines interleave.
func (r *Registry[K, V]) Log() []Adoption {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Adoption(nil), r.log...)
}

// TakeLog appends the adoptions since the last TakeLog to dst and forgets them,
// so that the log of a long run need not stay in memory.
func (r *Registry[K, V]) TakeLog(dst []Adoption) []Adoption {
	r.mu.Lock()
	defer r.mu.Unlock()
	dst = append(dst, r.log...)
	r.log = r.log[:0]
	return dst
}

// loadReplay indexes a log and refuses one that no run can have written.
func (r *Registry[K, V]) loadReplay(log []Adoption) error {
	r.replay = make(map[adoptionKey]int64, len(log))
	last := make(map[int]Adoption)
	for n, a := range log {
		switch before, seen := last[a.Block]; {
		case a.Block < 0 || a.Block >= len(r.keys):
			return fmt.Errorf("coherreg: replay line %d: block %d: want 0 to %d", n, a.Block, len(r.keys)-1)
		case a.Step < a.AsOf || a.Step-a.AsOf > r.opts.Budget.Hard:
			return fmt.Errorf("coherreg: replay line %d: block %d, due at %d, adopted at %d: outside the budget of %d steps",
				n, a.Block, a.AsOf, a.Step, r.opts.Budget.Hard)
		case seen && (a.Step <= before.Step || a.AsOf <= before.AsOf):
			return fmt.Errorf("coherreg: replay line %d: block %d: step %d after step %d", n, a.Block, a.Step, before.Step)
		}
		last[a.Block] = a
		r.replay[adoptionKey{a.Block, a.Step}] = a.AsOf
	}
	return nil
}
