package plan

import (
	"fmt"
	"strings"
	"testing"
)

// TestSharesAreAnEvenPartOfTheState: with parallel.shard no rank holds more than 1.1
// even shares of the state, all shares add up to it, and the plan says so before the run.
func TestSharesAreAnEvenPartOfTheState(t *testing.T) {
	for _, preset := range []string{"olmo2_1M", "olmo2_14M", "olmo2_190M", "olmo2_1B", "olmo3_7B", "olmo1_7B"} {
		for _, method := range []string{"adamw", "lionw", "soap", "shampoo", "kl-shampoo", "kl-soap", "eigen-shampoo"} {
			for _, ranks := range []int{2, 3, 4, 8} {
				set := []string{"model={preset: " + preset + "}", "optimizer.name=" + method, fmt.Sprintf("parallel.ranks=%d", ranks)}
				alone, p := plan(t, set[:2]...), plan(t, append(set, "parallel.shard=true")...)
				sum := int64(0)
				for _, n := range p.Shares {
					sum += n
				}
				if sum != p.StateBytes || p.StateBytes != alone.StateBytes || len(p.Shares) != ranks {
					t.Errorf("%v: shares %v add up to %d, the state is %d, on one rank %d", set, p.Shares, sum, p.StateBytes, alone.StateBytes)
				}
				if p.evenly() > 1.1 {
					t.Errorf("%v: the fullest rank holds %.3f even shares", set, p.evenly())
				}
				out := text(t, p)
				for _, want := range []string{
					fmt.Sprintf("rank %d", ranks-1), Group(p.Fullest()) + " ", fmt.Sprintf("%.4f/%d of the unsharded state", p.evenly(), ranks),
				} {
					if !strings.Contains(out, want) {
						t.Errorf("%v: lacks %q in\n%s", set, want, out)
					}
				}
			}
		}
	}
}

// TestAFullRankIsNoted: two layers have too few matrices for eight ranks. Without
// sharding every rank has all of the state.
func TestAFullRankIsNoted(t *testing.T) {
	few := []string{"model={d_model: 64, n_layers: 1, n_heads: 2, vocab_size: 256}", "optimizer.name=soap", "parallel.ranks=16"}
	out := text(t, plan(t, append(few, "parallel.shard=true")...))
	if want := "times an even share, because a parameter with factors has one owner"; !strings.Contains(out, want) {
		t.Errorf("lacks %q in\n%s", want, out)
	}
	p := plan(t, few...)
	if out := text(t, p); len(p.Shares) != 0 || p.Fullest() != p.StateBytes || !strings.Contains(out, "each of 16 ranks") {
		t.Errorf("not sharded: shares %v\n%s", p.Shares, out)
	}
	if out := text(t, plan(t)); strings.Contains(out, "state by rank") {
		t.Errorf("one rank:\n%s", out)
	}
}

// TestAShardedRunNeedsLess: the state of a rank is its share, and the others' is
// there, on rank 0, while a checkpoint is made.
func TestAShardedRunNeedsLess(t *testing.T) {
	set := []string{"optimizer.name=shampoo", "parallel.ranks=4"}
	all, part := plan(t, set...), plan(t, append(set, "parallel.shard=true")...)
	bytes := func(p *Plan, class string) int64 {
		for _, m := range p.Memory {
			if m.Class == class {
				return m.Bytes
			}
		}
		return 0
	}
	for _, class := range []string{"optimizer moments", "factors", "roots and bases"} {
		if a, b := bytes(all, class), bytes(part, class); b >= a/2 {
			t.Errorf("%s: %d on one of four ranks, %d in all", class, b, a)
		}
	}
	if got, want := bytes(part, "gathered state"), part.StateBytes-part.Shares[0]; got != want {
		t.Errorf("gathered state: %d, want %d", got, want)
	}
	if a, b := bytes(all, "checkpoint snapshot"), bytes(part, "checkpoint snapshot"); a != b {
		t.Errorf("a checkpoint of %d bytes sharded, %d not", b, a)
	}
}
