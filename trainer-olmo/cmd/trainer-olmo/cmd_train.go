package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/asteria-runtime/asteria/hiersync"
	"github.com/asteria-runtime/asteria/trainer-olmo/config"
	"github.com/asteria-runtime/asteria/trainer-olmo/doctor"
	"github.com/asteria-runtime/asteria/trainer-olmo/plan"
	"github.com/asteria-runtime/asteria/trainer-olmo/report"
	"github.com/asteria-runtime/asteria/trainer-olmo/train"
)

func trainCommand() command {
	return command{
		name: "train", usage: "CONFIG", min: 1, max: 1, config: true, run: runTrain,
		summary: "train a model as a configuration says",
		help: `CONFIG is a YAML file of this project or one of OLMo's train.py. Any key can be
replaced after it. The run folder (save_folder) then holds config.yaml,
metrics.jsonl, health.json, checkpoints and report.html. The same command
continues an interrupted run from its newest checkpoint. SIGTERM and Ctrl-C end
a run after the current step, with a checkpoint.`,
		examples: []string{
			"train configs/demo.yaml",
			"train configs/demo.yaml optimizer.name=soap optimizer.lr=3e-3 train.steps=500",
			"train OLMo-1B.yaml --save_folder=runs/1B data.paths=[part-000.npy]",
		},
	}
}

func runTrain(ctx context.Context, e *env) error {
	c, err := load(e.args[0], e.set)
	if err != nil {
		return err
	}
	return underMPI(ctx, e, c, func(comm *hiersync.Comm) error {
		tellNotices(e.err, c)
		res, err := trainOne(ctx, c, e.err, comm)
		if err != nil || comm != nil && comm.Rank() > 0 {
			return err
		}
		return reportRun(e, c, res)
	})
}

// reportRun tells how a run ended.
func reportRun(e *env, c *config.Config, res train.Result) error {
	if res.Interrupted {
		fmt.Fprintf(e.err, "interrupted after step %d of %d; a checkpoint is saved and the same command continues\n", res.Steps, res.TotalSteps)
		return nil
	}
	return writeReport(e.out, c.SaveFolder, []string{c.SaveFolder}, nil, report.Page{Title: c.RunName})
}

// trainOne makes a run within its plan: it is refused, with the arithmetic, before
// anything is allocated when it would not fit, the Go heap is kept to what the plan
// says, and afterwards its memory goes back to the system.
func trainOne(ctx context.Context, c *config.Config, progress io.Writer, comm *hiersync.Comm) (train.Result, error) {
	p, err := plan.New(c)
	if err != nil {
		return train.Result{}, err
	}
	here := int64(1) // ranks inside this process
	if comm == nil {
		here = int64(c.Parallel.Ranks)
	}
	if err := fits(p, here, doctor.Options{}); err != nil {
		return train.Result{}, err
	}
	setProcs(c.ComputeThreads(), int(here)*(c.RefreshWorkers()+1))
	defer limitHeap(here * p.HeapLimit())()
	o := trainOptions(progress)
	o.Comm = comm
	return train.Run(ctx, c, o)
}

// fits refuses a plan, of each of so many ranks in this process, that the machine or
// the limit of its control group cannot hold: the system would end the process
// without a word.
func fits(p *plan.Plan, ranks int64, o doctor.Options) error {
	limit, from := doctor.MemoryLimit(o)
	if err := p.Check(limit / ranks); err != nil {
		return fmt.Errorf("%w (%s); tiers.host with tiers.nvme.path, a smaller train.micro_batch_size or checkpoint.sync lower it", err, from)
	}
	return nil
}

// limitHeap bounds the Go heap until the returned function is called, which also
// returns what is free to the system. A limit that the user set stays in force.
func limitHeap(bytes int64) (restore func()) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return debug.FreeOSMemory
	}
	before := debug.SetMemoryLimit(bytes)
	return func() {
		debug.SetMemoryLimit(before)
		debug.FreeOSMemory()
	}
}

// trainOptions are those of a run under this command.
func trainOptions(w io.Writer) train.Options {
	return train.Options{
		Out: w, Live: isTerminal(w), Build: buildName(),
		Logger: slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: dropTime})),
	}
}

// dropTime keeps log lines short; the metrics have the times.
func dropTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// writeReport reads run folders, writes a report of them below folder and prints
// the table. groups gives each run's group, nil = its name.
func writeReport(out io.Writer, folder string, folders, groups []string, page report.Page) error {
	var runs []*report.Run
	for i, f := range folders {
		r, err := report.Read(f)
		if err != nil {
			return err
		}
		if groups != nil {
			r.Group = groups[i]
		}
		runs = append(runs, r)
	}
	file, err := report.Write(folder, runs, page)
	if err != nil {
		return err
	}
	if err := report.Table(out, runs, page.Baseline); err != nil {
		return err
	}
	if err := report.Groups(out, runs); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "report: %s\n", file)
	return err
}
