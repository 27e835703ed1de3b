package kron

import (
	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/gemm/vec"
)

// Ops does a block's dense work where its data lives. Calls may be
// asynchronous until Sync; those that return a number wait by themselves.
// Results must not depend on how work is divided. An Ops serves one goroutine
// unless it says more.
type Ops[T gemm.Float] interface {
	// Gemm sets c = alpha*op(a)*op(b) + beta*c.
	Gemm(ta, tb bool, alpha T, a, b gemm.Matrix[T], beta T, c gemm.Matrix[T])
	// Syrk sets the lower triangle of c to alpha*a*aᵀ + beta*c, or with trans
	// to alpha*aᵀ*a + beta*c.
	Syrk(trans bool, alpha T, a gemm.Matrix[T], beta T, c gemm.Matrix[T])

	Copy(dst, x []T)                     // dst = x
	Axpby(alpha T, x []T, beta T, y []T) // y = alpha*x + beta*y
	Scale(alpha T, x []T)                // x *= alpha
	Lerp(dst, x []T, w T)                // dst += w*(x-dst)
	LerpSquare(dst, x []T, w T)          // dst = (1-w)*dst + w*x²
	SumSquares(x []T) float64            // Σ x²
	// AdamDirection sets dst = m*mscale / (sqrt(v)*vscale + eps).
	AdamDirection(dst, m, v []T, mscale, vscale, eps T)
	// WhitenRows sets dst[p,i] = m[p,i] / (sqrt(v[i])*s[p] + eps), with m of shape
	// len(s)×len(v); dst may be m.
	WhitenRows(dst, m, s, v []T, eps T)

	// ScaleMode multiplies x[p,i,q] by s[i], with x of shape pre×len(s)×post.
	ScaleMode(x []T, pre, post int, s []T)
	// SquaresMode sets dst[i] = Σ (before[p]*x[p,i,q]*after[q])² over p and q, with
	// x of shape len(before)×len(dst)×len(after), and waits: the host reads dst
	// next. tmp is at least as long as dst and after.
	SquaresMode(dst, x, before, after, tmp []T)
	// PermuteMode sets dst[p,i,q] = x[p,perm[i],q]; dst must not overlap x.
	PermuteMode(dst, x []T, pre, post int, perm []int)

	// Sync waits for all calls and returns the first failure, from then on at each
	// call: results are not to be trusted any more.
	Sync() error
}

// Note: the host's turn
//
// A step writes some slices on the host: a gathered gradient, KL's vectors of
// gains and weights. Operations in flight may still use those slices, so Sync comes
// before such a write. Its error is not handled there: it stays, and the Sync at the
// end of the step returns it.

// CPU is the [Ops] of the host: level 3 on an engine, the rest in package vec.
// It has no state of its own and is as concurrent as its engine.
type CPU[T gemm.Float] struct{ engine *gemm.Engine }

// NewCPU returns the operations on e, which the caller closes.
func NewCPU[T gemm.Float](e *gemm.Engine) *CPU[T] { return &CPU[T]{engine: e} }

// Gemm implements [Ops].
func (c *CPU[T]) Gemm(ta, tb bool, alpha T, a, b gemm.Matrix[T], beta T, dst gemm.Matrix[T]) {
	gemm.Mul(c.engine, ta, tb, alpha, a, b, beta, dst)
}

// Syrk implements [Ops].
func (c *CPU[T]) Syrk(trans bool, alpha T, a gemm.Matrix[T], beta T, dst gemm.Matrix[T]) {
	gemm.Syrk(c.engine, trans, alpha, a, beta, dst)
}

// Copy implements [Ops].
func (c *CPU[T]) Copy(dst, x []T) { copy(dst, x) }

// Axpby implements [Ops].
func (c *CPU[T]) Axpby(alpha T, x []T, beta T, y []T) { vec.Axpby(alpha, x, beta, y) }

// Scale implements [Ops].
func (c *CPU[T]) Scale(alpha T, x []T) { vec.Scale(alpha, x) }

// Lerp implements [Ops].
func (c *CPU[T]) Lerp(dst, x []T, w T) { vec.Lerp(dst, x, w) }

// LerpSquare implements [Ops].
func (c *CPU[T]) LerpSquare(dst, x []T, w T) { vec.LerpSquare(dst, x, w) }

// SumSquares implements [Ops].
func (c *CPU[T]) SumSquares(x []T) float64 { return vec.SumSquares(x) }

// AdamDirection implements [Ops].
func (c *CPU[T]) AdamDirection(dst, m, v []T, mscale, vscale, eps T) {
	vec.AdamDirection(dst, m, v, mscale, vscale, eps)
}

// WhitenRows implements [Ops].
func (c *CPU[T]) WhitenRows(dst, m, s, v []T, eps T) {
	n := len(v)
	for p, scale := range s {
		vec.AdamDirection(dst[p*n:(p+1)*n], m[p*n:(p+1)*n], v, 1, scale, eps)
	}
}

// ScaleMode implements [Ops].
func (c *CPU[T]) ScaleMode(x []T, pre, post int, s []T) {
	n := len(s)
	for p := range pre {
		if post == 1 {
			row := x[p*n : p*n+n]
			vec.Mul(row, row, s)
			continue
		}
		for i, f := range s {
			vec.Scale(f, x[(p*n+i)*post:(p*n+i+1)*post])
		}
	}
}

// SquaresMode implements [Ops]. Rows are weighted in tmp, which stays in the
// first-level cache, so that x is read once and written never.
func (c *CPU[T]) SquaresMode(dst, x, before, after, tmp []T) {
	clear(dst)
	n, post := len(dst), len(after)
	for p, w := range before {
		if post == 1 {
			vec.ScaleTo(tmp[:n], w*after[0], x[p*n:p*n+n])
			vec.MulAdd(dst, tmp[:n], tmp[:n])
			continue
		}
		for i := range n {
			vec.Mul(tmp[:post], x[(p*n+i)*post:(p*n+i+1)*post], after)
			dst[i] += w * w * T(vec.SumSquares(tmp[:post]))
		}
	}
}

// PermuteMode implements [Ops].
func (c *CPU[T]) PermuteMode(dst, x []T, pre, post int, perm []int) {
	n := len(perm)
	for p := range pre {
		from, to := x[p*n*post:(p+1)*n*post], dst[p*n*post:(p+1)*n*post]
		for i, old := range perm {
			if post == 1 {
				to[i] = from[old]
				continue
			}
			copy(to[i*post:(i+1)*post], from[old*post:(old+1)*post])
		}
	}
}

// Sync implements [Ops]; every call has already finished.
func (c *CPU[T]) Sync() error { return nil }
