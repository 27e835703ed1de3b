package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/asteria-runtime/asteria/trainer-olmo/report"
)

func reportCommand() command {
	return command{
		name: "report", usage: "FOLDER…", min: 1, max: -1, run: runReport,
		summary: "write report.html and plots of one or several run folders",
		help: `A folder that holds run folders stands for all of them. The page needs no
network; the plots also lie beside it as PNG.`,
		flags: func(f *pflag.FlagSet) {
			f.String("out", "", "folder for the report (default: the first FOLDER)")
			f.String("baseline", "", "run that the others are measured against (default: the first)")
			f.String("title", "", "heading of the page")
		},
		examples: []string{
			"report runs/demo",
			"report runs/a runs/b --out both --baseline a",
		},
	}
}

func runReport(_ context.Context, e *env) error {
	var folders []string
	for _, f := range e.args {
		found, err := runFolders(f)
		if err != nil {
			return err
		}
		folders = append(folders, found...)
	}
	page := report.Page{}
	page.Title, _ = e.flags.GetString("title")
	page.Baseline, _ = e.flags.GetString("baseline")
	out, _ := e.flags.GetString("out")
	if out == "" {
		out = e.args[0]
	}
	return writeReport(e.out, out, folders, nil, page)
}

// runFolders is the folder itself when it is a run's, or the run folders in it.
func runFolders(folder string) ([]string, error) {
	if !exists(folder) {
		return nil, usagef("report: %s: no such file or directory", folder)
	}
	if exists(filepath.Join(folder, "metrics.jsonl")) {
		return []string{folder}, nil
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, usagef("report: %s is not a folder", folder)
	}
	var out []string
	for _, entry := range entries {
		if sub := filepath.Join(folder, entry.Name()); exists(filepath.Join(sub, "metrics.jsonl")) {
			out = append(out, sub)
		}
	}
	if len(out) == 0 {
		return nil, usagef("report: %s is not a run folder: it has no metrics.jsonl", folder)
	}
	return out, nil
}
