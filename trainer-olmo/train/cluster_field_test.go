package train

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/hiersync"
	"github.com/asteria-runtime/asteria/trainer-olmo/asteria"
	"github.com/asteria-runtime/asteria/trainer-olmo/config"
	"github.com/asteria-runtime/asteria/trainer-olmo/data"
	"github.com/asteria-runtime/asteria/trainer-olmo/param"
)

// masking is a source in which the instances of some rows count for nothing in some
// batches: the ranks that compute them have a gradient of zero.
type masking struct {
	source
	from, to int64 // batches
	lo, hi   int   // rows
}

func (s *masking) Batch(k int64, b *data.Batch) error {
	if err := s.source.Batch(k, b); err != nil {
		return err
	}
	if len(b.InstanceMask) != b.Rows {
		b.InstanceMask = make([]bool, b.Rows)
	}
	for row := range b.InstanceMask {
		b.InstanceMask[row] = k < s.from || k >= s.to || row < s.lo || row >= s.hi
	}
	return nil
}

// TestA13ARankWithoutAGradientGoesOn is field failure A13: of four ranks, rank 2 has
// no gradient in steps 3 to 5. Nobody waits for it, all ranks hold the same parameters
// after every step and refresh at the same steps, and the losses are those of one rank.
func TestA13ARankWithoutAGradientGoesOn(t *testing.T) {
	open := func(c *config.Config) (source, source, error) {
		text, _, err := openText(c)
		return &masking{source: text, from: 2, to: 5, lo: 4, hi: 6}, nil, err // rank 2 of 4 has rows 4 and 5 of 8
	}
	set := []string{"train.steps=12", "optimizer.precondition_frequency=2", "parallel.hash_every=1", "runtime.lag_start=0", "parallel.sync=every"}
	for _, mode := range []string{"native", "asteria"} {
		var want []float64
		var refreshed float64
		for _, ranks := range []int{1, 4} {
			folder := filepath.Join(t.TempDir(), "run")
			c := ranksConfig(t, folder, "shampoo", ranks, append(set, "runtime.mode="+mode)...)
			if _, err := runAll[float64](t.Context(), c, Options{}, open); err != nil {
				t.Fatalf("%s on %d ranks: %v", mode, ranks, err)
			}
			recs, err := ReadMetrics(folder)
			if err != nil || len(recs) != 12 {
				t.Fatalf("%d steps, %v", len(recs), err)
			}
			got, total := losses(t, folder), recs[11][mRefreshed]
			if ranks == 1 {
				want, refreshed = got, total
				continue
			}
			if total != refreshed {
				t.Errorf("%s: %v refreshes on %d ranks, %v on one", mode, total, ranks, refreshed)
			}
			for i := range got {
				if math.Abs(got[i]-want[i]) > 1e-6 {
					t.Errorf("%s: loss of step %d is %v, on one rank %v", mode, i+1, got[i], want[i])
				}
			}
		}
	}
}

// fewRows are models whose matrices have 1, 3, 18 and 72 rows.
var fewRows = []string{
	"model={d_model: 18, n_layers: 2, n_heads: 1, hidden_size: 1, vocab_size: 32}",
	"model={d_model: 18, n_layers: 2, n_heads: 1, hidden_size: 3, vocab_size: 32}",
	"model={d_model: 18, n_layers: 2, n_heads: 1, hidden_size: 72, vocab_size: 32}",
}

// TestA15FewRowsOverManyRanks is field failures A15 and A16: matrices of 1, 3, 18 and
// 72 rows over numbers of ranks that do not divide them, or exceed them; and batches of
// 8 rows, of which the ranks of a larger world have none. The losses are those of one
// rank within 1e-6, and sharded state changes nothing.
func TestA15FewRowsOverManyRanks(t *testing.T) {
	worlds := []int{2, 4, 5, 7, 8, 16}
	if testing.Short() {
		worlds = []int{7, 16}
	}
	for _, m := range fewRows {
		for _, name := range []string{"adamw", "shampoo"} {
			set := []string{m, "train.steps=3", "runtime.mode=native", "optimizer.precondition_frequency=2"}
			run := func(ranks int, more ...string) ([]float64, string) {
				folder := filepath.Join(t.TempDir(), "run")
				c := ranksConfig(t, folder, name, ranks, append(slices.Clone(set), more...)...)
				if _, err := runAll[float64](t.Context(), c, Options{}, openText); err != nil {
					t.Fatalf("%s %s on %d ranks: %v", m, name, ranks, err)
				}
				return losses(t, folder), digestOf(t, folder).Total
			}
			want, _ := run(1)
			for _, ranks := range worlds {
				got, digest := run(ranks)
				for i := range got {
					if math.Abs(got[i]-want[i]) > 1e-6 {
						t.Errorf("%s %s on %d ranks: loss of step %d is %v, on one %v", m, name, ranks, i+1, got[i], want[i])
					}
				}
				if _, sharded := run(ranks, "parallel.shard=true"); sharded != digest {
					t.Errorf("%s %s on %d ranks: sharded state changes the run", m, name, ranks)
				}
			}
		}
	}
}

