package report

import (
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
)

// wanted is about how many labels an axis gets.
const wanted = 7

// linearTicks labels round numbers: multiples of 1, 2, 2.5 or 5 times a power of
// ten.
type linearTicks struct{}

// Ticks implements [plot.Ticker].
func (linearTicks) Ticks(lo, hi float64) []plot.Tick {
	step := roundStep((hi - lo) / wanted)
	if !(step > 0) || math.IsInf(step, 0) {
		return []plot.Tick{{Value: lo, Label: label(lo, 1)}}
	}
	var ticks []plot.Tick
	for k := math.Ceil(lo / step); k*step <= hi+step*1e-9; k++ {
		ticks = append(ticks, plot.Tick{Value: k * step, Label: label(k*step, step)})
	}
	return ticks
}

// roundStep is the smallest round number that is at least x.
func roundStep(x float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(x)))
	for _, m := range []float64{1, 2, 2.5, 5} {
		if m*power >= x*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// label writes v with just the digits that tell it from v±step.
func label(v, step float64) string {
	if v == 0 {
		return "0"
	}
	// Six digits hide the rounding of k*step; no axis needs more.
	if a := math.Abs(v); a >= 1e7 || a < 1 {
		s := strconv.FormatFloat(v, 'g', 6, 64)
		if a >= 1e7 {
			s = strconv.FormatFloat(v, 'e', -1, 64)
		}
		return strings.NewReplacer("e-0", "e-", "e+0", "e", "e+", "e").Replace(s)
	}
	if v == math.Trunc(v) && step >= 1 {
		return group(int64(v))
	}
	digits := max(0, int(math.Ceil(-math.Log10(step)-1e-9)))
	if m := step * math.Pow(10, float64(digits)); m > 2.4 && m < 2.6 {
		digits++ // steps of 0.25 need one digit more than steps of 0.2
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// logTicks labels 1, 2 and 5 times the powers of ten, or the powers alone where
// that would be too many.
type logTicks struct{}

// Ticks implements [plot.Ticker].
func (logTicks) Ticks(lo, hi float64) []plot.Tick {
	multiples := []float64{1, 2, 5}
	if math.Log10(hi/lo) > 3 {
		multiples = multiples[:1]
	}
	var ticks []plot.Tick
	for e := math.Floor(math.Log10(lo)); e <= math.Log10(hi); e++ {
		for _, m := range multiples {
			if v := m * math.Pow(10, e); v >= lo && v <= hi {
				ticks = append(ticks, plot.Tick{Value: v, Label: label(v, v)})
			}
		}
	}
	return ticks
}
