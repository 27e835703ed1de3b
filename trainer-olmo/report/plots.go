package report

import (
	"bytes"
	"fmt"
	"image/color"
	"image/png"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// Figure is one picture of a report.
type Figure struct {
	File    string // name of the PNG, such as loss_step.png
	Title   string
	Caption string
	PNG     []byte
}

// palette is that of Okabe and Ito, told apart by most colour-blind readers.
var palette = [...]color.RGBA{
	{0x00, 0x72, 0xb2, 255}, {0xd5, 0x5e, 0x00, 255}, {0x00, 0x9e, 0x73, 255}, {0xcc, 0x79, 0xa7, 255},
	{0xe6, 0x9f, 0x00, 255}, {0x56, 0xb4, 0xe9, 255}, {0x55, 0x55, 0x55, 255}, {0x8c, 0x56, 0x4b, 255},
}

// Sizes of a picture; 192 dots per inch keep it sharp on dense screens.
const (
	width     = 18 * vg.Centimeter
	height    = 10 * vg.Centimeter
	dpi       = 192
	maxPoints = 2000 // of a line; more cannot be seen
)

// line is one curve of a figure.
type line struct {
	label  string
	color  color.RGBA
	points plotter.XYs
	faint  bool // drawn thin behind the others, without a label
	dots   bool // points are marked
	dashes []vg.Length
}

// Figures draws every picture for which the runs have data.
func Figures(runs []*Run) ([]Figure, error) {
	var out []Figure
	for _, f := range []struct {
		file, title, caption, x, y string
		log                        bool
		lines                      func(*Run, color.RGBA) []line
	}{
		{"loss_step.png", "Training loss by step", "Thin: every step. Thick: mean over a twentieth of the run.", "step", "cross-entropy (nats)", false, lossByStep},
		{"loss_time.png", "Training loss by time", "Time is the sum of the step times.", "training time (s)", "cross-entropy (nats)", false, lossByTime},
		{"heldout.png", "Held-out loss", "Each dot is one evaluation.", "step", "cross-entropy (nats)", false, heldOut},
		{"steptime.png", "Time of each step", "The first step of a process is left out.", "step", "ms", false, stepTime},
		{"lr.png", "Learning rate", "", "step", "learning rate", false, metric(MetricLR)},
		{"gradnorm.png", "Gradient norm", "Before clipping.", "step", "L2 norm", true, metric(MetricGradNorm)},
		{"ages.png", "Age of the roots and bases in use", "Steps since the statistics of the oldest one.", "step", "steps", false, metric(MetricAge)},
		{"tiers.png", "Optimizer state by memory tier", "Full: device. Dashed: host. Dotted: NVMe.", "step", "MiB", false, tierBytes},
		{"throughput.png", "Throughput", "Tokens per second of each step.", "step", "tokens/s", false, throughput},
	} {
		var lines []line
		for i, r := range runs {
			lines = append(lines, f.lines(r, palette[i%len(palette)])...)
		}
		picture, err := drawLines(f.title, f.x, f.y, f.log, lines)
		if err != nil {
			return nil, fmt.Errorf("report: %s: %w", f.file, err)
		}
		if picture != nil {
			out = append(out, Figure{f.file, f.title, f.caption, picture})
		}
	}
	hist, err := histogram(runs)
	if err != nil {
		return nil, fmt.Errorf("report: steptime_hist.png: %w", err)
	}
	if hist != nil {
		f := Figure{"steptime_hist.png", "Step-time profile", "Share of the steps by their time; lines mark p50 and p99.", hist}
		at := min(4, len(out))
		out = slices.Insert(out, at, f)
	}
	return out, nil
}

// xys pairs a series with its steps, or with x when given.
func xys(s Series, x func(step int64, i int) float64) plotter.XYs {
	var out plotter.XYs
	for i, v := range s.Value {
		at := float64(s.Step[i])
		if x != nil {
			at = x(s.Step[i], i)
		}
		if !math.IsNaN(v) && !math.IsInf(v, 0) && !math.IsNaN(at) {
			out = append(out, plotter.XY{X: at, Y: v})
		}
	}
	return out
}

// smoothed is a raw line and its centred mean over a twentieth of the run.
func smoothed(name string, c color.RGBA, p plotter.XYs) []line {
	if len(p) < 20 {
		return []line{{label: name, color: c, points: p}}
	}
	half := max(2, len(p)/40)
	mean := make(plotter.XYs, len(p))
	for i := range p {
		// The window shrinks towards both ends, so that it stays centred.
		h := min(half, i, len(p)-1-i)
		total := 0.0
		for _, v := range p[i-h : i+h+1] {
			total += v.Y
		}
		mean[i] = plotter.XY{X: p[i].X, Y: total / float64(2*h+1)}
	}
	return []line{{color: c, points: p, faint: true}, {label: name, color: c, points: mean}}
}

func lossByStep(r *Run, c color.RGBA) []line {
	return smoothed(r.Name, c, xys(r.Metric(MetricLoss), nil))
}

func lossByTime(r *Run, c color.RGBA) []line {
	elapsed := r.Elapsed()
	at := map[int64]float64{}
	for i, step := range elapsed.Step {
		at[step] = elapsed.Value[i]
	}
	return smoothed(r.Name, c, xys(r.Metric(MetricLoss), func(step int64, _ int) float64 {
		if t, ok := at[step]; ok {
			return t
		}
		return math.NaN()
	}))
}

func heldOut(r *Run, c color.RGBA) []line {
	return []line{{label: r.Name, color: c, points: xys(r.HeldOut(), nil), dots: true}}
}

func stepTime(r *Run, c color.RGBA) []line {
	p := xys(r.Warm(MetricStepTime), nil)
	for i := range p {
		p[i].Y *= 1000
	}
	return []line{{label: r.Name, color: c, points: p}}
}

func throughput(r *Run, c color.RGBA) []line {
	return smoothed(r.Name, c, xys(r.Warm(MetricTPS), nil))
}

// tierStyles tell the tiers of a run apart: they have its colour.
var tierStyles = []struct {
	name   string
	dashes []vg.Length
}{
	{"device", nil}, {"host", []vg.Length{vg.Points(6), vg.Points(3)}}, {"nvme", []vg.Length{vg.Points(1.5), vg.Points(2.5)}},
}

// tierBytes is a line for each tier that the run has.
func tierBytes(r *Run, c color.RGBA) []line {
	var out []line
	for _, tier := range tierStyles {
		p := xys(r.Metric("tier/"+tier.name+"/bytes"), nil)
		for i := range p {
			p[i].Y /= 1 << 20
		}
		if len(p) > 0 {
			out = append(out, line{label: r.Name + ", " + tier.name, color: c, points: p, dashes: tier.dashes})
		}
	}
	return out
}

func metric(name string) func(*Run, color.RGBA) []line {
	return func(r *Run, c color.RGBA) []line {
		return []line{{label: r.Name, color: c, points: xys(r.Metric(name), nil)}}
	}
}

// newPlot is a plot in the house style: light grid, no box, quiet labels.
func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	sans := font.Font{Typeface: "Liberation", Variant: "Sans"}
	for _, s := range []struct {
		f    *font.Font
		size font.Length
	}{
		{&p.Title.TextStyle.Font, 13}, {&p.X.Label.TextStyle.Font, 10}, {&p.Y.Label.TextStyle.Font, 10},
		{&p.X.Tick.Label.Font, 9}, {&p.Y.Tick.Label.Font, 9}, {&p.Legend.TextStyle.Font, 10},
	} {
		*s.f = sans
		s.f.Size = s.size
	}
	p.Title.Padding, p.X.Label.Padding, p.Y.Label.Padding = 6, 4, 4
	soft := color.RGBA{0x60, 0x60, 0x60, 255}
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.LineStyle.Color, a.Tick.LineStyle.Color = soft, soft
		a.Tick.Label.Color, a.Label.TextStyle.Color = soft, soft
		a.Tick.Marker, a.Tick.Length = linearTicks{}, 4
	}
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{0xe4}, color.Gray{0xf0}
	p.Add(grid)
	p.Legend.Top, p.Legend.Padding, p.Legend.ThumbnailWidth = true, 3, 20
	p.BackgroundColor = color.White
	return p
}

