package config

import (
	"math"

	"github.com/asteria-runtime/asteria/trainer-olmo/optim"
)

// TotalSteps is the length of the run in optimizer steps. batchesPerEpoch is the
// number of global batches in one pass over the data; it matters only for a
// length in epochs and is then at least 1.
func (c *Config) TotalSteps(batchesPerEpoch int64) int64 {
	t := &c.Train
	switch {
	case t.Steps > 0:
		return int64(t.Steps)
	case t.Tokens > 0:
		// Written so that it cannot overflow: ceil(tokens / batch).
		return 1 + int64((t.Tokens-1)/t.GlobalBatchSize)
	}
	if batchesPerEpoch > math.MaxInt64/max(1, int64(t.Epochs)) {
		return math.MaxInt64
	}
	return int64(t.Epochs) * batchesPerEpoch
}

// Schedule is the learning rate of a run of the given length for the peak
// optimizer.lr. Multiply by optimizer.aux_lr / optimizer.lr for the AdamW part.
func (c *Config) Schedule(totalSteps int64) (optim.Schedule, error) {
	s := &c.Scheduler
	periods := make([]int64, len(s.PeriodLengths))
	for i, p := range s.PeriodLengths {
		periods[i] = int64(p)
	}
	o := optim.CurveOptions{
		Legacy: s.Legacy, Warmup: int64(s.Warmup), WarmupFraction: s.WarmupFraction, WarmupMinLR: &s.WarmupMinLR,
		AlphaF: &s.AlphaF, TMax: int64(s.TMax), DecayFraction: &s.DecayFraction, DecayMinLR: s.DecayMinLR,
		B: &s.B, Periods: periods, LRMin: s.LRMin,
	}
	if s.Decay > 0 {
		decay := int64(s.Decay)
		o.Decay = &decay
	}
	curve, err := optim.NewCurve(s.Name, o)
	if err != nil {
		return nil, err
	}
	b := optim.Bound{Curve: curve, Peak: c.Optimizer.LR, End: totalSteps, PerStep: 1}
	if s.Units == "tokens" {
		b.PerStep = int64(c.Train.GlobalBatchSize)
		b.End = saturate(totalSteps, b.PerStep)
	}
	return b, nil
}

// saturate multiplies two positive numbers and stays at the largest int64.
func saturate(a, b int64) int64 {
	if a > math.MaxInt64/max(1, b) {
		return math.MaxInt64
	}
	return a * b
}
