package train

import (
	"fmt"
	"path/filepath"
	"testing"
)

// TestRanksHaveTheBitsOfOne: on 1, 2 and 4 ranks, sharded or not, a run ends with the
// same digest: gradients are summed in one tree, whoever computes its parts.
func TestRanksHaveTheBitsOfOne(t *testing.T) {
	for _, c := range []struct {
		rows, micro int
		set         string
	}{
		{8, 8, ""},
		{8, 1, "model.tie_word_embeddings=true"},
		{6, 1, "model.qk_norm=none"},
		{6, 3, "train.skip_step=true"},
		{7, 7, "model.tie_word_embeddings=true"},
		{9, 3, "model.hidden_size=24"},
		{3, 1, "train.max_grad_norm_ratio=1.5"}, // a rank without rows
		{12, 2, "train.sum_groups=8"},
	} {
		for _, name := range []string{"adamw", "soap", "shampoo", "kl-shampoo"} {
			t.Run(fmt.Sprintf("%s, %d rows in micro-batches of %d, %s", name, c.rows, c.micro, c.set), func(t *testing.T) {
				t.Parallel()
				set := []string{
					"train.steps=14", "optimizer.precondition_frequency=4", "loss.z_loss=1e-3",
					fmt.Sprint("train.global_batch_size=", c.rows*testSeq), fmt.Sprint("train.micro_batch_size=", c.micro*testSeq),
				}
				if c.set != "" {
					set = append(set, c.set)
				}
				want := ""
				for _, ranks := range []int{1, 2, 4} {
					for _, shard := range []string{"false", "true"} {
						folder := filepath.Join(t.TempDir(), "run")
						mustRunAll(t, ranksConfig(t, folder, name, ranks, append(set, "parallel.shard="+shard)...))
						if d := digestOf(t, folder).Total; want == "" {
							want = d
						} else if d != want {
							t.Errorf("%d ranks, shard %s: another digest than on one rank", ranks, shard)
						}
						if ranks == 1 {
							break
						}
					}
				}
			})
		}
	}
}

// TestPlacesOfRanksHaveTheBitsOfOne: ranks that alternate between nodes, or have one
// each, train the run of one too.
func TestPlacesOfRanksHaveTheBitsOfOne(t *testing.T) {
	alone := filepath.Join(t.TempDir(), "alone")
	set := []string{"train.steps=12", "loss.z_loss=1e-3", "train.skip_step=true", fmt.Sprint("train.global_batch_size=", 7*testSeq)}
	mustRunAll(t, ranksConfig(t, alone, "soap", 1, set...))
	for _, nodes := range [][]int{{0, 1, 0, 1}, {0, 0, 1, 1}, {0, 1, 2, 3}} {
		folder := filepath.Join(t.TempDir(), "run")
		for _, err := range onNodes(t, ranksConfig(t, folder, "soap", 4, set...), nodes) {
			if err != nil {
				t.Fatal(err)
			}
		}
		if digestOf(t, folder).Total != digestOf(t, alone).Total {
			t.Errorf("nodes %v: another digest than on one rank", nodes)
		}
	}
}

// TestMicroBatchesChangeNoBit: weights and optimizer are the same to the bit whatever
// the size of micro-batches, in one group and in several.
func TestMicroBatchesChangeNoBit(t *testing.T) {
	for _, groups := range []string{"1", "4"} {
		for _, tying := range []string{"false", "true"} {
			weights := map[string]bool{}
			for _, micro := range []int{1, 2, 4, 8} {
				folder := filepath.Join(t.TempDir(), "run")
				mustRunAll(t, ranksConfig(t, folder, "soap", 1, "train.steps=10", "train.sum_groups="+groups, "model.tie_word_embeddings="+tying,
					fmt.Sprint("train.micro_batch_size=", micro*testSeq)))
				d := digestOf(t, folder)
				weights[d.Weights+d.Optimizer] = true
			}
			if len(weights) != 1 {
				t.Errorf("%s groups, tying %s: %d different results", groups, tying, len(weights))
			}
		}
	}
}
