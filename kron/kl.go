package kron

import "math"

// klBegin is one call of KL-Shampoo or KL-SOAP up to the adoption point.
//
// With C = G ×_k Q_kᵀ and gains r_k = λ_k^(-1/2), the direction is M/(Π 1/r_k + eps)
// for KL-Shampoo and M/(sqrt(v)+eps) for KL-SOAP, M the momentum in the basis.
// Note: buffer 0 keeps the gradient rotated along all modes but the first for
// the statistics of mode 0, buffer 1 keeps C, 2 and 3 are free for rotations.
func (b *Block[T]) klBegin(st *State[T], w View[T], x []T, lr float64, ops Ops[T], sc *Scratch[T]) {
	if st.Meta.Calls() == 1 {
		for k := range b.order {
			if md := b.modes[k]; md.factored {
				weight := (1 - b.opts.FactorBeta) / float64(md.others())
				b.gram(ops, k, st.Factor[k], x, weight, b.opts.FactorBeta)
			}
		}
		return
	}
	st.Meta[metaStep]++
	partial, c := b.klRotate(st, x, ops, sc)
	m := b.moments(st, x, c, ops, sc.buf[2], sc.buf[3])
	// The momentum may stand in buffer 2 or 3; the direction takes its place,
	// which AdamDirection allows.
	u := sc.buf[2][:b.size]
	if b.opts.Method == KLSOAP {
		ops.LerpSquare(st.Second, c, T(1-b.opts.Betas[1]))
		ops.AdamDirection(u, m, st.Second, 1, 1, T(b.opts.Epsilon))
	} else {
		b.klWhiten(u, m, st, ops, sc)
	}
	u = b.rotate(ops, u, &st.Root, false, -1, sc.buf[2], sc.buf[3])
	b.apply(st, w, u, lr, lr, ops)
	b.klStatistics(st, x, partial, c, ops, sc)
}

// klRotate returns G rotated along all modes but the first in buffer 0, and
// along all modes in buffer 1. Where the first mode has no factor the two are
// the same numbers, and partial is copied because the statistics scale it.
func (b *Block[T]) klRotate(st *State[T], x []T, ops Ops[T], sc *Scratch[T]) (partial, c []T) {
	partial, c = sc.buf[0][:b.size], sc.buf[1][:b.size]
	first, second := partial, sc.buf[2]
	if b.rotations(0) == 2 {
		first, second = second, first // the last one shall end in partial
	}
	y := b.rotate(ops, x, &st.Root, true, 0, first, second)
	if &y[0] != &partial[0] {
		ops.Copy(partial, y)
	}
	if b.modes[0].factored {
		b.along(ops, 0, c, partial, st.Root[0], true)
	} else {
		ops.Copy(c, partial)
	}
	return partial, c
}

// klWhiten sets u = m / (Π 1/r_k + eps): the last factored mode as eigenvalues
// 1/r², the others as one scale for each row of the unfolding along the last mode.
// The vectors are written before any operation of the step uses them.
func (b *Block[T]) klWhiten(u, m []T, st *State[T], ops Ops[T], sc *Scratch[T]) {
	last := b.order - 1
	n := b.modes[last].dim
	rows := sc.rows[:b.modes[last].pre]
	for p := range rows {
		rows[p] = T(b.rowScale(st, p))
	}
	if b.modes[last].factored {
		lambda := sc.vector[0][:n]
		for i, r := range st.Gain[last] {
			lambda[i] = 1 / (r * r)
		}
		ops.WhitenRows(u, m, rows, lambda, T(b.opts.Epsilon))
		return
	}
	for p := range rows {
		rows[p] = T(1 / (b.rowScale(st, p) + b.opts.Epsilon))
	}
	ops.Copy(u, m)
	ops.ScaleMode(u, 1, n, rows)
}

// rowScale is the product of 1/r over all modes but the last, at row p of the
// pre×dim unfolding along the last mode.
func (b *Block[T]) rowScale(st *State[T], p int) float64 {
	scale := 1.0
	for k := b.order - 2; k >= 0; k-- {
		i := p % b.modes[k].dim
		p /= b.modes[k].dim
		if b.modes[k].factored {
			scale /= float64(st.Gain[k][i])
		}
	}
	return scale
}

