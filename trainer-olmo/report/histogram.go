package report

import (
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// bins of the step-time histogram.
const bins = 60

// histogram draws the distribution of the step times of each run as a filled
// step curve with lines at p50 and p99; nil when no run has two step times.
func histogram(runs []*Run) ([]byte, error) {
	times := make([][]float64, len(runs))
	lo, hi := math.Inf(1), math.Inf(-1)
	for i, r := range runs {
		for _, t := range r.Warm(MetricStepTime).Value {
			times[i] = append(times[i], 1000*t)
		}
		if len(times[i]) < 2 {
			times[i] = nil
			continue
		}
		lo, hi = min(lo, Quantile(times[i], 0)), max(hi, Quantile(times[i], 1))
	}
	if lo > hi {
		return nil, nil
	}
	if lo == hi {
		lo, hi = lo*0.99, hi*1.01+1e-9
	}
	p := newPlot("Step-time profile", "step time (ms)", "share of steps (%)")
	top := 0.0
	for i, t := range times {
		if t == nil {
			continue
		}
		shares := binned(t, lo, hi)
		for _, s := range shares {
			top = max(top, s)
		}
		if err := addBars(p, runs[i].Name, palette[i%len(palette)], shares, lo, hi); err != nil {
			return nil, err
		}
	}
	p.Y.Min, p.Y.Max = margin(0, top, false, len(runs))
	for i, t := range times {
		if err := addMarks(p, palette[i%len(palette)], t, top); err != nil {
			return nil, err
		}
	}
	p.X.Min, p.X.Max = lo-(hi-lo)*0.02, hi+(hi-lo)*0.02
	return render(p)
}

// binned is the share of t, in percent, in each of the equal bins from lo to hi.
func binned(t []float64, lo, hi float64) []float64 {
	shares := make([]float64, bins)
	for _, v := range t {
		b := int(float64(bins) * (v - lo) / (hi - lo))
		shares[min(max(b, 0), bins-1)] += 100 / float64(len(t))
	}
	return shares
}

// addBars draws the outline of the bars, filled with a pale colour.
func addBars(p *plot.Plot, name string, c color.RGBA, shares []float64, lo, hi float64) error {
	step := (hi - lo) / bins
	outline := plotter.XYs{{X: lo, Y: 0}}
	for i, s := range shares {
		outline = append(outline, plotter.XY{X: lo + float64(i)*step, Y: s}, plotter.XY{X: lo + float64(i+1)*step, Y: s})
	}
	outline = append(outline, plotter.XY{X: hi, Y: 0})
	area, err := plotter.NewPolygon(outline)
	if err != nil {
		return err
	}
	area.Color, area.LineStyle.Width = color.NRGBA{c.R, c.G, c.B, 0x40}, 0
	edge, err := plotter.NewLine(outline)
	if err != nil {
		return err
	}
	edge.Color, edge.Width = c, vg.Points(1.2)
	p.Add(area, edge)
	p.Legend.Add(name, edge)
	return nil
}

// addMarks draws upright lines at p50 (dashed) and p99 (dotted).
func addMarks(p *plot.Plot, c color.RGBA, t []float64, top float64) error {
	if t == nil {
		return nil
	}
	for _, m := range []struct {
		q      float64
		dashes []vg.Length
	}{{0.5, []vg.Length{vg.Points(5), vg.Points(3)}}, {0.99, []vg.Length{vg.Points(1.5), vg.Points(2)}}} {
		x := Quantile(t, m.q)
		mark, err := plotter.NewLine(plotter.XYs{{X: x, Y: 0}, {X: x, Y: top}})
		if err != nil {
			return err
		}
		mark.Color, mark.Width, mark.Dashes = c, vg.Points(1), m.dashes
		p.Add(mark)
	}
	return nil
}
