package train

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/hiersync"
	"github.com/asteria-runtime/asteria/trainer-olmo/asteria"
	"github.com/asteria-runtime/asteria/trainer-olmo/config"
	"github.com/asteria-runtime/asteria/trainer-olmo/model"
	"github.com/asteria-runtime/asteria/trainer-olmo/plan"
)

// realState makes the optimizers of all ranks and returns the bytes of each.
func realState(t *testing.T, c *config.Config, ranks int) []int64 {
	t.Helper()
	w, err := hiersync.NewTwin(t.Context(), hiersync.TwinOptions{Ranks: ranks})
	if err != nil {
		t.Fatal(err)
	}
	bytes, errs := make([]int64, ranks), make([]error, ranks)
	var wg sync.WaitGroup
	for rank, comm := range w.Comms() {
		wg.Go(func() {
			defer comm.Close()
			eng := gemm.New(1)
			defer eng.Close()
			m, err := model.New[float32](c.ModelConfig(), eng)
			if err != nil {
				errs[rank] = err
				return
			}
			defer m.Close()
			s, err := newSharding(c, comm, m.Params())
			if err != nil {
				errs[rank] = err
				return
			}
			opt, err := newOptimizer(c, s.mine(m.Params()), eng, func(*asteria.Options) error { return nil }, slog.New(slog.DiscardHandler))
			if err != nil {
				errs[rank] = err
				return
			}
			bytes[rank] = sectionBytes(opt.Sections())
			if o, ok := opt.(interface{ Close() }); ok {
				o.Close()
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return bytes
}

// TestRealStateIsThatOfThePlan: what the optimizers of the ranks allocate is to the byte
// what plan says before the run, and at most 1.1 even shares of what one rank needs.
func TestRealStateIsThatOfThePlan(t *testing.T) {
	models := []string{
		"model={d_model: 16, n_layers: 8, n_heads: 2, hidden_size: 24, vocab_size: 64}",
		"model={d_model: 24, n_layers: 5, n_heads: 4, n_kv_heads: 2, hidden_size: 40, vocab_size: 300}",
		"model={d_model: 32, n_layers: 12, n_heads: 2, hidden_size: 96, vocab_size: 100, tie_word_embeddings: true}",
	}
	for _, m := range models {
		for _, name := range []string{"adamw", "lionw", "soap", "shampoo", "kl-shampoo"} {
			set := []string{"optimizer.name=" + name, "runtime.mode=native", m}
			whole := realState(t, testConfig(t, t.TempDir(), set...), 1)[0]
			for _, ranks := range []int{2, 3, 4, 8} {
				c := testConfig(t, t.TempDir(), append(set, "parallel.shard=true", fmt.Sprintf("parallel.ranks=%d", ranks))...)
				p, err := plan.New(c)
				if err != nil {
					t.Fatal(err)
				}
				if p.StateBytes != whole {
					t.Errorf("%v: one rank holds %d bytes, the plan says %d", set, whole, p.StateBytes)
				}
				for rank, n := range realState(t, c, ranks) {
					if n != p.Shares[rank] {
						t.Errorf("%v: rank %d of %d holds %d bytes, the plan says %d", set, rank, ranks, n, p.Shares[rank])
					}
					if even := float64(n) * float64(ranks) / float64(whole); even > 1.1 {
						t.Errorf("%v: rank %d of %d holds %.3f even shares", set, rank, ranks, even)
					}
				}
			}
		}
	}
}

// TestHealthCoversAllRanks: health.json has the blocks of all ranks, and what each rank
// holds and sent, which is what plan says.
func TestHealthCoversAllRanks(t *testing.T) {
	alone := filepath.Join(t.TempDir(), "alone")
	mustRunAll(t, ranksConfig(t, alone, "soap", 1, "runtime.mode=native", "train.steps=6"))
	want := readHealth(t, alone)
	if len(want.Ranks) != 0 {
		t.Errorf("one rank: %v", want.Ranks)
	}
	for _, shard := range []string{"true", "false"} {
		folder := filepath.Join(t.TempDir(), "ranks")
		c := ranksConfig(t, folder, "soap", 3, "runtime.mode=native", "train.steps=6", "checkpoint.interval=4", "parallel.shard="+shard)
		mustRunAll(t, c)
		h := readHealth(t, folder)
		if got, all := len(h.Blocks.([]any)), len(want.Blocks.([]any)); got != all || h.Degraded {
			t.Errorf("shard %s: %d blocks of %d, degraded %v", shard, got, all, h.Degraded)
		}
		p, err := plan.New(c)
		if err != nil {
			t.Fatal(err)
		}
		if len(h.Ranks) != 3 {
			t.Fatalf("shard %s: ranks %v", shard, h.Ranks)
		}
		for rank, r := range h.Ranks {
			planned := p.StateBytes
			if shard == "true" {
				planned = p.Shares[rank]
			}
			if r.Rank != rank || r.StateBytes != planned || r.SentInNode == 0 || r.SentBetween != 0 || r.Node != 0 {
				t.Errorf("shard %s: rank %d: %+v, the plan says %d bytes", shard, rank, r, planned)
			}
		}
	}
}
