package data

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// describe gives a span in one line.
func describe(s Span) string {
	return fmt.Sprintf("row %d [%d,%d) of doc %d [%d,%d) %s %s:%d", s.Row, s.Start, s.End, s.Document, s.DocStart, s.DocEnd, s.ID, filepath.Base(s.Path), s.Line)
}

func inspected(t *testing.T, l *Loader, k int64) []string {
	t.Helper()
	spans, err := l.Inspect(k)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, s := range spans {
		lines = append(lines, describe(s))
	}
	return lines
}

func TestInspectNamesTheDocuments(t *testing.T) {
	lines := `{"id":"a","text":"1 2 3"}` + "\n" + `{"id":"b","text":"4"}` + "\n" + `{"id":"c","text":"5 6 7 8 9"}`
	dir := t.TempDir()
	report, _ := mustTokenize(t, TokenizeOptions{Inputs: []string{writeFile(t, dir, "in.jsonl", lines)}, Tokenizer: numbers{20, 0}})
	cfg := Config{Paths: report.Files, SequenceLength: 5, BatchInstances: 2}
	l := mustOpen(t, cfg) // 1 2 3 0 4 | 0 5 6 7 8 | 9 0
	b := mustBatch(t, l, 0)
	want := [][]string{
		{"[0,4) of doc 0 [0,4) a in.jsonl:1", "[4,5) of doc 1 [4,6) b in.jsonl:2"},
		{"[5,6) of doc 1 [4,6) b in.jsonl:2", "[6,10) of doc 2 [6,12) c in.jsonl:3"},
	}
	var all []string
	for row, i := range b.Instances {
		for _, s := range want[i] {
			all = append(all, fmt.Sprintf("row %d %s", row, s))
		}
	}
	if diff := cmp.Diff(all, inspected(t, l, 0)); diff != "" {
		t.Errorf("with a list (-want +got):\n%s", diff)
	}
	if err := os.Remove(DocumentsPath(report.Files[0])); err != nil {
		t.Fatal(err)
	}
	for i := range all {
		all[i] = all[i][:strings.LastIndex(all[i], ")")+1] + "  .:0"
	}
	if diff := cmp.Diff(all, inspected(t, l, 0)); diff != "" {
		t.Errorf("from EOS alone (-want +got):\n%s", diff)
	}
}

func TestInspectWithoutDocuments(t *testing.T) {
	l := mustOpen(t, small(writeTokens(t, 1, count(16, 200)...)))
	b := mustBatch(t, l, 0)
	spans, err := l.Inspect(0)
	if err != nil || len(spans) != 2 || spans[0].Document != -1 || spans[1].Instance != b.Instances[1] {
		t.Errorf("%+v, %v", spans, err)
	}
	_, err = l.Inspect(-1)
	wantError(t, err, "batch -1")
}

func TestInspectShowsAnInstanceInEachOfItsRows(t *testing.T) {
	cfg := small(writeTokens(t, 1, count(8, 200)...)) // two instances, four ranks
	cfg.Order, cfg.KeepLast, cfg.WorldSize, cfg.BatchInstances, cfg.EOS = OrderLegacy, true, 4, 4, intp(3)
	spans, err := mustOpen(t, cfg).Inspect(0)
	if err != nil || len(spans) != 4 {
		t.Fatalf("%+v, %v", spans, err)
	}
	for row, s := range spans {
		if s.Row != row || s.Instance != spans[row%2].Instance || s.Document != int64(s.Instance) {
			t.Errorf("row %d: %s", row, describe(s))
		}
	}
}

// TestInspectCoversTheBatch: whatever the files and the kind, the spans of a row
// are exactly the tokens of its pieces.
func TestInspectCoversTheBatch(t *testing.T) {
	lines := ""
	for i := range 60 {
		lines += fmt.Sprintf("{\"id\":%d,\"text\":%q}\n", i, strings.Repeat("5 ", 1+i*7%23))
	}
	dir := t.TempDir()
	report, _ := mustTokenize(t, TokenizeOptions{Inputs: []string{writeFile(t, dir, "in.jsonl", lines)}, Tokenizer: numbers{20, 0}, MaxTokens: 150})
	for _, kind := range []string{KindFixed, KindPadded, KindPacked} {
		cfg := Config{Paths: report.Files, SequenceLength: 16, BatchInstances: 4, Kind: kind, Pad: intp(1)}
		l := mustOpen(t, cfg)
		for k := range l.Batches() {
			spans, err := l.Inspect(k)
			if err != nil {
				t.Fatal(err)
			}
			b := mustBatch(t, l, k)
			for row, i := range b.Instances {
				tokens, covered := int64(0), int64(0)
				for _, p := range l.set.of(nil, int64(i)) {
					tokens += p.length()
				}
				for _, s := range spans {
					if s.Row == row {
						covered += s.End - s.Start
						if s.Start < s.DocStart || s.End > s.DocEnd || s.Document < 0 {
							t.Fatalf("%s: %s", kind, describe(s))
						}
					}
				}
				if tokens != covered {
					t.Fatalf("%s, batch %d, row %d: %d of %d tokens", kind, k, row, covered, tokens)
				}
			}
		}
	}
}

func TestListsOfDocumentsAreChecked(t *testing.T) {
	for text, want := range map[string]string{
		"0,5\n4,6\n":   "line 2: document 4 to 6",
		"0,11\n":       "line 1: document 0 to 11",
		"5,3\n":        "line 1: document 5 to 3",
		"x,3\n":        "line 1: start",
		"0,3x\n":       "line 1: end",
		"0\n":          "line 1: 1 columns",
		"-1,3\n":       "line 1: document -1 to 3",
		"0,2,a\n\"b\n": "line 2",
	} {
		wantError(t, parseDocuments(strings.NewReader(text), 10, func(Span) bool { return true }), want)
	}
	var docs []Span
	err := parseDocuments(strings.NewReader("0,2\n2,2,id\n5,10,i,\"a,b\",x,more\n"), 10, func(s Span) bool {
		docs = append(docs, s)
		return true
	})
	if err != nil || len(docs) != 3 || docs[2].Path != "a,b" || docs[2].Document != 2 {
		t.Errorf("%+v, %v", docs, err)
	}
}

func TestGapsBetweenDocumentsAreSpansOfNone(t *testing.T) {
	c := cutter{wanted: []Span{{Start: 0, End: 6, Document: -1}, {Start: 6, End: 12, Document: -1}}}
	for i, d := range []extent{{2, 4}, {5, 8}} {
		c.add(Span{Document: int64(i), DocStart: d.start, DocEnd: d.end})
	}
	var got []string
	for _, s := range slices.Concat(c.spans, c.rest()) {
		got = append(got, fmt.Sprintf("%d-%d:%d", s.Start, s.End, s.Document))
	}
	want := []string{"0-2:-1", "2-4:0", "4-5:-1", "5-6:1", "6-8:1", "8-12:-1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
