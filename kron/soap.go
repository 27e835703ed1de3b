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
		u := b.soapDirection(st, x, c, ops, sc)
		u = b.rotate(ops, u, &st.Root, false, -1, sc.buf[0], sc.buf[1])
		b.apply(st, w, u, lr*b.soapCorrection(st.Meta.Step()), lr, ops)
	}
	beta := b.opts.FactorBeta
	b.updateFactors(ops, st, x, beta, 1-beta)
}

// soapChunk is the elements of a block that one round of [Block.soapDirection] takes: its
// four slices then stay in the second-level cache from one operation to the next.
const soapChunk = 1 << 16

// soapDirection moves both moments towards the gradient x, whose image in the basis is
// c, and returns the direction in the basis, in buffer 0. A momentum that is kept there
// takes part chunk by chunk.
func (b *Block[T]) soapDirection(st *State[T], x, c []T, ops Ops[T], sc *Scratch[T]) []T {
	w1, w2, eps := T(1-b.opts.Betas[0]), T(1-b.opts.Betas[1]), T(b.opts.Epsilon)
	u, m := sc.buf[0][:b.size], st.Momentum
	eigen := b.rotates()
	if !eigen {
		m = b.moments(st, x, c, ops, sc.buf[2], sc.buf[3])
	}
	for lo := 0; lo < b.size; lo += soapChunk {
		hi := min(lo+soapChunk, b.size)
		if eigen {
			ops.Lerp(m[lo:hi], c[lo:hi], w1)
		}
		ops.LerpSquare(st.Second[lo:hi], c[lo:hi], w2)
		ops.AdamDirection(u[lo:hi], m[lo:hi], st.Second[lo:hi], 1, 1, eps)
	}
	return u
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
