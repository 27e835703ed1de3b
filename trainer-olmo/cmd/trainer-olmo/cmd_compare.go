package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/asteria-runtime/asteria/hiersync"
	"github.com/asteria-runtime/asteria/trainer-olmo/config"
	"github.com/asteria-runtime/asteria/trainer-olmo/report"
)

func compareCommand() command {
	return command{
		name: "compare", usage: "CONFIG", min: 1, max: 1, config: true, run: runCompare,
		summary: "train several variants of a configuration and report them together",
		help: `The section compare of CONFIG lists the runs; every other key is the base of all
of them. Each run sets keys (set), may try every combination of values (sweep),
and is made once with each seed:

  compare:
    seeds: [1, 2, 3]
    baseline: adamw
    runs:
      - name: adamw
        sweep: {optimizer.lr: [1e-3, 2e-3, 4e-3]}
      - name: soap
        set: {optimizer.name: soap, train.steps: 175}

Overrides apply to every run. Each run has its own folder below save_folder;
finished runs are not repeated. A table and report.html compare them.`,
		examples: []string{
			"compare configs/demo.yaml",
			"compare configs/convergence-goroot.yaml save_folder=runs/again train.threads=2",
		},
	}
}

func runCompare(ctx context.Context, e *env) error {
	if ranks, ok := hiersync.LaunchedByMPI(); ok && ranks > 1 {
		return usagef("compare: started as one of %d ranks; its runs follow one another in one process: set parallel.ranks for ranks inside it, or start train under mpirun for each run", ranks)
	}
	c, err := config.LoadComparison(e.args[0], e.set)
	if err != nil {
		return notFound(err)
	}
	var folders, groups []string
	told := map[string]bool{}
	for i, r := range c.Runs {
		for _, n := range r.Config.Notices {
			if !told[n] {
				told[n] = true
				fmt.Fprintf(e.err, "note: %s\n", n)
			}
		}
		fmt.Fprintf(e.err, "run %d of %d: %s\n", i+1, len(c.Runs), r.Config.RunName)
		res, err := trainOne(ctx, r.Config, e.err, nil)
		if err != nil {
			return fmt.Errorf("%s: %w", r.Config.RunName, err)
		}
		if res.Interrupted {
			return errors.New("interrupted; the same command continues")
		}
		if err := ownReport(r.Config); err != nil {
			return err
		}
		folders, groups = append(folders, r.Config.SaveFolder), append(groups, r.Group)
	}
	return writeReport(e.out, c.Folder, folders, groups, report.Page{Title: "Comparison", Baseline: c.Baseline})
}

// ownReport writes the page of one run into its folder.
func ownReport(c *config.Config) error {
	r, err := report.Read(c.SaveFolder)
	if err != nil {
		return err
	}
	_, err = report.Write(c.SaveFolder, []*report.Run{r}, report.Page{Title: c.RunName})
	return err
}