// drawLines renders a figure, nil when no line has two points or one dot.
func drawLines(title, x, y string, log bool, lines []line) ([]byte, error) {
	p := newPlot(title, x, y)
	drawn := 0
	for _, l := range lines {
		if log {
			l.points = slices.DeleteFunc(l.points, func(v plotter.XY) bool { return v.Y <= 0 })
		}
		if len(l.points) < 2 && !(l.dots && len(l.points) == 1) {
			continue
		}
		if err := addLine(p, l); err != nil {
			return nil, err
		}
		drawn++
	}
	if drawn == 0 {
		return nil, nil
	}
	if log = log && p.Y.Max > 5*p.Y.Min; log {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, logTicks{}
	}
	p.Y.Min, p.Y.Max = margin(p.Y.Min, p.Y.Max, log, labels(lines))
	return render(p)
}

// labels counts the entries of the legend.
func labels(lines []line) int {
	n := 0
	for _, l := range lines {
		if l.label != "" {
			n++
		}
	}
	return n
}

// margin keeps curves off the frame and off the legend of n entries above them.
func margin(lo, hi float64, log bool, n int) (float64, float64) {
	head := 0.03 + 0.065*float64(n)
	if log {
		return lo, hi * math.Pow(hi/lo, head)
	}
	if lo == hi {
		lo, hi = lo-math.Abs(lo)/10-1e-12, hi+math.Abs(hi)/10+1e-12
	}
	low := lo - (hi-lo)*0.05
	if lo >= 0 && low < 0 {
		low = 0
	}
	return low, hi + (hi-lo)*head
}

