package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fake writes a run folder with a plausible run of n steps.
func fake(t testing.TB, name string, n int, rate float64, seed uint64) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(seed, 1))
	var b bytes.Buffer
	for step := 1; step <= n; step++ {
		loss := 1.5 + 4*math.Exp(-rate*float64(step)/float64(n)) + 0.05*rnd.NormFloat64()
		dt := 0.1 + 0.004*rnd.Float64()
		if step%10 == 0 {
			dt += 0.03
		}
		m := map[string]any{
			"step": step, MetricLoss: loss, MetricStepTime: dt, MetricTPS: 4096 / dt, MetricGradNorm: math.Exp(rnd.NormFloat64() / 3),
			MetricLR: 1e-3 * (1 + math.Cos(math.Pi*float64(step)/float64(n))) / 2, "note": "text is ignored",
			MetricAge: float64(step % 15), "tier/host/bytes": 3e8, "tier/nvme/bytes": 1e8 * float64(step%3),
		}
		if step%25 == 0 || step == n {
			m["eval/lm/held-out/CE loss"] = loss + 0.1
		}
		line, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	write(t, folder, "metrics.jsonl", b.String())
	write(t, folder, "config.yaml", fmt.Sprintf("run_name: %s\noptimizer:\n  name: %s\n  lr: 0.003\ntrain:\n  steps: %d\n", name, name, n))
	return folder
}

func write(t testing.TB, folder, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func mustRead(t testing.TB, folder string) *Run {
	t.Helper()
	r, err := Read(folder)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAReportHoldsItsPicturesAndNeedsNoNetwork(t *testing.T) {
	a, b := mustRead(t, fake(t, "adamw", 200, 3, 1)), mustRead(t, fake(t, "soap", 200, 6, 2))
	write(t, b.Folder, "health.json", `{"blocks": [{"block": "layers.0.q", "age": 3, "residual": 1.234567e-5, "solver": null}, {"block": "layers.0.k", "retries": 2}]}`)
	b = mustRead(t, b.Folder)
	out := t.TempDir()
	file, err := Write(out, []*Run{a, b}, Page{Title: "A <b>", Notes: []string{"a note"}})
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"A &lt;b&gt;", "a note", "layers.0.k", "1.235e-05", "optimizer.name", "lowest held-out", "reaches adamw"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if m := regexp.MustCompile(`(?:src|href)="(?:[^d"]|d[^a"])[^"]*"|https?://|@import|url\(`).FindString(string(page)); m != "" {
		t.Errorf("the page refers to %q", m)
	}
	pictures, _ := filepath.Glob(filepath.Join(out, "*.png"))
	if len(pictures) != 10 || strings.Count(string(page), "data:image/png;base64,") != len(pictures) {
		t.Errorf("%d pictures beside the page, %d inside it, want 10", len(pictures), strings.Count(string(page), "data:image/png"))
	}
	for _, p := range pictures {
		checkPicture(t, p)
	}
}

// checkPicture decodes a PNG and counts its colours: an empty frame has few.
func checkPicture(t *testing.T, file string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	colours := map[[3]uint32]bool{}
	for y := 0; y < img.Bounds().Dy(); y += 3 {
		for x := 0; x < img.Bounds().Dx(); x += 3 {
			r, g, b, _ := img.At(x, y).RGBA()
			colours[[3]uint32{r, g, b}] = true
		}
	}
	if len(colours) < 20 || img.Bounds().Dx() < 1000 {
		t.Errorf("%s: %d colours in %v", file, len(colours), img.Bounds())
	}
}

func TestARunWithFewNumbersStillMakesAReport(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, "metrics.jsonl", `{"step": 1, "train/CE loss": 5}`+"\n"+`{"step": 2, "train/CE loss": NaN}`+"\n"+`{"step": 3, "train/CE loss": 4, "time/step`)
	r := mustRead(t, folder)
	if r.Skipped != 2 || len(r.steps) != 1 {
		t.Errorf("%d lines skipped, %d steps; want 2 and 1: a cut line is not an error", r.Skipped, len(r.steps))
	}
	if _, err := Write(folder, []*Run{r}, Page{}); err != nil {
		t.Error(err)
	}
}

func TestAResumedStepKeepsItsNewerNumbers(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, "metrics.jsonl", `{"step": 1, "train/CE loss": 5}
{"step": 2, "train/CE loss": 4}
{"step": 3, "train/CE loss": 3}
{"step": 2, "train/CE loss": 4.5}
`)
	s := mustRead(t, folder).Metric(MetricLoss)
	if fmt.Sprint(s.Step, s.Value) != "[1 2 3] [5 4.5 3]" {
		t.Errorf("got %v %v", s.Step, s.Value)
	}
}

