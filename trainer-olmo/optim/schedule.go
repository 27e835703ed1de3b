package optim

import "math"

// Schedule gives the learning rate of a step; step is 1-based: the first update
// uses LR(1). It is a pure function, so a resumed run needs no schedule state.
type Schedule interface {
	LR(step int64) float64
}

// Curve is the shape of a schedule: the learning rate at position now of a run
// that ends at position end, both in the curve's unit (steps or tokens), for a
// peak learning rate. Sources: the schedulers of allenai/OLMo and
// allenai/OLMo-core.
type Curve interface {
	At(peak float64, now, end int64) float64
}

// Bound is a curve bound to a run. It implements [Schedule].
type Bound struct {
	Curve Curve
	// Peak is the learning rate that the curve scales.
	Peak float64
	// End is the length of the run in the curve's unit.
	End int64
	// PerStep is the number of units in one step: 1 for steps, the tokens of a
	// global batch for tokens. Default 1.
	PerStep int64
}

// LR is the learning rate of a step (1-based), never negative: some curves cross
// zero after their end.
func (b Bound) LR(step int64) float64 {
	return max(0, b.Curve.At(b.Peak, step*max(1, b.PerStep), b.End))
}

// Span is a length along a schedule: Count units, or Fraction of the whole when
// that is positive (rounded half to even).
type Span struct {
	Count    int64
	Fraction float64
}

func (s Span) of(whole int64) int64 {
	if s.Fraction > 0 {
		return int64(math.RoundToEven(float64(whole) * s.Fraction))
	}
	return s.Count
}

// Warmup is the linear rise at the start of a curve.
type Warmup struct {
	// Span is its length. Default 0: none.
	Span
	// MinLR is the learning rate at position 0. Default 0.
	MinLR float64
	// MinRatio is added to MinLR as a fraction of the peak: OLMo's first trainer
	// starts at 0.1 of it unless told otherwise. Default 0.
	MinRatio float64
}

func (w Warmup) at(peak float64, now, length int64) float64 {
	low := w.MinLR + w.MinRatio*peak
	return low + (peak-low)*float64(min(now, length))/float64(length)
}

// Decay is a linear fall at the end of a curve.
type Decay struct {
	// Span is its length. Default 0: none.
	Span
	// MinLR is the learning rate at the end. Default 0.
	MinLR float64
}

// at is the learning rate with left units to go; past the end it goes on falling
// in a straight line, below zero, as the reference does.
func (d Decay) at(peak float64, left, length int64) float64 {
	return d.MinLR + (peak-d.MinLR)*float64(min(left, length))/float64(length)
}

// Constant is the peak at every position.
type Constant struct{}

// At implements [Curve].
func (Constant) At(peak float64, _, _ int64) float64 { return peak }

// ConstantWithWarmup rises and stays.
type ConstantWithWarmup struct{ Warmup Warmup }

// At implements [Curve].
func (c ConstantWithWarmup) At(peak float64, now, end int64) float64 {
	if w := c.Warmup.of(end); now < w {
		return c.Warmup.at(peak, now, w)
	}
	return peak
}

// Cosine rises and follows half a cosine down to AlphaF times the peak, where it
// stays.
type Cosine struct {
	Warmup Warmup
	AlphaF float64 // final fraction of the peak
	TMax   int64   // end of the cosine; 0: the end of the run
}

// At implements [Curve].
func (c Cosine) At(peak float64, now, end int64) float64 {
	end = horizon(c.TMax, end)
	low, w := peak*c.AlphaF, c.Warmup.of(end)
	switch {
	case now < w:
		return c.Warmup.at(peak, now, w)
	case now >= end:
		return low
	}
	return low + (peak-low)*(1+math.Cos(math.Pi*float64(now-w)/float64(end-w)))/2
}

func horizon(tmax, end int64) int64 {
	if tmax > 0 {
		return tmax
	}
	return end
}

// HalfCosine is the second half of a cosine, from the middle between peak and
// AlphaF*peak down: the peak is that of the full cosine.
type HalfCosine struct {
	Warmup Warmup
	AlphaF float64
	TMax   int64 // end of the cosine; 0: the end of the run
}

// At implements [Curve].
func (c HalfCosine) At(peak float64, now, end int64) float64 {
	end = horizon(c.TMax, end)
	low, w := peak*c.AlphaF, c.Warmup.of(end)
	switch {
	case now < w:
		return c.Warmup.at(low+(peak-low)/2, now, w)
	case now >= end:
		return low
	}
	return low + (peak-low)*(1+math.Cos(math.Pi*float64(now-w+end-w)/float64(2*(end-w))))/2
}

// Linear rises and falls in a straight line to AlphaF times the peak, where it
// stays.
type Linear struct {
	Warmup Warmup
	AlphaF float64
	TMax   int64 // end of the line; 0: the end of the run
}

// At implements [Curve].
func (c Linear) At(peak float64, now, end int64) float64 {
	end = horizon(c.TMax, end)
	low, w := peak*c.AlphaF, c.Warmup.of(end)
	switch {
	case now < w:
		return c.Warmup.at(peak, now, w)
	case now >= end:
		return low
	}
	return peak - (peak-low)*(float64(now-w)/float64(end-w))
}

// InvSqrt rises and falls with the inverse square root of the position, towards
// AlphaF times the peak.
type InvSqrt struct {
	Warmup Warmup
	AlphaF float64 // 0 in OLMo's first trainer, 0.1 by default in OLMo-core
}

