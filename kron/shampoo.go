package kron

import "math"

// decayed returns the gradient that Shampoo and EigenShampoo work with: packed,
// and with L2 decay folded in before any statistics.
func (b *Block[T]) decayed(w, g View[T], ops Ops[T], sc *Scratch[T]) []T {
	x := gather(ops, sc.packed, g)
	if b.opts.Decay != L2 || b.opts.WeightDecay == 0 {
		return x
	}
	sum := sc.packed[:b.size]
	if &x[0] != &sum[0] {
		ops.Copy(sum, x)
	}
	ops.Axpby(T(b.opts.WeightDecay), gather(ops, sc.buf[0], w), 1, sum)
	return sum
}

// rootStatistics folds the gradient x into the factors. With WhitenGram every
// factor sees it multiplied by the other modes' roots (facebook's KL-Shampoo,
// without the division by the other sides).
func (b *Block[T]) rootStatistics(st *State[T], x []T, ops Ops[T], sc *Scratch[T]) {
	keep, weight := emaWeights(b.opts.Betas[1])
	if !b.opts.WhitenGram {
		b.updateFactors(ops, st, x, keep, weight)
		return
	}
	for k := range b.order {
		if b.modes[k].factored {
			y := b.rotate(ops, x, &st.Root, true, k, sc.buf[1], sc.buf[2])
			b.gram(ops, k, st.Factor[k], y, weight, keep)
		}
	}
}

// emaWeights returns the factors on the old value and on the new one; a decay
// of one means a plain sum.
func emaWeights(beta float64) (keep, weight float64) {
	if beta == 1 {
		return 1, 1
	}
	return beta, 1 - beta
}

// biasCorrection returns 1-beta^t, the share of the weights that an average of
// t terms has reached; 1 for sums.
func biasCorrection(beta float64, t int64) float64 {
	if beta == 1 {
		return 1
	}
	return 1 - math.Pow(beta, float64(t))
}

// factorCorrection is what a factor is divided by before its root is taken.
func (b *Block[T]) factorCorrection(t int64) float64 {
	if b.opts.NoBiasCorrection {
		return 1
	}
	return biasCorrection(b.opts.Betas[1], t)
}

// rootFinish preconditions, grafts and moves the parameter. Note: buffer 0 has
// the filtered gradient where Beta3 asks for one, 1 and 2 the preconditioned
// direction, 3 the grafting direction.
func (b *Block[T]) rootFinish(st *State[T], w View[T], x []T, lr float64, ops Ops[T], sc *Scratch[T]) {
	t := st.Meta.Step()
	if b.opts.Method == EigenShampoo {
		b.updateEigenvalues(st, x, ops, sc)
	}
	if st.Graft != nil {
		b.updateGraft(st, x, ops)
	}
	f, fscale := b.filtered(st, x, ops, sc)
	grafting := b.opts.Graft.Type != GraftNone
	if grafting && (t < b.opts.Start || b.waiting(st.Meta)) {
		u, scale := b.graftDirection(st, f, fscale, ops, sc)
		b.rootApply(w, u, scale, lr, ops)
		return
	}
	u, scale := b.direction(st, f, fscale, ops, sc)
	if grafting {
		v, vscale := b.graftDirection(st, f, fscale, ops, sc)
		own := math.Abs(scale) * math.Sqrt(ops.SumSquares(u))
		lent := math.Abs(vscale) * math.Sqrt(ops.SumSquares(v))
		scale *= lent / (own + 1e-16)
	}
	b.rootApply(w, u, scale, lr, ops)
}

// waiting reports whether a mode still lacks its first root and the options ask
// for the grafting direction until all have one.
func (b *Block[T]) waiting(m *Meta) bool {
	return b.opts.BeforeFirst == FirstGraft && b.opts.Method == Shampoo && (b.First(m) || !b.Factored())
}

