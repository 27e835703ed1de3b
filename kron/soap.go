package kron

import "math"

// soapBegin is one call of SOAP up to the adoption point. The first call only
// feeds the factors: a basis made of the current gradient would whiten that
// gradient to noise. Note: buffers 0 and 1 carry the rotated gradient and then
// the way back, 2 and 3 the rotated momentum where it is kept in the original
// space.
func (b *Block[T]) soapBegin(st *State[T], w View[T], x []T, lr float64, ops Ops[T], sc *Scratch[T]) {
	if st.Meta.Calls() > 1 {
		st.Meta[metaStep]++
		c := b.rotate(ops, x, &st.Root, true, -1, sc.buf[0], sc.buf[1])
		m := b.moments(st, x, c, ops, sc.buf[2], sc.buf[3])
		ops.LerpSquare(st.Second, c, T(1-b.opts.Betas[1]))
		u := sc.buf[0][:b.size]
		ops.AdamDirection(u, m, st.Second, 1, 1, T(b.opts.Epsilon))
		u = b.rotate(ops, u, &st.Root, false, -1, sc.buf[0], sc.buf[1])
		b.apply(st, w, u, lr*b.soapCorrection(st.Meta.Step()), lr, ops)
	}
	beta := b.opts.FactorBeta
	b.updateFactors(ops, st, x, beta, 1-beta)
}

// soapCorrection is sqrt(1-b2^t)/(1-b1^t): Adam's bias correction as a scalar
// on the step, so that epsilon stands beside the uncorrected root.
func (b *Block[T]) soapCorrection(step int64) float64 {
	if b.opts.NoBiasCorrection {
		return 1
	}
	t := float64(step)
	return math.Sqrt(1-math.Pow(b.opts.Betas[1], t)) / (1 - math.Pow(b.opts.Betas[0], t))
}
