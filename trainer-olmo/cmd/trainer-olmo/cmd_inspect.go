package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/asteria-runtime/asteria/trainer-olmo/data"
	"github.com/asteria-runtime/asteria/trainer-olmo/plan"
)

func inspectCommand() command {
	return command{
		name: "inspect", usage: "CONFIG|RUN --step N", min: 1, max: 1, config: true, run: runInspect,
		summary: "tell which documents a step of training saw",
		help: `RUN is a run folder, whose config.yaml is used. Steps count from 1. Without --step
the data is described: files, instances, batches in an epoch.`,
		flags: func(f *pflag.FlagSet) {
			f.Int64("step", 0, "optimizer step, from 1")
		},
		examples: []string{
			"inspect runs/demo/adamw --step 100",
			"inspect configs/demo.yaml",
		},
	}
}

func runInspect(_ context.Context, e *env) (err error) {
	file := configOf(e.args[0])
	if file == "" {
		return usagef("inspect: %s has no config.yaml", e.args[0])
	}
	c, err := load(file, e.set)
	if err != nil {
		return err
	}
	step, _ := e.flags.GetInt64("step")
	if step < 0 || e.flags.Changed("step") && step == 0 {
		return usagef("inspect: --step %d: steps count from 1", step)
	}
	l, err := data.Open(c.DataConfig())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	for _, w := range l.Warnings() {
		fmt.Fprintf(e.err, "note: %s\n", w)
	}
	if step == 0 {
		return describe(e, l)
	}
	spans, err := l.Inspect(step - 1)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.out, "%4s %9s  %-22s %9s  document\n", "row", "instance", "tokens", "document")
	for _, s := range spans {
		fmt.Fprintf(e.out, "%4d %9d  %-22s %9d  %s\n", s.Row, s.Instance, fmt.Sprintf("%d-%d", s.Start, s.End), s.Document, source(s))
	}
	return nil
}

// source names where a span's text came from, as far as it is known.
func source(s data.Span) string {
	from := s.Path
	if from == "" {
		from = s.File
	}
	if s.Line > 0 {
		from = fmt.Sprintf("%s:%d", from, s.Line)
	}
	if s.ID != "" && s.ID != s.Path {
		from += " " + s.ID
	}
	return fmt.Sprintf("%s (tokens %d-%d of %d)", from, s.Start-s.DocStart, s.End-s.DocStart, s.DocEnd-s.DocStart)
}

func describe(e *env, l *data.Loader) error {
	for _, f := range l.Files() {
		fmt.Fprintf(e.out, "file         %s\n", f)
	}
	_, err := fmt.Fprintf(e.out, "instances    %s\nbatches      %s an epoch\ntokens       %s an epoch\nvocabulary   %s, end of document %d, padding %d\nfingerprint  %s\n",
		plan.Group(l.Instances()), plan.Group(l.Batches()), plan.Group(l.Tokens()), plan.Group(int64(l.VocabSize())), l.EOS(), l.Pad(), l.Fingerprint())
	return err
}