// oddParams are parameters of awkward shapes: few rows, no rows, no columns, a scalar.
func oddParams(seed uint64) []param.Param[float32] {
	r := rand.New(rand.NewPCG(seed, 15))
	var out []param.Param[float32]
	for i, shape := range [][]int{{1, 18}, {3, 72}, {18, 18}, {72, 5}, {0, 5}, {7, 0}, {0}, {5}, {1}, {1, 1}, {72, 18}, {18, 3}} {
		p := param.Param[float32]{Name: fmt.Sprintf("p%02d", i), Shape: shape}
		n := 1
		for _, d := range shape {
			n *= d
		}
		if len(shape) == 1 {
			p.Role = param.Norm
		}
		p.Value, p.Grad = make([]float32, n), make([]float32, n)
		for k := range p.Value {
			p.Value[k] = float32(r.NormFloat64())
		}
		out = append(out, p)
	}
	return out
}

// stepOdd takes steps with gradients that are functions of the step; c may be nil.
func stepOdd(c *config.Config, comm *hiersync.Comm, params []param.Param[float32]) error {
	eng := gemm.New(1)
	defer eng.Close()
	s, err := newSharding(c, comm, params)
	if err != nil {
		return err
	}
	opt, err := newOptimizer(c, s.mine(params), eng, func(*asteria.Options) error { return nil }, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	if o, ok := opt.(interface{ Close() }); ok {
		defer o.Close()
	}
	for step := int64(1); step <= 6; step++ {
		r := rand.New(rand.NewPCG(uint64(step), 16))
		for _, p := range params {
			for k := range p.Grad {
				p.Grad[k] = float32(r.NormFloat64())
			}
		}
		if err := s.exchange(opt.Step(step, 1e-2)); err != nil {
			return err
		}
	}
	return nil
}

// TestA16OddShapesOverManyRanks is field failure A16, with parameters that have no
// elements at all: sharded over any number of ranks, whether it divides the rows or not,
// every rank ends with the values of one rank, to the bit.
func TestA16OddShapesOverManyRanks(t *testing.T) {
	for _, name := range []string{"adamw", "lionw", "soap", "shampoo", "kl-shampoo"} {
		set := []string{"optimizer.name=" + name, "runtime.mode=native", "optimizer.precondition_frequency=2", "parallel.shard=true"}
		want := oddParams(1)
		if err := stepOdd(testConfig(t, t.TempDir(), set...), nil, want); err != nil {
			t.Fatal(err)
		}
		for _, ranks := range []int{2, 5, 7, 8, 16} {
			w, err := hiersync.NewTwin(t.Context(), hiersync.TwinOptions{Ranks: ranks})
			if err != nil {
				t.Fatal(err)
			}
			c := testConfig(t, t.TempDir(), set...)
			got, errs := make([][]param.Param[float32], ranks), make([]error, ranks)
			var wg sync.WaitGroup
			for rank, comm := range w.Comms() {
				wg.Go(func() {
					got[rank] = oddParams(1)
					errs[rank] = stepOdd(c, comm, got[rank])
					if errs[rank] == nil {
						errs[rank] = comm.Barrier(context.Background())
					}
					comm.Close()
				})
			}
			wg.Wait()
			if err := errors.Join(errs...); err != nil {
				t.Fatalf("%s on %d ranks: %v", name, ranks, err)
			}
			for rank := range got {
				for i, p := range got[rank] {
					if !slices.Equal(p.Value, want[i].Value) {
						t.Errorf("%s: %s %v on rank %d of %d is not that of one rank", name, p.Name, p.Shape, rank, ranks)
					}
				}
			}
		}
	}
}
