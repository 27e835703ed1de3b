package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// Summary is a run in one line.
type Summary struct {
	Name    string
	Steps   int64
	Loss    float64 // mean training loss of the last tenth of the steps, NaN without
	HeldOut float64 // newest held-out loss, NaN without
	// Time is the sum of the step times.
	Time time.Duration
	// P50, P99 and Max are of the step times, the first step of each process left
	// out: it allocates and warms caches. Zero when there is no step time.
	P50, P99, Max time.Duration
	TPS           float64 // tokens per second at the median step, NaN without
	// Crossing is the first step at which the held-out loss is at or below the
	// baseline's last one, interpolated, 0 when it never is or is not known.
	Crossing float64
}

// Summarize reduces a run to a line. baseline may be nil.
func Summarize(r, baseline *Run) Summary {
	s := Summary{Name: r.Name, Loss: tail(r.Metric(MetricLoss).Value), HeldOut: r.HeldOut().Last(), TPS: math.NaN()}
	s.Steps = r.steps[len(r.steps)-1]
	times := r.Metric(MetricStepTime)
	s.Time = seconds(sum(times.Value))
	if t := r.Warm(MetricStepTime).Value; len(t) > 0 {
		s.P50, s.P99, s.Max = seconds(Quantile(t, 0.5)), seconds(Quantile(t, 0.99)), seconds(Quantile(t, 1))
	}
	s.TPS = Quantile(r.Warm(MetricTPS).Value, 0.5)
	if baseline != nil && baseline != r {
		s.Crossing = crossing(r.HeldOut(), baseline.HeldOut().Last())
	}
	return s
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func sum(x []float64) float64 {
	t := 0.0
	for _, v := range x {
		t += v
	}
	return t
}

// tail is the mean of the last tenth, at least one value.
func tail(x []float64) float64 {
	if len(x) == 0 {
		return math.NaN()
	}
	last := x[len(x)-max(1, len(x)/10):]
	return sum(last) / float64(len(last))
}

// Quantile is the smallest value that at least the share q of x does not exceed
// (nearest rank), NaN for an empty x. x is not changed.
func Quantile(x []float64, q float64) float64 {
	if len(x) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(x))
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// crossing is where a series first reaches a level from above, between the
// points around it in a straight line.
func crossing(s Series, level float64) float64 {
	for i, v := range s.Value {
		if !(v <= level) {
			continue
		}
		if i == 0 {
			return float64(s.Step[0])
		}
		before := s.Value[i-1]
		part := (before - level) / (before - v)
		return float64(s.Step[i-1]) + part*float64(s.Step[i]-s.Step[i-1])
	}
	return 0
}

// Table writes one line for each run, measured against the first run of the
// group baseline ("" = the first run of all).
func Table(w io.Writer, runs []*Run, baseline string) error {
	header, rows := table(runs, baseline)
	widths := make([]int, len(header))
	for _, row := range append([][]string{header}, rows...) {
		for i, c := range row {
			widths[i] = max(widths[i], len([]rune(c)))
		}
	}
	var b strings.Builder
	for _, row := range append([][]string{header}, rows...) {
		for i, c := range row {
			pad := strings.Repeat(" ", widths[i]-len([]rune(c)))
			if i == 0 {
				b.WriteString(c + pad)
			} else {
				b.WriteString("  " + pad + c)
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// table is the header and the lines as text.
func table(runs []*Run, baseline string) (header []string, rows [][]string) {
	header = []string{"run", "steps", "train loss", "held-out", "time", "p50 step", "p99 step", "max step", "tokens/s"}
	base := find(runs, baseline)
	crossings := base.HeldOut().Len() > 0 && len(runs) > 1
	if crossings {
		header = append(header, "reaches "+base.Name)
	}
	for _, r := range runs {
		s := Summarize(r, base)
		row := []string{s.Name, group(s.Steps), number(s.Loss), number(s.HeldOut), clock(s.Time),
			milli(s.P50), milli(s.P99), milli(s.Max), count(s.TPS)}
		if crossings {
			row = append(row, reaches(s, base))
		}
		rows = append(rows, row)
	}
	return header, rows
}

// reaches words the crossing: the step, and its share of the baseline's steps.
func reaches(s Summary, base *Run) string {
	if s.Name == base.Name || s.Crossing == 0 {
		return "–"
	}
	whole := base.steps[len(base.steps)-1]
	return fmt.Sprintf("step %.0f (%.0f %%)", s.Crossing, 100*s.Crossing/float64(whole))
}

// find is the first run of a group or name, the first of all without one.
func find(runs []*Run, name string) *Run {
	for _, r := range runs {
		if r.Group == name || r.Name == name {
			return r
		}
	}
	return runs[0]
}

// Groups writes the mean and standard deviation over the seeds of each group, in
// the order of the runs. It writes nothing when no group has two runs.
func Groups(w io.Writer, runs []*Run) error {
	order, members := grouped(runs)
	if len(order) == len(runs) {
		return nil
	}
	width := 0
	for _, g := range order {
		width = max(width, len(g))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-*s  runs  steps  held-out mean ± sd  train mean ± sd\n", width, "over seeds")
	for _, g := range order {
		var held, loss []float64
		for _, r := range members[g] {
			s := Summarize(r, nil)
			held, loss = append(held, s.HeldOut), append(loss, s.Loss)
		}
		steps := members[g][0].steps
		fmt.Fprintf(&b, "%-*s  %4d  %5s  %18s  %15s\n", width, g, len(held), group(steps[len(steps)-1]), spread(held), spread(loss))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func grouped(runs []*Run) (order []string, members map[string][]*Run) {
	members = map[string][]*Run{}
	for _, r := range runs {
		if members[r.Group] == nil {
			order = append(order, r.Group)
		}
		members[r.Group] = append(members[r.Group], r)
	}
	return order, members
}

// spread is "mean ± sd" with the unbiased standard deviation.
func spread(x []float64) string {
	mean := sum(x) / float64(len(x))
	if math.IsNaN(mean) {
		return "–"
	}
	if len(x) < 2 {
		return number(mean)
	}
	ss := 0.0
	for _, v := range x {
		ss += (v - mean) * (v - mean)
	}
	return fmt.Sprintf("%.4f ± %.4f", mean, math.Sqrt(ss/float64(len(x)-1)))
}

func number(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return fmt.Sprintf("%.4f", v)
}

func count(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return group(int64(v))
}

// group writes a whole number with commas.
func group(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// milli shows a step time.
func milli(d time.Duration) string {
	switch {
	case d == 0:
		return "–"
	case d < time.Second:
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

// clock shows the length of a run.
func clock(d time.Duration) string {
	switch {
	case d == 0:
		return "–"
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}
