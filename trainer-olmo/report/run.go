package report

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Names of metrics, those of OLMo-core where it has them.
const (
	MetricLoss     = "train/CE loss"
	MetricGradNorm = "optim/total grad norm"
	MetricLR       = "optim/LR (group 0)"
	MetricTPS      = "throughput/device/TPS"
	MetricTokens   = "throughput/total tokens"
	MetricStepTime = "time/step (s)"
	MetricSkipped  = "optim/step skipped"
	MetricAge      = "asteria/adopted age max"
	// MetricFirst is 1 in the first step of each process, whose time includes
	// allocation and cold caches.
	MetricFirst = "time/first step of a process"
)

// maxLine bounds one line of metrics.jsonl; a step has about a hundred numbers.
const maxLine = 4 << 20

// Run is what a run folder says.
type Run struct {
	Name   string // the folder's base name, or run_name of its config.yaml
	Group  string // runs of the same group differ in the seed only; Name when empty
	Folder string
	// Config is the text of config.yaml, empty when there is none.
	Config string
	// Health lists the blocks of health.json in its order, key by key.
	Health []Block
	// Skipped counts lines of metrics.jsonl that are not JSON objects.
	Skipped int

	steps   []int64 // ascending, unique
	metrics map[string]map[int64]float64
}

// Block is one entry of health.json: names and values in the file's order.
type Block struct {
	Keys   []string
	Values []string
}

// Series is one metric over the steps that have it.
type Series struct {
	Step  []int64
	Value []float64
}

// Len is the number of points.
func (s Series) Len() int { return len(s.Step) }

// Last is the newest value, NaN when there is none.
func (s Series) Last() float64 {
	if len(s.Value) == 0 {
		return math.NaN()
	}
	return s.Value[len(s.Value)-1]
}

// ErrNoMetrics is wrapped by Read when a folder is not that of a run.
var ErrNoMetrics = errors.New("report: no metrics")

// Read reads a run folder. Every line of metrics.jsonl is a JSON object with the
// number "step" and further numbers; other values are ignored. A step that
// appears twice, as after a resume, keeps the newer numbers.
func Read(folder string) (*Run, error) {
	f, err := os.Open(filepath.Join(folder, "metrics.jsonl"))
	if err != nil {
		return nil, fmt.Errorf("%w in %s: %w", ErrNoMetrics, folder, err)
	}
	defer f.Close()
	r := &Run{Name: filepath.Base(filepath.Clean(folder)), Folder: folder, metrics: map[string]map[int64]float64{}}
	if err := r.readMetrics(f); err != nil {
		return nil, fmt.Errorf("report: read %s: %w", f.Name(), err)
	}
	if len(r.steps) == 0 {
		return nil, fmt.Errorf("%w in %s: metrics.jsonl has no steps", ErrNoMetrics, folder)
	}
	if text, err := os.ReadFile(filepath.Join(folder, "config.yaml")); err == nil {
		r.Config = string(text)
	}
	r.Group = r.Name
	r.Health, err = readHealth(filepath.Join(folder, "health.json"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return r, nil
}

func (r *Run) readMetrics(in io.Reader) error {
	s := bufio.NewScanner(in)
	s.Buffer(make([]byte, 64<<10), maxLine)
	seen := map[int64]bool{}
	for s.Scan() {
		var line map[string]any
		if json.Unmarshal(s.Bytes(), &line) != nil {
			r.Skipped++
			continue
		}
		step, ok := line["step"].(float64)
		if !ok || step != math.Trunc(step) || math.Abs(step) > 1<<53 {
			r.Skipped++
			continue
		}
		if n := int64(step); !seen[n] {
			seen[n] = true
			r.steps = append(r.steps, n)
		}
		r.add(int64(step), line)
	}
	slices.Sort(r.steps)
	return s.Err()
}

func (r *Run) add(step int64, line map[string]any) {
	for name, v := range line {
		value, ok := v.(float64)
		if !ok || name == "step" {
			continue
		}
		if r.metrics[name] == nil {
			r.metrics[name] = map[int64]float64{}
		}
		r.metrics[name][step] = value
	}
}

// Metric is the series of one name, empty when the run has no such metric.
func (r *Run) Metric(name string) Series {
	var s Series
	values := r.metrics[name]
	for _, step := range r.steps {
		if v, ok := values[step]; ok {
			s.Step = append(s.Step, step)
			s.Value = append(s.Value, v)
		}
	}
	return s
}

// Warm is a metric without the first step of each process: where that is not
// recorded, without the first step of the run.
func (r *Run) Warm(name string) Series {
	s := r.Metric(name)
	if s.Len() < 2 {
		return s
	}
	first := r.metrics[MetricFirst]
	var out Series
	for i, step := range s.Step {
		if first[step] != 0 || first == nil && i == 0 {
			continue
		}
		out.Step = append(out.Step, step)
		out.Value = append(out.Value, s.Value[i])
	}
	return out
}

// Metrics lists the names that the run has, sorted.
func (r *Run) Metrics() []string {
	names := make([]string, 0, len(r.metrics))
	for name := range r.metrics {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// HeldOut is the held-out loss: the first metric, by name, that starts with
// "eval/" and ends with "CE loss" or "CrossEntropyLoss".
func (r *Run) HeldOut() Series {
	for _, name := range r.Metrics() {
		if strings.HasPrefix(name, "eval/") && (strings.HasSuffix(name, "CE loss") || strings.HasSuffix(name, "CrossEntropyLoss")) {
			return r.Metric(name)
		}
	}
	return Series{}
}

// Elapsed is the training time in seconds at the end of each step: the sum of
// the step times so far, pauses between resumes left out.
func (r *Run) Elapsed() Series {
	s := r.Metric(MetricStepTime)
	sum := 0.0
	out := Series{Step: s.Step, Value: make([]float64, len(s.Value))}
	for i, v := range s.Value {
		sum += v
		out.Value[i] = sum
	}
	return out
}

// readHealth reads {"blocks": [{…}, …]} or a plain list of objects, keeping the
// order of the keys.
func readHealth(file string) ([]Block, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var wrapped struct{ Blocks []json.RawMessage }
	var raw []json.RawMessage
	if json.Unmarshal(text, &wrapped) == nil && wrapped.Blocks != nil {
		raw = wrapped.Blocks
	} else if err := json.Unmarshal(text, &raw); err != nil {
		return nil, fmt.Errorf("report: %s: %w", file, err)
	}
	blocks := make([]Block, 0, len(raw))
	for _, m := range raw {
		b, err := orderedObject(m)
		if err != nil {
			return nil, fmt.Errorf("report: %s: %w", file, err)
		}
		blocks = append(blocks, b)
	}
	return blocks, nil
}

// orderedObject reads one flat JSON object; nested values stay JSON.
func orderedObject(m json.RawMessage) (Block, error) {
	var b Block
	d := json.NewDecoder(strings.NewReader(string(m)))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return b, errors.New("a block is not a JSON object")
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return b, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return b, err
		}
		b.Keys = append(b.Keys, fmt.Sprint(key))
		b.Values = append(b.Values, cell(value))
	}
	return b, nil
}

// cell shows a JSON value in a table: numbers with four digits, texts bare.
func cell(m json.RawMessage) string {
	if string(m) == "null" {
		return "–"
	}
	var f float64
	if json.Unmarshal(m, &f) == nil {
		if f == math.Trunc(f) && math.Abs(f) < 1e9 {
			return fmt.Sprintf("%.0f", f)
		}
		return fmt.Sprintf("%.4g", f)
	}
	var s string
	if json.Unmarshal(m, &s) == nil {
		return s
	}
	return string(m)
}
