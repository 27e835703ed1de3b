package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/hiersync"
	"github.com/asteria-runtime/asteria/hooks"
	"github.com/asteria-runtime/asteria/trainer-olmo/checkpoint"
	"github.com/asteria-runtime/asteria/trainer-olmo/config"
	"github.com/asteria-runtime/asteria/trainer-olmo/model"
	"github.com/asteria-runtime/asteria/trainer-olmo/parallel"
)

// mustRunAll trains on as many ranks as the configuration says.
func mustRunAll(t testing.TB, c *config.Config) Result {
	t.Helper()
	res, err := runAll[float32](context.Background(), c, Options{}, openText)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// ranksConfig is a run of 50 steps whose parameters are compared after each.
func ranksConfig(t testing.TB, folder, optimizer string, ranks int, overrides ...string) *config.Config {
	t.Helper()
	return testConfig(t, folder, append([]string{
		"optimizer.name=" + optimizer, "train.steps=50", "model.hidden_size=16", "parallel.hash_every=1", fmt.Sprintf("parallel.ranks=%d", ranks),
	}, overrides...)...)
}

// TestRanksTrainTheRunOfOne: the parameters are compared after every step, two runs
// end with the same digest, on 2 and 4 ranks that of one rank with the same global
// batch. On 3 the losses are those of one rank within rounding.
//
// The matrices of the model are square. A factor of a matrix that is not square has a
// null space at first, in which the eigenvectors are whatever rounding makes them;
// SOAP then takes other steps there after a difference in the last bit of a gradient,
// in float64 too, and losses differ by some 1e-3 after 50 steps.
func TestRanksTrainTheRunOfOne(t *testing.T) {
	for _, name := range []string{"adamw", "soap", "shampoo", "kl-shampoo"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			alone := filepath.Join(t.TempDir(), "alone")
			mustRunAll(t, ranksConfig(t, alone, name, 1))
			want := losses(t, alone)
			for _, ranks := range []int{2, 3, 4} {
				a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
				mustRunAll(t, ranksConfig(t, a, name, ranks))
				mustRunAll(t, ranksConfig(t, b, name, ranks, "parallel.shard=true", "checkpoint.interval=20"))
				if x, y := digestOf(t, a), digestOf(t, b); x != y {
					t.Errorf("%d ranks, sharded or not: two runs end with different digests:\n%v\n%v", ranks, x, y)
				}
				if x, y := digestOf(t, a), digestOf(t, alone); ranks != 3 && x.Total != y.Total {
					t.Errorf("%d ranks end with another digest than one:\n%v\n%v", ranks, x, y)
				}
				for i, got := range losses(t, a) {
					if math.Abs(got-want[i]) > 1e-4 {
						t.Fatalf("%d ranks: loss of step %d is %v, on one rank %v", ranks, i+1, got, want[i])
					}
				}
			}
		})
	}
}

// TestMoreRanksThanRows is field failure A13: ranks without a row, and so without
// a gradient, in every step.
func TestMoreRanksThanRows(t *testing.T) {
	alone, many := filepath.Join(t.TempDir(), "alone"), filepath.Join(t.TempDir(), "many")
	small := []string{fmt.Sprintf("train.global_batch_size=%d", 3*testSeq), "train.steps=12"}
	mustRunAll(t, ranksConfig(t, alone, "soap", 1, small...))
	mustRunAll(t, ranksConfig(t, many, "soap", 5, small...))
	want := losses(t, alone)
	for i, got := range losses(t, many) {
		if math.Abs(got-want[i]) > 1e-4 {
			t.Fatalf("loss of step %d is %v, on one rank %v", i+1, got, want[i])
		}
	}
}

