package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestArgumentsAreSortedIntoFlagsOverridesAndTheRest(t *testing.T) {
	c := planCommand()
	for _, tc := range []struct{ in, args, set string }{
		{"a.yaml", "[a.yaml]", "[]"},
		{"a.yaml x.y=1 --z.w=2", "[a.yaml]", "[x.y=1 --z.w=2]"},
		{"x=1 a.yaml", "[a.yaml]", "[x=1]"},
		{"--save_folder=f a.yaml", "[a.yaml]", "[--save_folder=f]"},
		{"--max_duration=5 a.yaml", "[a.yaml]", "[--max_duration=5]"},
		{"--preset=olmo2_7B x.y=1", "[]", "[x.y=1]"},
		{"-- a=b.yaml", "[a=b.yaml]", "[]"},
	} {
		e, err := c.parse(strings.Fields(tc.in), &bytes.Buffer{})
		if err != nil {
			t.Errorf("%s: %v", tc.in, err)
			continue
		}
		if args, set := fmt.Sprint(e.args), fmt.Sprint(e.set); args != tc.args || set != tc.set {
			t.Errorf("%s: arguments %s, overrides %s", tc.in, args, set)
		}
	}
	if _, err := c.parse([]string{"--no-such=1"}, &bytes.Buffer{}); err == nil {
		t.Error("an unknown flag with a value is taken for a key")
	}
}

func TestTheConfigurationOfAPathIsFound(t *testing.T) {
	dir := t.TempDir()
	run := filepath.Join(dir, "run")
	file := write(t, filepath.Join(run, "config.yaml"), "a: 1\n")
	if err := os.MkdirAll(filepath.Join(dir, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{file: file, run: file, filepath.Join(dir, "empty"): "", filepath.Join(dir, "none.yaml"): filepath.Join(dir, "none.yaml")} {
		if got := configOf(path); got != want {
			t.Errorf("configOf(%s) = %q, want %q", path, got, want)
		}
	}
	write(t, filepath.Join(dir, "hf", "config.json"), "{}")
	if !isModel(filepath.Join(dir, "hf")) || isModel(run) {
		t.Error("a model folder is one with config.json and no metadata.json")
	}
}

func TestRunFoldersAreFoundBelowAFolder(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b", "a", "c"} {
		write(t, filepath.Join(dir, name, "metrics.jsonl"), "{}\n")
	}
	write(t, filepath.Join(dir, "other", "x"), "")
	got, err := runFolders(dir)
	want := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")}
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := runFolders(want[0]); err != nil || len(got) != 1 {
		t.Errorf("a run folder itself: %v, %v", got, err)
	}
}

func TestHelpIsWrittenForPeopleWhoSkim(t *testing.T) {
	for _, c := range commands() {
		out := must(t, c.name, "--help")
		for i, line := range strings.Split(out, "\n") {
			if n := len([]rune(line)); n > 110 {
				t.Errorf("%s --help: line %d has %d characters: %s", c.name, i+1, n, line)
			}
		}
	}
}