func TestAFolderWithoutARunIsAClearError(t *testing.T) {
	folder := t.TempDir()
	if _, err := Read(folder); !errors.Is(err, ErrNoMetrics) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without metrics.jsonl: %v", err)
	}
	write(t, folder, "metrics.jsonl", "")
	if _, err := Read(folder); !errors.Is(err, ErrNoMetrics) {
		t.Errorf("with an empty metrics.jsonl: %v", err)
	}
	write(t, folder, "metrics.jsonl", `{"step": 1}`)
	write(t, folder, "health.json", `{"blocks": [3]}`)
	if _, err := Read(folder); err == nil || !strings.Contains(err.Error(), "health.json") {
		t.Errorf("with a broken health.json: %v", err)
	}
}

func TestQuantilesAreNearestRanks(t *testing.T) {
	x := []float64{5, 1, 4, 2, 3}
	for q, want := range map[float64]float64{0: 1, 0.2: 1, 0.21: 2, 0.5: 3, 0.99: 5, 1: 5} {
		if got := Quantile(x, q); got != want {
			t.Errorf("Quantile(%g) = %g, want %g", q, got, want)
		}
	}
	if x[0] != 5 {
		t.Error("the input was sorted")
	}
	if !math.IsNaN(Quantile(nil, 0.5)) {
		t.Error("of nothing: not NaN")
	}
}

func TestTheSummaryIsComputedAsItSays(t *testing.T) {
	folder := t.TempDir()
	var b strings.Builder
	for i := 1; i <= 20; i++ {
		fmt.Fprintf(&b, `{"step": %d, "train/CE loss": %d, "time/step (s)": %g`, i, 100-i, 0.1)
		if i%10 == 0 {
			fmt.Fprintf(&b, `, "eval/lm/x/CE loss": %d`, 30-i)
		}
		b.WriteString("}\n")
	}
	write(t, folder, "metrics.jsonl", strings.Replace(b.String(), `"time/step (s)": 0.1`, `"time/step (s)": 9`, 1))
	r := mustRead(t, folder)
	s := Summarize(r, nil)
	if s.Steps != 20 || s.Loss != 80.5 || s.HeldOut != 10 || s.P50.Milliseconds() != 100 || s.Max.Milliseconds() != 100 {
		t.Errorf("got %+v", s)
	}
	if d := s.Time.Seconds() - (9 + 19*0.1); math.Abs(d) > 1e-6 {
		t.Errorf("time %v", s.Time)
	}
	if c := crossing(r.HeldOut(), 15); c != 15 {
		t.Errorf("crossing 15 at step %g, want 15 (between 20 at 10 and 10 at 20)", c)
	}
}

func TestFirstStepsOfProcessesAreNotSpeed(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, "metrics.jsonl", `{"step": 1, "time/step (s)": 9, "time/first step of a process": 1}
{"step": 2, "time/step (s)": 1, "time/first step of a process": 0}
{"step": 3, "time/step (s)": 8, "time/first step of a process": 1}
{"step": 4, "time/step (s)": 2, "time/first step of a process": 0}
`)
	r := mustRead(t, folder)
	if s := Summarize(r, nil); s.Max.Seconds() != 2 || s.P50.Seconds() != 1 || s.Time.Seconds() != 20 {
		t.Errorf("got %+v", s)
	}
}

