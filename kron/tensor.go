package kron

import "github.com/asteria-runtime/asteria/gemm"

func matrix[T gemm.Float](rows, cols int, data []T) gemm.Matrix[T] {
	return gemm.Matrix[T]{Rows: rows, Cols: cols, Stride: cols, Data: data[:rows*cols]}
}

// along multiplies x by a matrix along mode k: dst[p,j,s] = Σ_i A[j,i]*x[p,i,s],
// where A is a, or aᵀ when trans. dst must not overlap x.
//
// The last mode is one product of the (pre×dim) unfolding from the right, any
// other one product per leading index from the left, so no data is permuted.
func (b *Block[T]) along(ops Ops[T], k int, dst, x, a []T, trans bool) {
	md := b.modes[k]
	n := md.dim
	factor := matrix(n, n, a)
	if md.post == 1 {
		ops.Gemm(false, !trans, 1, matrix(md.pre, n, x), factor, 0, matrix(md.pre, n, dst))
		return
	}
	for p := range md.pre {
		lo := p * n * md.post
		ops.Gemm(trans, false, 1, factor, matrix(n, md.post, x[lo:]), 0, matrix(n, md.post, dst[lo:]))
	}
}

// gram folds the Gram matrix of x along mode k into the lower triangle of c:
// c = beta*c + alpha*X*Xᵀ with X the dim×others unfolding of x.
func (b *Block[T]) gram(ops Ops[T], k int, c, x []T, alpha, beta float64) {
	md := b.modes[k]
	n := md.dim
	dst := matrix(n, n, c)
	if md.post == 1 {
		ops.Syrk(true, T(alpha), matrix(md.pre, n, x), T(beta), dst)
		return
	}
	for p := range md.pre {
		ops.Syrk(false, T(alpha), matrix(n, md.post, x[p*n*md.post:]), T(beta), dst)
		beta = 1
	}
}

// rotate applies the matrices in a along every mode that has a factor, except
// mode skip (-1 for none), transposed for the way into the eigenbasis. It works
// through buf0 and buf1 in turn and returns the one with the result, or x
// itself when there is nothing to apply. x may be buf0 or buf1.
func (b *Block[T]) rotate(ops Ops[T], x []T, a *[MaxOrder][]T, trans bool, skip int, buf0, buf1 []T) []T {
	for k := range b.order {
		if !b.modes[k].factored || k == skip {
			continue
		}
		dst := buf0[:b.size]
		if &dst[0] == &x[0] {
			dst = buf1[:b.size]
		}
		b.along(ops, k, dst, x, a[k], trans)
		x = dst
	}
	return x
}

// rotations counts the products that rotate does.
func (b *Block[T]) rotations(skip int) int {
	n := 0
	for k := range b.order {
		if b.modes[k].factored && k != skip {
			n++
		}
	}
	return n
}

// updateFactors folds the gradient x into every factor: F = keep*F + w*gram.
func (b *Block[T]) updateFactors(ops Ops[T], st *State[T], x []T, keep, w float64) {
	for k := range b.order {
		if b.modes[k].factored {
			b.gram(ops, k, st.Factor[k], x, w, keep)
		}
	}
}

// journey takes a tensor through operations that cannot work in place, by way of two
// buffers, so that the last of them ends at home without a copy wherever it can.
type journey[T gemm.Float] struct {
	home, at []T
	buf      [2][]T
	legs     int // still to go
}

func newJourney[T gemm.Float](home, buf0, buf1 []T) journey[T] {
	n := len(home)
	return journey[T]{home: home, at: home, buf: [2][]T{buf0[:n], buf1[:n]}}
}

// next returns the operands of the next operation.
func (j *journey[T]) next() (dst, src []T) {
	j.legs--
	src = j.at
	switch {
	case j.legs == 0 && &src[0] != &j.home[0]:
		dst = j.home
	case &src[0] == &j.buf[0][0]:
		dst = j.buf[1]
	default:
		dst = j.buf[0]
	}
	j.at = dst
	return dst, src
}

// end brings the tensor home after a single operation.
func (j *journey[T]) end(ops Ops[T]) {
	if &j.at[0] != &j.home[0] {
		ops.Copy(j.home, j.at)
	}
}
