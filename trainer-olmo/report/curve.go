package report

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"
)

// piece is the number of points that are stroked at once. The rasterizer keeps
// the cells of a path in one list per scan line and searches it from the start,
// so that a long ragged path costs the square of its length.
const piece = 48

// curve is a line through points, drawn in pieces that share their end points.
// It implements [plot.Plotter], [plot.DataRanger] and [plot.Thumbnailer].
type curve struct {
	plotter.XYs
	draw.LineStyle
}

// Plot implements [plot.Plotter].
func (c *curve) Plot(canvas draw.Canvas, p *plot.Plot) {
	line := plotter.Line{LineStyle: c.LineStyle}
	for at := 0; at < len(c.XYs)-1; at += piece - 1 {
		line.XYs = c.XYs[at:min(at+piece, len(c.XYs))]
		line.Plot(canvas, p)
	}
}

// DataRange implements [plot.DataRanger].
func (c *curve) DataRange() (xmin, xmax, ymin, ymax float64) { return plotter.XYRange(c.XYs) }

// Thumbnail implements [plot.Thumbnailer].
func (c *curve) Thumbnail(canvas *draw.Canvas) {
	line := plotter.Line{LineStyle: c.LineStyle}
	line.Thumbnail(canvas)
}
