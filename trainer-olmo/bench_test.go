package trainerolmo_test

import (
	"testing"

	"github.com/asteria-runtime/asteria/trainer-olmo/config"
	"github.com/asteria-runtime/asteria/trainer-olmo/plan"
)

const benchConfig = "model: {preset: olmo2_32B}\ndata: {corpus: goroot}\ntrain: {steps: 10}\noptimizer: {name: soap}\n"

// Reading a configuration is the start-up cost of every command.
func BenchmarkParse(b *testing.B) {
	for b.Loop() {
		if _, err := config.Parse("f.yaml", []byte(benchConfig), nil); err != nil {
			b.Fatal(err)
		}
	}
}

// The plan of the largest preset covers thousands of blocks.
func BenchmarkPlan(b *testing.B) {
	c, err := config.Parse("f.yaml", []byte(benchConfig), nil)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := plan.New(c); err != nil {
			b.Fatal(err)
		}
	}
}