// klStatistics folds the gradient into the factors and the eigenvalues.
//
// KL-Methods updates the modes from the last to the first and, for tensors of
// order 3, mixes gains of before and after: the factors of modes 2 and 1 see
// old gains; eigenvalues 1 see the new gain of mode 2; mode 0 sees the new gain
// of mode 1 and the old one of mode 2. For matrices all gains are old.
func (b *Block[T]) klStatistics(st *State[T], x, partial, c []T, ops Ops[T], sc *Scratch[T]) {
	_ = ops.Sync() // see Note: the host's turn
	var old [MaxOrder][]T
	for k := range b.order {
		if b.modes[k].factored {
			old[k] = sc.vector[k][:b.modes[k].dim]
			copy(old[k], st.Gain[k])
		}
	}
	for k := b.order - 1; k >= 1; k-- {
		if b.modes[k].factored {
			y := b.rotate(ops, x, &st.Root, true, k, sc.buf[2], sc.buf[3])
			if &y[0] == &x[0] { // no other mode has a factor
				y = sc.buf[2][:b.size]
				ops.Copy(y, x)
			}
			b.klFactor(st, k, y, &old, ops)
		}
	}
	var use [MaxOrder][]T
	for k := b.order - 1; k >= 1; k-- {
		use = old
		for j := k + 1; j < b.order; j++ {
			use[j] = st.Gain[j]
		}
		b.klEigenvalues(st, k, c, &use, ops, sc)
	}
	use = old
	if b.order == 3 {
		use[1] = st.Gain[1]
	}
	if b.modes[0].factored {
		b.klFactor(st, 0, partial, &use, ops)
	}
	b.klEigenvalues(st, 0, c, &use, ops, sc)
}

// klFactor folds y, the gradient rotated along every mode but k, into the
// factor of mode k after multiplying it by the other modes' gains; y is spoilt.
func (b *Block[T]) klFactor(st *State[T], k int, y []T, use *[MaxOrder][]T, ops Ops[T]) {
	b.scaleOthers(k, y, use, ops)
	weight := (1 - b.opts.FactorBeta) / float64(b.modes[k].others())
	b.gram(ops, k, st.Factor[k], y, weight, b.opts.FactorBeta)
}

func (b *Block[T]) scaleOthers(k int, y []T, use *[MaxOrder][]T, ops Ops[T]) {
	for j := range b.order {
		if j != k && b.modes[j].factored {
			ops.ScaleMode(y, b.modes[j].pre, b.modes[j].post, use[j])
		}
	}
}

// klEigenvalues moves λ_k = 1/r_k² towards the mean square of the whitened C
// along mode k, and stores the new gain. A gain that is not a finite number
// becomes zero, as in the reference, and starts afresh at the next step.
func (b *Block[T]) klEigenvalues(st *State[T], k int, c []T, use *[MaxOrder][]T, ops Ops[T], sc *Scratch[T]) {
	md := b.modes[k]
	if !md.factored {
		return
	}
	_ = ops.Sync() // see Note: the host's turn
	mean := sc.vector[MaxOrder+k][:md.dim]
	before := b.weights(0, k, use, sc.buf[2])
	after := b.weights(k+1, b.order, use, sc.buf[3])
	ops.SquaresMode(mean, c, before, after, sc.packed) // the gradient has served
	damping := b.klDamping(k, use, ops)
	n := float64(md.others())
	for i, r := range st.Gain[k] {
		fresh := float64(mean[i])/n + damping
		lambda := fresh
		if r != 0 {
			old := 1 / (float64(r) * float64(r))
			lambda = old + (1-b.opts.FactorBeta)*(fresh-old)
		}
		st.Gain[k][i] = T(gain(lambda, md.clamp))
	}
}

// weights returns the outer product of the gains of modes lo to hi-1, ones for
// those without a factor, in row-major order over their indices.
func (b *Block[T]) weights(lo, hi int, use *[MaxOrder][]T, buf []T) []T {
	out := buf[:1]
	out[0] = 1
	for k := lo; k < hi; k++ {
		n := b.modes[k].dim
		m := len(out)
		out = buf[:m*n]
		// From the back, so that no entry is overwritten before it was read.
		for p := m - 1; p >= 0; p-- {
			w := out[p]
			for i := n - 1; i >= 0; i-- {
				out[p*n+i] = w
				if b.modes[k].factored {
					out[p*n+i] *= use[k][i]
				}
			}
		}
	}
	return out
}

// klDamping is eps times the mean squared gains of the other modes.
func (b *Block[T]) klDamping(k int, use *[MaxOrder][]T, ops Ops[T]) float64 {
	if !b.opts.Damping {
		return 0
	}
	d := b.opts.Epsilon
	for j := range b.order {
		if j != k && b.modes[j].factored {
			d *= ops.SumSquares(use[j]) / float64(len(use[j]))
		}
	}
	return d
}

// gain returns λ^(-1/2), at most bound, zero where that is not a finite number.
func gain(lambda, bound float64) float64 {
	r := min(1/math.Sqrt(lambda), bound)
	if math.IsNaN(r) || math.IsInf(r, 0) {
		return 0
	}
	return r
}