func TestTheTablesLineUp(t *testing.T) {
	a, b, c := mustRead(t, fake(t, "adamw-s1", 50, 3, 1)), mustRead(t, fake(t, "adamw-s2", 50, 3, 2)), mustRead(t, fake(t, "soap", 50, 6, 3))
	a.Group, b.Group = "adamw", "adamw"
	var out strings.Builder
	if err := Table(&out, []*Run{a, b, c}, "adamw"); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
	if len(lines) != 4 {
		t.Fatalf("%d lines:\n%s", len(lines), out.String())
	}
	for _, l := range lines {
		if len([]rune(l)) != len([]rune(lines[0])) {
			t.Errorf("uneven lines:\n%s", out.String())
			break
		}
	}
	out.Reset()
	if err := Groups(&out, []*Run{a, b, c}); err != nil || !strings.Contains(out.String(), "±") {
		t.Errorf("groups: %v\n%s", err, out.String())
	}
	out.Reset()
	if err := Groups(&out, []*Run{a, c}); err != nil || out.Len() > 0 && a.Group == c.Group {
		t.Errorf("without repeated seeds: %v %q", err, out.String())
	}
}

func TestThinningKeepsSpikes(t *testing.T) {
	p := xys(Series{Step: make([]int64, 100000), Value: make([]float64, 100000)}, func(_ int64, i int) float64 { return float64(i) })
	p[54321].Y = 7
	p[12345].Y = -7
	lo, hi := 0.0, 0.0
	for _, v := range thin(p) {
		lo, hi = min(lo, v.Y), max(hi, v.Y)
	}
	if lo != -7 || hi != 7 || len(thin(p)) > maxPoints {
		t.Errorf("kept %d points from %g to %g", len(thin(p)), lo, hi)
	}
}

func TestGroupedDigits(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1176764416: "1,176,764,416", -1234: "-1,234"} {
		if got := group(n); got != want {
			t.Errorf("group(%d) = %s, want %s", n, got, want)
		}
	}
}

func TestTicksAreRoundAndFew(t *testing.T) {
	for _, tc := range []struct{ lo, hi float64 }{{0, 1}, {1.3, 5.6}, {0, 250}, {0, 1e-3}, {-3, 7}, {0, 1e9}, {99.9, 100.1}, {0, 0}} {
		ticks := linearTicks{}.Ticks(tc.lo, tc.hi)
		if len(ticks) == 0 || len(ticks) > 2*wanted {
			t.Errorf("[%g, %g]: %d ticks", tc.lo, tc.hi, len(ticks))
		}
		seen := map[string]bool{}
		for _, k := range ticks {
			if seen[k.Label] || k.Label == "" {
				t.Errorf("[%g, %g]: label %q twice or empty", tc.lo, tc.hi, k.Label)
			}
			seen[k.Label] = true
		}
	}
	for v, want := range map[float64]string{0.25: "0.25", 1500: "1,500", 3e-4: "0.0003", 3e-6: "3e-6", 2e9: "2e9", 2.5: "2.5"} {
		if got := label(v, v/5); got != want {
			t.Errorf("label(%g) = %s, want %s", v, got, want)
		}
	}
	if n := len(logTicks{}.Ticks(0.05, 20)); n < 3 || n > 12 {
		t.Errorf("%d ticks on a logarithmic axis", n)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(`{"step": 1, "train/CE loss": 5}`, `[{"block": "a"}]`)
	f.Add("{}\n\x00", `{"blocks": []}`)
	f.Fuzz(func(t *testing.T, metrics, health string) {
		folder := t.TempDir()
		write(t, folder, "metrics.jsonl", metrics)
		write(t, folder, "health.json", health)
		r, err := Read(folder)
		if err != nil {
			return
		}
		if err := HTML(&bytes.Buffer{}, []*Run{r}, nil, Page{}); err != nil {
			t.Error(err)
		}
		for i := 1; i < len(r.steps); i++ {
			if r.steps[i] <= r.steps[i-1] {
				t.Error("steps are not ascending")
			}
		}
	})
}

func BenchmarkFigures(b *testing.B) {
	r := mustRead(b, fake(b, "adamw", 1000, 3, 1))
	for b.Loop() {
		if _, err := Figures([]*Run{r}); err != nil {
			b.Fatal(err)
		}
	}
}
