package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// twoThreads is a report of one row on one and two threads, and one that the second lacks.
func twoThreads() *report {
	row := func(shape string, threads int, median, ratio float64) result {
		return result{Group: "QR", Shape: shape, Threads: threads,
			Peers: []measurement{{Name: "asteria", Median: median}, {Name: "BLIS", Median: ratio * median, Min: 1, Ratio: ratio}}}
	}
	return &report{FMA: map[int]float64{1: 1, 2: 2},
		Results: []result{row("64", 1, 2e-6, 1.5), row("128", 1, 3e-3, 0.9), row("64", 2, 1e-6, 2)}}
}

func TestMarkdownHasARowForEachShape(t *testing.T) {
	var out bytes.Buffer
	twoThreads().printMarkdown(&out)
	want := "| QR | ours, 1 thread | ratio | best peer | ours, 2 threads | ratio | best peer |\n" +
		"|---|---|---|---|---|---|---|\n" +
		"| 64 | 2µs | 1.50 | BLIS | 1µs | 2.00 | BLIS |\n" +
		"| 128 | 3ms | 0.90 | BLIS | | | |\n\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestReportWritesTheFilesThatWereAskedFor(t *testing.T) {
	dir := t.TempDir()
	o := options{json: filepath.Join(dir, "a.json"), mark: filepath.Join(dir, "a.md")}
	r := twoThreads()
	if err := r.write(o); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(o.json)
	if err != nil {
		t.Fatal(err)
	}
	var back report
	if err := json.Unmarshal(text, &back); err != nil || len(back.Results) != len(r.Results) {
		t.Errorf("%d results came back (%v), want %d", len(back.Results), err, len(r.Results))
	}
	if text, err := os.ReadFile(o.mark); err != nil || !bytes.Contains(text, []byte("| 64 |")) {
		t.Errorf("tables %q (%v)", text, err)
	}
	if err := r.write(options{mark: filepath.Join(dir, "none", "a.md")}); err == nil {
		t.Error("a folder that does not exist is no error")
	}
}
