package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestProfileOf(t *testing.T) {
	times := make([]float64, 300)
	for i := range times {
		times[i] = 1
	}
	times[7], times[100], times[200], times[299] = 4, 3, 2, 1.5
	p := profileOf(times)
	// 297 of 300 steps do not exceed the fourth slowest.
	if p.p50 != 1 || p.p99 != 1.5 || p.most != 4 || p.sum != 296+10.5 {
		t.Errorf("%+v", p)
	}
}

func TestStepTimesSkipsTheFirst(t *testing.T) {
	dir := t.TempDir()
	text := `{"step":1,"time/step (s)":9}
{"step":2,"time/step (s)":0.5}
{"step":3,"other":1}
{"step":4,"time/step (s)":0.25}
`
	if err := os.WriteFile(filepath.Join(dir, "metrics.jsonl"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := stepTimes(dir, 1)
	if err != nil || len(got) != 2 || got[0] != 0.5 || got[1] != 0.25 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestTableComparesWithTheRightRuns(t *testing.T) {
	s := allSetups()[1]
	times := make([][][]float64, len(s.runs))
	for i := range times {
		times[i] = [][]float64{{1, 1, float64(i + 1)}}
	}
	var b strings.Builder
	printTable(&b, "soap", s, times)
	for _, want := range []string{"| asteria, staggered ", "| 1.50 ", "| 1.250 ", "| 1.25 ", "| 1.167 "} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if n := strings.Count(lines[4], "|"); n != 8 || !strings.Contains(lines[4], "adamw") {
		t.Errorf("%q", lines[4])
	}
}