// TestResumeOnAnotherNumberOfRanks: a run that is cut in two by a resume ends with
// the digest of one that is not, sharded or not; and its checkpoint goes on with
// another number of ranks, where the state is the same and the losses are, within
// rounding.
func TestResumeOnAnotherNumberOfRanks(t *testing.T) {
	for _, shard := range []string{"false", "true"} {
		for _, name := range []string{"adamw", "shampoo"} {
			whole, cut := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "cut")
			set := []string{"parallel.shard=" + shard, "train.steps=30"}
			mustRunAll(t, ranksConfig(t, whole, name, 3, set...))
			mustRunAll(t, ranksConfig(t, cut, name, 3, append(set, "train.stop_at=17")...))
			for _, ranks := range []int{1, 2} {
				other := filepath.Join(t.TempDir(), fmt.Sprint("other", ranks))
				mustRunAll(t, ranksConfig(t, other, name, ranks, append(set, "checkpoint.load_path="+cut)...))
				recs, err := ReadMetrics(other)
				if err != nil {
					t.Fatal(err)
				}
				want := losses(t, whole)
				for i, rec := range recs {
					if d := math.Abs(rec[mCE] - want[17+i]); len(recs) != 13 || rec[mStep] != float64(18+i) || d > 1e-4 {
						t.Fatalf("%s on %d ranks: %d steps; step %v has loss %v, want %v", name, ranks, len(recs), rec[mStep], rec[mCE], want[17+i])
					}
				}
			}
			mustRunAll(t, ranksConfig(t, cut, name, 3, set...))
			if a, b := digestOf(t, whole), digestOf(t, cut); a != b {
				t.Errorf("%s, shard %s: a resume changed the run:\n%v\n%v", name, shard, a, b)
			}
		}
	}
}

// TestStateIsShared: with parallel.shard no rank holds more of the optimizer's state
// than its share and a tenth, as long as no single block is larger than that.
func TestStateIsShared(t *testing.T) {
	for _, name := range []string{"adamw", "soap", "shampoo", "kl-shampoo"} {
		for _, ranks := range []int{2, 4} {
			c := ranksConfig(t, t.TempDir(), name, ranks, "parallel.shard=true", "model.n_layers=8")
			m, err := model.New[float32](c.ModelConfig(), gemm.New(1))
			if err != nil {
				t.Fatal(err)
			}
			units, err := shardUnits(c, m.Params())
			if err != nil {
				t.Fatal(err)
			}
			total, load := int64(0), make([]int64, ranks)
			for _, u := range units {
				total += u.Bytes
			}
			for _, p := range parallel.Cut(units, ranks) {
				u := units[p.Unit]
				load[p.Owner] += u.Bytes * int64(p.Hi-p.Lo) / int64(u.Elements)
			}
			for rank, n := range load {
				if share := float64(n) * float64(ranks) / float64(total); share > 1.1 {
					t.Errorf("%s: rank %d of %d holds %.3f of its share", name, rank, ranks, share)
				}
			}
		}
	}
}

