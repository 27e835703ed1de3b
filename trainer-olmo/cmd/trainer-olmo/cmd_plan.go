package main

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/asteria-runtime/asteria/trainer-olmo/config"
	"github.com/asteria-runtime/asteria/trainer-olmo/plan"
)

func planCommand() command {
	return command{
		name: "plan", usage: "[CONFIG]", max: 1, config: true, run: runPlan,
		summary: "print parameters, steps, learning rates and memory before a run",
		help: `Nothing is allocated, and the network is never touched: paths that are URLs are
counted and not opened.`,
		flags: func(f *pflag.FlagSet) {
			f.String("preset", "", "plan a published size instead of a file")
			f.Bool("tensors", false, "also print the bytes of every parameter")
			f.Bool("presets", false, "list all published sizes with their parameter counts")
		},
		examples: []string{
			"plan configs/demo.yaml optimizer.name=soap",
			"plan OLMo-1B.yaml",
			"plan --preset olmo2_7B",
			"plan --presets",
		},
	}
}

// presetBase is what a preset lacks to be a run: the shape of a batch.
const presetBase = "run_name: %s\nmodel: {preset: %s}\ndata: {corpus: goroot, sequence_length: 4096}\n" +
	"train: {steps: 1000, global_batch_size: 4194304, micro_batch_size: 4096}\nscheduler: {warmup: 100}\n"

func runPlan(_ context.Context, e *env) error {
	preset, _ := e.flags.GetString("preset")
	presets, _ := e.flags.GetBool("presets")
	var c *config.Config
	var err error
	switch {
	case presets && preset == "" && len(e.args) == 0:
		return plan.Presets(e.out)
	case preset != "" && !presets && len(e.args) == 0:
		c, err = config.Parse("--preset "+preset, fmt.Appendf(nil, presetBase, preset, preset), e.set)
	case len(e.args) == 1 && preset == "" && !presets:
		c, err = load(e.args[0], e.set)
	default:
		return usagef("plan: give one of CONFIG, --preset NAME, --presets")
	}
	if err != nil {
		return err
	}
	p, err := plan.New(c)
	if err != nil {
		return err
	}
	if err := p.Write(e.out); err != nil {
		return err
	}
	if tensors, _ := e.flags.GetBool("tensors"); tensors {
		fmt.Fprintln(e.out)
		return p.WriteTensors(e.out)
	}
	return nil
}