// At implements [Curve].
func (c InvSqrt) At(peak float64, now, end int64) float64 {
	w := c.Warmup.of(end)
	if now < w {
		return c.Warmup.at(peak, now, w)
	}
	low := peak * c.AlphaF
	return low + (peak-low)*math.Sqrt(float64(w)/float64(max(1, w, now)))
}

// CosineEnvelope is a cosine times a straight line, for annealing (OLMo's
// cosine_linear_envelope).
type CosineEnvelope struct {
	Warmup Warmup
	AlphaF float64
	TMax   int64 // end of both; 0: the end of the run
}

// At implements [Curve].
func (c CosineEnvelope) At(peak float64, now, end int64) float64 {
	end = horizon(c.TMax, end)
	low, w := peak*c.AlphaF, c.Warmup.of(end)
	switch {
	case now < w:
		return c.Warmup.at(peak, now, w)
	case now >= end:
		return low
	}
	x := float64(now-w) / float64(end-w)
	return low + (peak-low)*(1-x)*(1+math.Cos(math.Pi*x))/2
}

// WSD is warm-up, stable, decay.
type WSD struct {
	Warmup Warmup
	Decay  Decay
}

// At implements [Curve].
func (c WSD) At(peak float64, now, end int64) float64 {
	w, d := c.Warmup.of(end), c.Decay.of(end)
	switch {
	case now < w:
		return c.Warmup.at(peak, now, w)
	case d > 0 && now >= end-d:
		return c.Decay.at(peak, end-now, d)
	}
	return peak
}

// CosineThenLinear is a cosine cut short by a linear decay over the last part of
// the run.
type CosineThenLinear struct {
	Cosine Cosine
	Decay  Decay
}

// At implements [Curve].
func (c CosineThenLinear) At(peak float64, now, end int64) float64 {
	if d := c.Decay.of(end); d > 0 && now >= end-d {
		return c.Decay.at(c.Cosine.At(peak, end-d, end), end-now, d)
	}
	return c.Cosine.At(peak, now, end)
}

// Power rises and follows peak*(now/warm-up)^B, with a linear decay over the last
// part of the run.
type Power struct {
	Warmup Warmup
	B      float64 // exponent, such as -0.51
	Decay  Decay
}

// At implements [Curve].
func (c Power) At(peak float64, now, end int64) float64 {
	w, d := c.Warmup.of(end), c.Decay.of(end)
	switch {
	case now < w:
		return c.Warmup.at(peak, now, w)
	case d > 0 && now >= end-d:
		return c.Decay.at(c.power(peak, end-d, w), end-now, d)
	}
	return c.power(peak, now, w)
}

func (c Power) power(peak float64, now, w int64) float64 {
	return peak * math.Pow(float64(max(1, now))/float64(max(1, w)), c.B)
}

// WSDS repeats stable and decay over several periods after one warm-up; the
// learning rate returns to the peak at the start of each. Fractions of the
// warm-up are of the first period, those of the decay of each.
type WSDS struct {
	Warmup  Warmup
	Decay   Decay
	Periods []int64
}

// At implements [Curve]; the periods, not end, say where the run ends.
func (c WSDS) At(peak float64, now, _ int64) float64 {
	if len(c.Periods) == 0 {
		return peak
	}
	w := c.Warmup.of(c.Periods[0])
	if now < w {
		return c.Warmup.at(peak, now, w)
	}
	stop := int64(0)
	for i, length := range c.Periods {
		stop += length
		d := c.Decay.of(length)
		switch {
		case now >= stop && (now > stop || i == len(c.Periods)-1):
			continue
		case d > 0 && now >= stop-d:
			return c.Decay.at(peak, stop-now, d)
		}
		return peak
	}
	return c.Decay.MinLR
}

// Exponential grows from Min at position 0 to the peak at the end, as in a search
// for a learning rate.
type Exponential struct{ Min float64 }

// At implements [Curve].
func (c Exponential) At(peak float64, now, end int64) float64 {
	switch {
	case now >= end:
		return peak
	case now <= 0:
		return c.Min
	}
	return c.Min * math.Pow(peak/c.Min, float64(now)/float64(end))
}

// Sequential runs one curve after another; each starts from the learning rate at
// which the one before it ended.
type Sequential struct {
	Curves []Curve
	Ends   []int64 // length of each curve but the last
}

// At implements [Curve].
func (c Sequential) At(peak float64, now, end int64) float64 {
	for i, length := range c.Ends {
		if i == len(c.Curves)-1 {
			break
		}
		if now <= length {
			return c.Curves[i].At(peak, now, min(end, length))
		}
		peak = c.Curves[i].At(peak, length, length)
		now, end = now-length, end-length
	}
	return c.Curves[len(c.Curves)-1].At(peak, now, end)
}

// Larger is the larger of two curves at each position.
type Larger struct{ A, B Curve }

// At implements [Curve].
func (c Larger) At(peak float64, now, end int64) float64 {
	return max(c.A.At(peak, now, end), c.B.At(peak, now, end))
}

// Rewarm is zero up to Start, rises to what Inner has at Stop, and follows Inner
// from there: a run that is taken up again without its optimizer state.
type Rewarm struct {
	Inner       Curve
	Start, Stop int64
}

// At implements [Curve].
func (c Rewarm) At(peak float64, now, end int64) float64 {
	switch {
	case now < c.Start:
		return 0
	case now < c.Stop:
		return c.Inner.At(peak, c.Stop, end) * float64(now-c.Start) / float64(c.Stop-c.Start)
	}
	return c.Inner.At(peak, now, end)
}
