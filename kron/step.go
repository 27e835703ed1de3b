package kron

import "math"

// Note: step order
//
// A step is Begin, the adoption point, Finish. Everything that a method does
// before its adoption point is in Begin, the rest in Finish; between the two
// the caller snapshots what is due and adopts what is due, once, in the order
// that SnapshotFirst names. So a runtime that adopts late and one that adopts at
// once call the same code in the same order.
//
//	Shampoo, EigenShampoo   Begin: statistics
//	                        snapshot if due, adopt
//	                        Finish: precondition, graft, parameter
//	SOAP, KL                Begin: precondition, parameter, statistics
//	                        adopt, snapshot if due
//	                        Finish: nothing
//
// Neither half allocates. Both pack a strided gradient anew, so that the halves
// of different blocks may interleave on one Scratch.

// Begin runs the part of a step that comes before the adoption point: see
// Note: step order. w and g are the block's parameter and gradient, lr the
// learning rate. g is only read; it must be finite.
func (b *Block[T]) Begin(st *State[T], w, g View[T], lr float64, ops Ops[T], sc *Scratch[T]) {
	b.checkViews(w, g)
	st.Meta[metaCalls]++
	if !b.opts.Method.late() {
		st.Meta[metaStep]++
	}
	if b.size == 0 {
		return
	}
	switch {
	case b.diagonal:
		st.Meta[metaStep]++
		b.diagonalStep(st, w, gather(ops, sc.packed, g), lr, ops, sc)
	case b.opts.Method.kl():
		b.klBegin(st, w, gather(ops, sc.packed, g), lr, ops, sc)
	case b.opts.Method == SOAP:
		b.soapBegin(st, w, gather(ops, sc.packed, g), lr, ops, sc)
	default:
		b.rootStatistics(st, b.decayed(w, g, ops, sc), ops, sc)
	}
}

// Finish runs the part of a step that comes after the adoption point, with the
// arguments that Begin had.
func (b *Block[T]) Finish(st *State[T], w, g View[T], lr float64, ops Ops[T], sc *Scratch[T]) {
	b.checkViews(w, g)
	if b.size == 0 || b.opts.Method.late() {
		return
	}
	b.rootFinish(st, w, b.decayed(w, g, ops, sc), lr, ops, sc)
}

func (b *Block[T]) checkViews(w, g View[T]) {
	if w.Dims != b.dims || g.Dims != b.dims {
		panic("kron: view does not have the block's sides")
	}
}

// apply moves the parameter by -step*u and shrinks it by lr*decay afterwards,
// as SOAP and KL do. With NormalizeUpdate u is first divided by its root mean
// square; 1e-30 keeps a zero update zero.
func (b *Block[T]) apply(st *State[T], w View[T], u []T, step, lr float64, ops Ops[T]) {
	if b.opts.NormalizeUpdate {
		rms := math.Sqrt(ops.SumSquares(u) / float64(len(u)))
		step /= 1e-30 + rms
	}
	keep := 1 - lr*b.opts.WeightDecay
	shrinkAndStep(ops, w, u, T(keep), T(keep*step))
}

// diagonalStep is Adam with bias correction, decay after the update: the rule
// for KL blocks with fewer than two sides, for which KL has no equations.
func (b *Block[T]) diagonalStep(st *State[T], w View[T], x []T, lr float64, ops Ops[T], sc *Scratch[T]) {
	t := float64(st.Meta.Step())
	m := b.moment(st, x, ops)
	ops.LerpSquare(st.Second, x, T(1-b.opts.Betas[1]))
	mscale := 1 / (1 - math.Pow(b.opts.Betas[0], t))
	vscale := 1 / math.Sqrt(1-math.Pow(b.opts.Betas[1], t))
	u := sc.buf[0][:b.size]
	ops.AdamDirection(u, m, st.Second, T(mscale), T(vscale), T(b.opts.Epsilon))
	b.apply(st, w, u, lr, lr, ops)
}

// moment moves the first moment towards x and returns it, or x itself where
// Betas[0] is zero and no moment is kept.
func (b *Block[T]) moment(st *State[T], x []T, ops Ops[T]) []T {
	if st.Momentum == nil {
		return x
	}
	ops.Lerp(st.Momentum, x, T(1-b.opts.Betas[0]))
	return st.Momentum
}

// moments returns the first moment in the eigenbasis after folding in the
// gradient x, whose image in the basis is c. Kept in the eigenbasis it takes c
// and no rotation; kept in the original space it takes x and one rotation
// through buf0 and buf1.
func (b *Block[T]) moments(st *State[T], x, c []T, ops Ops[T], buf0, buf1 []T) []T {
	if b.opts.Momentum == MomentumEigen {
		return b.moment(st, c, ops)
	}
	if st.Momentum == nil {
		return c
	}
	return b.rotate(ops, b.moment(st, x, ops), &st.Root, true, -1, buf0, buf1)
}
