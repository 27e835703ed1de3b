package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
)

// stepTimes reads the seconds of the steps after skip. The trainer's step time
// covers loading the batch and the step, and neither saves nor evaluations.
func stepTimes(folder string, skip int) ([]float64, error) {
	f, err := os.Open(filepath.Join(folder, "metrics.jsonl"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var times []float64
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var m struct {
			Step int      `json:"step"`
			Time *float64 `json:"time/step (s)"`
		}
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		if m.Time != nil && m.Step > skip {
			times = append(times, *m.Time)
		}
	}
	return times, lines.Err()
}

// profile is the shape of a run's step times.
type profile struct {
	p50, p99, most float64 // seconds
	sum            float64
}

// profileOf returns the shape: the p99 is the smallest time that 99 % of the
// steps do not exceed.
func profileOf(times []float64) profile {
	s := slices.Sorted(slices.Values(times))
	p := profile{p50: s[(len(s)-1)/2], p99: s[(99*len(s)+99)/100-1], most: s[len(s)-1]}
	for _, t := range times {
		p.sum += t
	}
	return p
}

// ratios are what the bars are about, each the mean over the rounds.
type ratios struct {
	p50       float64 // milliseconds
	p99, most float64 // to the run's own median
	total     float64 // seconds of the steps that count
}

// meanOf averages the rounds of one variant: ratios within a round, since the
// machine may change between them.
func meanOf(rounds [][]float64) ratios {
	var r ratios
	for _, times := range rounds {
		p := profileOf(times)
		r.p50 += 1e3 * p.p50
		r.p99 += p.p99 / p.p50
		r.most += p.most / p.p50
		r.total += p.sum
	}
	n := float64(len(rounds))
	return ratios{r.p50 / n, r.p99 / n, r.most / n, r.total / n}
}

// printTable writes one set-up as a table in Markdown. The total is compared with
// that of the native run before it with the same phases.
func printTable(w io.Writer, method string, s setup, times [][][]float64) {
	fmt.Fprintf(w, "\n%s, %s: %d training thread(s), 1 worker, %d steps, %d round(s)\n\n", method, s.name, s.threads, len(times[0][0]), len(times[0]))
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintln(t, "| run\t| p50\t| p99/p50\t| of AdamW's\t| max/p50\t| of native's\t| total, of native's\t|")
	fmt.Fprintln(t, "|---\t|---\t|---\t|---\t|---\t|---\t|---\t|")
	own := meanOf(times[0])
	for i, v := range s.runs {
		r := meanOf(times[i])
		toNative, total := "", ""
		if i > 0 && v.beside(s.runs[i-1]) {
			n := meanOf(times[i-1])
			toNative, total = fmt.Sprintf("%.2f", r.most/n.most), fmt.Sprintf("%.3f", r.total/n.total)
		}
		fmt.Fprintf(t, "| %s\t| %.1f ms\t| %.3f\t| %.2f\t| %.2f\t| %s\t| %s\t|\n", v.name, r.p50, r.p99, r.p99/own.p99, r.most, toNative, total)
	}
	t.Flush()
}

// beside reports whether v is the counterpart of the native run before it.
func (v variant) beside(native variant) bool {
	return "native"+v.name[min(len(v.name), len("asteria")):] == native.name
}