func addLine(p *plot.Plot, l line) error {
	drawn := &curve{XYs: thin(l.points), LineStyle: plotter.DefaultLineStyle}
	drawn.Color, drawn.Width, drawn.Dashes = l.color, vg.Points(1.4), l.dashes
	if l.faint {
		pale := l.color
		drawn.Color, drawn.Width = color.NRGBA{pale.R, pale.G, pale.B, 0x48}, vg.Points(0.6)
	}
	p.Add(drawn)
	if l.dots {
		dots, err := plotter.NewScatter(thin(l.points))
		if err != nil {
			return err
		}
		dots.GlyphStyle = draw.GlyphStyle{Color: l.color, Radius: vg.Points(2.2), Shape: draw.CircleGlyph{}}
		p.Add(dots)
	}
	if l.label != "" {
		p.Legend.Add(l.label, drawn)
	}
	return nil
}

// thin keeps the lowest and highest point of each stretch, so that spikes stay.
func thin(p plotter.XYs) plotter.XYs {
	if len(p) <= maxPoints {
		return p
	}
	out := make(plotter.XYs, 0, maxPoints)
	stretch := (len(p) + maxPoints/2 - 1) / (maxPoints / 2)
	for part := range slices.Chunk(p, stretch) {
		lo, hi := 0, 0
		for i, v := range part {
			if v.Y < part[lo].Y {
				lo = i
			}
			if v.Y > part[hi].Y {
				hi = i
			}
		}
		out = append(out, part[min(lo, hi)])
		if lo != hi {
			out = append(out, part[max(lo, hi)])
		}
	}
	return out
}

func render(p *plot.Plot) ([]byte, error) {
	canvas := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi))
	area := draw.Crop(draw.New(canvas), 8, -14, 6, -8)
	p.Draw(area)
	var b bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestSpeed}
	err := encoder.Encode(&b, canvas.Image())
	return b.Bytes(), err
}