// TestALostRankEndsTheRunOfAll is field failure A19 in one process: one rank dies
// at a step; the others end within the deadline, name it, and the last checkpoint
// loads.
func TestALostRankEndsTheRunOfAll(t *testing.T) {
	const n = 3
	folder := filepath.Join(t.TempDir(), "run")
	c := ranksConfig(t, folder, "soap", n, "checkpoint.interval=10", "checkpoint.sync=true")
	w, err := hiersync.NewTwin(t.Context(), hiersync.TwinOptions{Ranks: n, Options: hiersync.Options{Deadline: 5 * time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	h := new(hooks.Schedule)
	h.On(hooks.PreBackward, "kill", nil, func(_ context.Context, e hooks.Event) error {
		if e.Step == 25 && e.Layer == 1 {
			w.Kill(0) // the leader, while it computes
		}
		return nil
	})
	errs := make([]error, n)
	var wg sync.WaitGroup
	for rank, comm := range w.Comms() {
		wg.Go(func() {
			o := Options{}.withDefaults().forRank(comm)
			if rank == 0 {
				o.Hooks = h
			}
			_, errs[rank] = runOn[float32](t.Context(), forRank(c, n), o, openText)
			comm.Close()
		})
	}
	wg.Wait()
	for rank, err := range errs[1:] {
		var e *hiersync.RankError
		if !errors.As(err, &e) || e.Rank != 0 {
			t.Errorf("rank %d: %v, want an error that names rank 0", rank+1, err)
		}
	}
	got, err := checkpoint.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	if got.Meta.Position.Step != 20 {
		t.Errorf("the last checkpoint is of step %d, want 20", got.Meta.Position.Step)
	}
	c.Parallel.Ranks = 2
	mustRunAll(t, c) // and goes on, on the ranks that are left
}

// asteriaRanks are the overrides of a run whose refreshes are late from step 12 on.
var asteriaRanks = []string{"runtime={mode: asteria, lag_start: 12, workers: 1}", "optimizer.precondition_frequency=6"}

// TestRanksShareRefreshes: beside training too, two runs end with the same digest and
// the same adoptions, whatever the number of ranks, with that of one rank on 2 and 4,
// and on 3 the losses are those of one rank within rounding.
func TestRanksShareRefreshes(t *testing.T) {
	for _, name := range shadowed3 {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			alone := filepath.Join(t.TempDir(), "alone")
			mustRunAll(t, ranksConfig(t, alone, name, 1, asteriaRanks...))
			want, log := losses(t, alone), string(mustRead(t, filepath.Join(alone, adoptionsName)))
			if len(log) == 0 {
				t.Fatal("nothing was late: the test is void")
			}
			for _, ranks := range []int{2, 3, 4} {
				a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
				mustRunAll(t, ranksConfig(t, a, name, ranks, asteriaRanks...))
				mustRunAll(t, ranksConfig(t, b, name, ranks, append(asteriaRanks, "parallel.sync=every", "checkpoint.interval=19", "runtime.workers=2")...))
				if x, y := digestOf(t, a), digestOf(t, b); x != y {
					t.Errorf("%d ranks: two runs end with different digests:\n%v\n%v", ranks, x, y)
				}
				if x, y := digestOf(t, a), digestOf(t, alone); ranks != 3 && x.Total != y.Total {
					t.Errorf("%d ranks end with another digest than one:\n%v\n%v", ranks, x, y)
				}
				for i, got := range losses(t, a) {
					if math.Abs(got-want[i]) > 1e-4 {
						t.Fatalf("%d ranks: loss of step %d is %v, on one rank %v", ranks, i+1, got, want[i])
					}
				}
				c := filepath.Join(t.TempDir(), "c")
				mustRunAll(t, ranksConfig(t, c, name, ranks, append(asteriaRanks, "parallel.shard=true", "checkpoint.interval=19")...))
				// The runtime part may differ, in spare memory.
				if x, y := digestOf(t, a), digestOf(t, c); x.Total != y.Total {
					t.Errorf("%d ranks, sharded: another digest:\n%v\n%v", ranks, x, y)
				}
				if got := string(mustRead(t, filepath.Join(a, adoptionsName))); got != log {
					t.Errorf("%d ranks: the adoptions are not those of one rank", ranks)
				}
			}
		})
	}
}

// TestResumeOnRanksKeepsPendingRefreshes: a run that is cut in two while refreshes are
// in flight ends with the digest of one that is not, and goes on from its checkpoint
// on other numbers of ranks.
func TestResumeOnRanksKeepsPendingRefreshes(t *testing.T) {
	for _, name := range []string{"shampoo", "kl-shampoo", "shampoo sharded", "kl-shampoo sharded"} {
		whole, cut := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "cut")
		set := append([]string{"train.steps=40"}, asteriaRanks...)
		name, sharded := strings.CutSuffix(name, " sharded")
		if sharded {
			set = append(set, "parallel.shard=true")
		}
		mustRunAll(t, ranksConfig(t, whole, name, 3, set...))
		mustRunAll(t, ranksConfig(t, cut, name, 3, append(set, "train.stop_at=26")...))
		if c, err := checkpoint.Load(cut); err != nil {
			t.Fatal(err)
		} else if has, err := c.HasRuntime(pendingPrefix); !has || err != nil {
			t.Fatal("nothing is pending in the checkpoint: the test is void", err)
		}
		for _, ranks := range []int{1, 2} {
			other := filepath.Join(t.TempDir(), fmt.Sprint("other", ranks))
			mustRunAll(t, ranksConfig(t, other, name, ranks, append(set, "checkpoint.load_path="+cut)...))
			recs, err := ReadMetrics(other)
			if err != nil {
				t.Fatal(err)
			}
			want := losses(t, whole)[26:]
			for i, rec := range recs {
				if len(recs) != len(want) || math.Abs(rec[mCE]-want[i]) > 1e-4 {
					t.Fatalf("%s on %d ranks: %d steps; loss %v, want %v", name, ranks, len(recs), rec[mCE], want[i])
				}
			}
		}
		mustRunAll(t, ranksConfig(t, cut, name, 3, set...))
		if a, b := digestOf(t, whole), digestOf(t, cut); a.Total != b.Total {
			t.Errorf("%s: a resume changed the run:\n%v\n%v", name, a, b)
		}
	}
}

