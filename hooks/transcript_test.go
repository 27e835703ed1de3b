package hooks

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the transcripts in testdata anew")

// TestTranscripts replays testdata/*.txt: each line is a command, and the lines
// after "----" up to an empty one are what it printed.
//
//	on POINT NAME [every=N,PHASE] [fail] [drops=NAME] [adds=NAME]
//	remove NAME
//	fire POINT STEP [LAYER]
//	names POINT
//	stagger PERIOD COST…
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			want, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(t, string(want))
			if *rewrite {
				if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(want) {
				t.Fatalf("%s differs; it now reads\n%s", name, got)
			}
		})
	}
}

type player struct {
	s       Schedule
	removes map[string]func()
	out     bytes.Buffer
}

// replay returns the text with the outputs of this run.
func replay(t *testing.T, text string) string {
	p := &player{removes: map[string]func(){}}
	var b strings.Builder
	skip := false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "----":
			skip = true
		case line == "":
			skip = false
			b.WriteString("\n")
		case skip:
		case strings.HasPrefix(line, "#"):
			fmt.Fprintln(&b, line)
		default:
			p.out.Reset()
			p.do(t, strings.Fields(line))
			fmt.Fprintf(&b, "%s\n----\n%s", line, p.out.String())
		}
	}
	return b.String()
}

func (p *player) do(t *testing.T, f []string) {
	switch f[0] {
	case "on":
		p.on(t, f[1], f[2], f[3:])
	case "remove":
		p.removes[f[1]]()
	case "names":
		fmt.Fprintln(&p.out, p.s.Names(point(t, f[1])))
	case "fire":
		ev := Event{Point: point(t, f[1]), Step: number(t, f[2]), Layer: -1}
		if len(f) > 3 {
			ev.Layer = int(number(t, f[3]))
		}
		if err := p.s.Fire(context.Background(), ev); err != nil {
			fmt.Fprintln(&p.out, "error:", err)
		}
	case "stagger":
		var costs []int64
		for _, c := range f[2:] {
			costs = append(costs, number(t, c))
		}
		phases := Stagger(costs, number(t, f[1]))
		fmt.Fprintln(&p.out, "phases", phases, "sums", sums(costs, phases, number(t, f[1])))
	default:
		t.Fatalf("unknown command %v", f)
	}
}

func (p *player) on(t *testing.T, at, name string, options []string) {
	var when When
	var fail error
	var drops, adds string
	for _, o := range options {
		key, value, _ := strings.Cut(o, "=")
		switch key {
		case "every":
			n, phase, _ := strings.Cut(value, ",")
			when = Every(number(t, n), number(t, phase))
		case "fail":
			fail = errors.New("failed")
		case "drops":
			drops = value
		case "adds":
			adds = value
		default:
			t.Fatalf("unknown option %q", o)
		}
	}
	p.removes[name] = p.s.On(point(t, at), name, when, func(_ context.Context, ev Event) error {
		fmt.Fprintf(&p.out, "%s: %s\n", name, ev)
		if drops != "" {
			p.removes[drops]()
		}
		if adds != "" {
			p.on(t, at, adds, nil)
		}
		return fail
	})
}

func point(t *testing.T, s string) Point {
	p, err := ParsePoint(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func number(t *testing.T, s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
