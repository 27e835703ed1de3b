package trainerolmo_test

import (
	"fmt"

	"github.com/asteria-runtime/asteria/trainer-olmo/config"
	"github.com/asteria-runtime/asteria/trainer-olmo/plan"
)

// A configuration is read, checked and planned before anything is allocated.
func Example() {
	c, err := config.Parse("example.yaml", []byte(`
model: {preset: olmo2_190M}
data: {corpus: goroot, sequence_length: 1024}
train: {tokens: 4e9, global_batch_size: 262_144, micro_batch_size: 4096}
optimizer: {name: soap, lr: 1e-3}
scheduler: {warmup_fraction: 0.02}
`), []string{"optimizer.lr=3e-3"})
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := plan.New(c)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(plan.Group(p.Parameters), "parameters,", plan.Group(p.Steps), "steps")
	fmt.Println(p.ScheduleText)
	// Output:
	// 267,424,512 parameters, 15,259 steps
	// cosine, peak 0.003, warm-up 305 steps from 0, ends at 15,259 steps
}

// Every mistake is named with its place, the value, and what is allowed.
func Example_mistakes() {
	_, err := config.Parse("run.yaml", []byte(`
train:
  stpes: 100
optimizer:
  name: sopa
`), nil)
	fmt.Println(err)
	// Output:
	// run.yaml:3: train.stpes: unknown key; did you mean train.steps?
	// run.yaml:5: optimizer.name: "sopa" is not one of adamw, lionw, shampoo, soap, kl-shampoo, kl-soap, eigen-shampoo; did you mean soap?
}
