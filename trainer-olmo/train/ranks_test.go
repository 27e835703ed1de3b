package train

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"github.com/asteria-runtime/asteria/trainer-olmo/config"
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
// end with the same digest, and the losses are those of one rank with the same
// global batch, within rounding.
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
				mustRunAll(t, ranksConfig(t, b, name, ranks))
				if x, y := digestOf(t, a), digestOf(t, b); x != y {
					t.Errorf("%d ranks: two runs end with different digests:\n%v\n%v", ranks, x, y)
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
