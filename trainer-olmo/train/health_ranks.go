package train

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/asteria-runtime/asteria/trainer-olmo/asteria"
	"github.com/asteria-runtime/asteria/trainer-olmo/parallel"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// rankHealth is what one rank tells of itself.
type rankHealth struct {
	Rank int `json:"rank"`
	// Node is the index of its node in the order of their lowest ranks.
	Node int `json:"node"`
	// StateBytes is what its optimizer keeps from step to step, the number that plan
	// prints for the rank.
	StateBytes int64 `json:"optimizer_state_bytes"`
	// SentInNode and SentBetween are the bytes that it sent to ranks of its node and of
	// other ones.
	SentInNode  int64 `json:"sent_in_node_bytes"`
	SentBetween int64 `json:"sent_between_nodes_bytes"`
	// Reasons are those of health, on this rank.
	Reasons []string `json:"reasons"`

	blocks []asteria.BlockHealth
}

// meeting is what the ranks told of themselves when they met last. The zero value is
// a run in which they have not, or that has one rank.
type meeting struct{ ranks []rankHealth }

// onWire is a rankHealth as it travels, with the blocks.
type onWire struct {
	rankHealth
	Blocks []asteria.BlockHealth
}

// meet lets every rank know how all are. All ranks call it.
func (r *run[T]) meet() error {
	c := r.opts.Comm
	if c == nil || c.Size() < 2 {
		return nil
	}
	own, sent := onWire{}, c.Stats()
	own.rankHealth = rankHealth{
		Rank: c.Rank(), Node: c.Topology().NodeOf[c.Rank()], StateBytes: sectionBytes(r.stepper.opt.Sections()),
		SentInNode: sent.IntraBytes, SentBetween: sent.InterBytes,
	}
	own.Blocks, own.Reasons = r.ownHealth()
	all, err := parallel.GatherJSON(context.Background(), c, own)
	if err != nil {
		return fmt.Errorf("train: health of the ranks: %w", err)
	}
	r.met.ranks = r.met.ranks[:0]
	for _, h := range all {
		h.rankHealth.blocks = h.Blocks
		r.met.ranks = append(r.met.ranks, h.rankHealth)
	}
	return nil
}

// merge adds what other ranks have told to what this rank knows: blocks that it has
// not, the evidence of refreshes that another rank has run, and reasons under the
// number of their rank.
func (m meeting) merge(blocks []asteria.BlockHealth, reasons []string) ([]rankHealth, []asteria.BlockHealth, []string) {
	index := map[string]int{}
	for i, b := range blocks {
		index[b.Block] = i
	}
	for _, h := range m.ranks {
		for _, b := range h.blocks {
			i, ok := index[b.Block]
			switch {
			case !ok:
				index[b.Block] = len(blocks)
				blocks = append(blocks, b)
			case blocks[i].Solver == "":
				blocks[i] = b
			}
		}
		for _, reason := range h.Reasons {
			if !slices.Contains(reasons, reason) {
				reasons = append(reasons, fmt.Sprintf("rank %d: %s", h.Rank, reason))
			}
		}
	}
	slices.SortStableFunc(blocks, func(a, b asteria.BlockHealth) int { return cmp.Compare(a.Block, b.Block) })
	return m.ranks, blocks, reasons
}

// sectionBytes is the size of what sections hold of parameters; a counter that every
// rank has is no part of a share.
func sectionBytes(all []param.Section) int64 {
	const words = 2 // separators in "method/parameter/what"
	n := int64(0)
	for _, s := range all {
		if strings.Count(s.Name, "/") >= words {
			n += int64(4*len(s.F32) + 8*len(s.F64) + 8*len(s.I64))
		}
	}
	return n
}