// filtered returns the first moment and the scale that corrects its bias. Beta3
// weighs the current gradient in it without entering the state.
func (b *Block[T]) filtered(st *State[T], x []T, ops Ops[T], sc *Scratch[T]) (f []T, scale float64) {
	if st.Momentum == nil {
		return x, 1
	}
	f = st.Momentum
	if b.opts.Beta3 != b.opts.Betas[0] {
		f = sc.buf[0][:b.size]
		ops.Copy(f, st.Momentum)
		ops.Lerp(f, x, T(1-b.opts.Beta3))
	}
	ops.Lerp(st.Momentum, x, T(1-b.opts.Betas[0]))
	if b.opts.NoBiasCorrection {
		return f, 1
	}
	before := math.Pow(b.opts.Betas[0], float64(st.Meta.Step()-1))
	return f, 1 / (1 - b.opts.Beta3*before)
}

// direction returns the preconditioned direction as u times scale.
func (b *Block[T]) direction(st *State[T], f []T, fscale float64, ops Ops[T], sc *Scratch[T]) (u []T, scale float64) {
	if b.opts.Method == Shampoo {
		// Roots are symmetric, so either side of the product may be transposed.
		return b.rotate(ops, f, &st.Root, true, -1, sc.buf[1], sc.buf[2]), fscale
	}
	y := b.rotate(ops, f, &st.Root, true, -1, sc.buf[1], sc.buf[2])
	u = sc.buf[1][:b.size]
	vscale := 1 / math.Sqrt(b.factorCorrection(st.Meta.Step()))
	ops.AdamDirection(u, y, st.Second, T(fscale), T(vscale), T(b.opts.Epsilon))
	return b.rotate(ops, u, &st.Root, false, -1, sc.buf[1], sc.buf[2]), 1
}

// updateEigenvalues folds the squared gradient, seen in the basis that is
// installed now, into EigenShampoo's eigenvalues.
func (b *Block[T]) updateEigenvalues(st *State[T], x []T, ops Ops[T], sc *Scratch[T]) {
	c := b.rotate(ops, x, &st.Root, true, -1, sc.buf[1], sc.buf[2])
	accumulateSquare(ops, st.Second, c, b.opts.Betas[1])
}

// updateGraft folds the squared gradient into the grafted method's moment.
func (b *Block[T]) updateGraft(st *State[T], x []T, ops Ops[T]) {
	accumulateSquare(ops, st.Graft, x, b.opts.Graft.Beta)
}

// accumulateSquare averages x² into v, or sums it when beta is one. LerpSquare
// has the weight of the old value fixed at 1-w, so the sum is made of the
// average with weight 1/2 and a doubling, which is exact in binary.
func accumulateSquare[T float32 | float64](ops Ops[T], v, x []T, beta float64) {
	if beta != 1 {
		ops.LerpSquare(v, x, T(1-beta))
		return
	}
	ops.LerpSquare(v, x, 0.5)
	ops.Scale(2, v)
}

// graftDirection returns the grafted method's direction as u times scale.
func (b *Block[T]) graftDirection(st *State[T], f []T, fscale float64, ops Ops[T], sc *Scratch[T]) (u []T, scale float64) {
	if b.opts.Graft.Type == GraftSGD {
		return f, fscale
	}
	vscale := 1.0
	if b.opts.Graft.Type == GraftAdam {
		vscale = 1 / math.Sqrt(biasCorrection(b.opts.Graft.Beta, st.Meta.Step()))
	}
	u = sc.buf[3][:b.size]
	ops.AdamDirection(u, f, st.Graft, T(fscale), T(vscale), T(b.opts.Graft.Epsilon))
	return u, 1
}

// rootApply sets W = W - lr*(scale*u + decay*W), decay as the options have it.
func (b *Block[T]) rootApply(w View[T], u []T, scale, lr float64, ops Ops[T]) {
	decay := b.opts.WeightDecay
	switch b.opts.Decay {
	case L2:
		decay = 0
	case Corrected:
		decay *= lr / b.opts.PeakLR
	case Independent:
		decay /= b.opts.PeakLR
	}
	shrinkAndStep(ops, w, u, T(1-lr*decay), T(lr*scale))
}