// TestWhatRanksRefuse: what cannot be divided among ranks says so by its key.
func TestWhatRanksRefuse(t *testing.T) {
	for want, set := range map[string][]string{
		"tiers.*":                               {"tiers.host=1GiB"},
		"parallel.shard with runtime.adopt":     {"parallel.shard=true", "runtime.mode=asteria", "runtime.adopt=ready"},
		"parallel.shard with runtime.replay":    {"parallel.shard=true", "runtime.mode=asteria", "runtime.replay=x.jsonl"},
		"parallel.shard with optimizer.stagger": {"parallel.shard=true", "optimizer.stagger=true"},
	} {
		_, err := runAll[float32](t.Context(), ranksConfig(t, t.TempDir(), "shampoo", 2, set...), Options{}, openText)
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", set, err)
		}
	}
}

// TestReadyRanksReplayTheirLog: with ready adoption the ranks agree, and the log
// repeats the run.
func TestReadyRanksReplayTheirLog(t *testing.T) {
	set := append(asteriaRanks, "runtime={adopt: ready, lag: -1, lag_start: 4}", "optimizer.precondition_frequency=1", "train.steps=30")
	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	mustRunAll(t, ranksConfig(t, a, "shampoo", 3, append(set, "train.stop_at=17")...))
	mustRunAll(t, ranksConfig(t, a, "shampoo", 3, set...))
	mustRunAll(t, ranksConfig(t, b, "shampoo", 3, append(set, "runtime.replay="+filepath.Join(a, adoptionsName))...))
	if x, y := digestOf(t, a).Total, digestOf(t, b).Total; x != y {
		t.Errorf("the replay ends with another digest:\n%v\n%v", x, y)
	}
}

// TestAverageOfRootsTrains: on two ranks the mean of equal roots is exact.
func TestAverageOfRootsTrains(t *testing.T) {
	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	mustRunAll(t, ranksConfig(t, a, "shampoo", 2, asteriaRanks...))
	mustRunAll(t, ranksConfig(t, b, "shampoo", 2, append(asteriaRanks, "parallel.roots=average")...))
	if x, y := digestOf(t, a), digestOf(t, b); x != y {
		t.Errorf("the mean of two equal roots is another root:\n%v\n%v", x, y)
	}
}

// TestBytesAreCountedByPurpose: on two nodes of two ranks, gradients and roots cross
// between nodes, sharded parameters do when they are sharded, and at an interval of
// one a larger budget sends fewer roots.
func TestBytesAreCountedByPurpose(t *testing.T) {
	sent := func(overrides ...string) (sum [wirePurposes][2]float64) {
		folder := filepath.Join(t.TempDir(), "run")
		c := ranksConfig(t, folder, "shampoo", 4, append([]string{"train.steps=31", "runtime={mode: asteria, lag_start: 0}"}, overrides...)...)
		for _, err := range onNodes(t, c, []int{0, 1, 0, 1}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		recs, err := ReadMetrics(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range recs {
			for purpose, names := range mWire {
				for i, name := range names {
					sum[purpose][i] += rec[name]
				}
			}
		}
		return sum
	}
	one := sent("optimizer.precondition_frequency=1", "runtime.staleness=1")
	five := sent("optimizer.precondition_frequency=1", "runtime.staleness=5")
	for class := range 2 {
		if one[wireGradients][class] <= 0 || one[wireGradients] != five[wireGradients] || one[wireParameters][class] != 0 {
			t.Errorf("budgets of 1 and 5: %v and %v", one, five)
		}
		if ratio := one[wireRoots][class] / five[wireRoots][class]; !(ratio > 3) {
			t.Errorf("class %d: a budget of 5 sends %.2f times fewer bytes of roots than one of 1", class, ratio)
		}
	}
	shard := sent("parallel.shard=true", "runtime.mode=native")
	if shard[wireParameters][1] <= 0 || shard[wireRoots] != [2]float64{} {
		t.Errorf("sharded: %v", shard)
	}
}

// onNodes trains on ranks in this process that stand on the given nodes.
func onNodes(t testing.TB, c *config.Config, nodes []int) []error {
	t.Helper()
	n := len(nodes)
	w, err := hiersync.NewTwin(t.Context(), hiersync.TwinOptions{Ranks: n, Nodes: nodes})
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, n)
	var wg sync.WaitGroup
	for rank, comm := range w.Comms() {
		wg.Go(func() {
			_, errs[rank] = runOn[float32](t.Context(), forRank(c, n), Options{}.withDefaults().forRank(comm), openText)
			errs[rank] = errors.Join(errs[rank], comm.Close())
		})
	}
	wg.Wait()
	return errs
}
