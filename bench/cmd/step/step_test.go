package main

import (
	"path/filepath"
	"testing"

	"github.com/asteria-runtime/asteria/trainer-olmo/config"
)

func TestSummary(t *testing.T) {
	s := summary([][]sample{{{1, 4}, {9, 5}, {2, 6}}, {{3, 7}, {4, 8}}})
	if s.Min != 1 || s.Median != 3 || s.Refresh != 9 || s.CPU != 6 {
		t.Fatalf("%+v", s)
	}
}

// Steps of a small model must train, and must not allocate once warm.
func TestStepsAllocateNothing(t *testing.T) {
	for _, name := range []string{"adamw", "soap"} {
		t.Run(name, func(t *testing.T) {
			c, err := config.Load(filepath.Join("..", "..", "..", "configs", "bench-d256.yaml"), []string{
				"optimizer.name=" + name, "runtime.mode=native", "model.d_model=32", "model.n_heads=2", "model.n_layers=1",
				"model.hidden_size=48", "model.vocab_size=64", "data.sequence_length=16", "train.global_batch_size=64",
			})
			if err != nil {
				t.Fatal(err)
			}
			o, err := newOurs(c, 1)
			if err != nil {
				t.Fatal(err)
			}
			defer o.close()
			if _, err := o.run(12); err != nil {
				t.Fatal(err)
			}
			n, err := o.allocations(10)
			if err != nil {
				t.Fatal(err)
			}
			if n != 0 {
				t.Errorf("%d allocations in 10 steps", n)
			}
			if o.last <= 0 || o.last > 6 {
				t.Errorf("loss %v", o.last)
			}
		})
	}
}
