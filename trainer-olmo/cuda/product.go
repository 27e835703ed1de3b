package cuda

import (
	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/streams"
)

// tile is the side of C that a block of the product kernel makes.
const tile = 64

// panel is the order of the diagonal blocks that the triangular kernels take.
const panel = 32

// operand is a row-major matrix on the device.
type operand struct {
	addr   uintptr
	stride int
}

// at is the operand whose corner is element (i, j).
func at[T gemm.Float](m operand, i, j int) operand {
	size := uintptr(4)
	if double[T]() {
		size = 8
	}
	return operand{m.addr + uintptr(i*m.stride+j)*size, m.stride}
}

// product enqueues C = alpha*op(A)*op(B) + beta*C for the m×n C and inner length k.
func product[T gemm.Float](l *lane, m, n, k int, ta, tb bool, alpha T, a, b operand, beta T, c operand) {
	if m == 0 || n == 0 || l.err != nil {
		return
	}
	if l.blas == nil || k == 0 {
		multiply(l, m, n, k, ta, tb, alpha, a, b, beta, c, false)
		return
	}
	// Row-major C is column-major Cᵀ = op(B)ᵀ*op(A)ᵀ.
	l.fail(l.blas.Gemm(&streams.Product{
		TransA: trans(tb), TransB: trans(ta), M: n, N: m, K: k, Alpha: float64(alpha), Beta: float64(beta),
		A: b.addr, LDA: b.stride, B: a.addr, LDB: a.stride, C: c.addr, LDC: c.stride,
	}, double[T]()))
}

// update enqueues the lower triangle of C = alpha*A*Aᵀ + beta*C for the n×k A, or
// of alpha*AᵀA + beta*C for the k×n A.
func update[T gemm.Float](l *lane, n, k int, ta bool, alpha T, a operand, beta T, c operand) {
	if n == 0 || l.err != nil {
		return
	}
	if l.blas == nil || k == 0 {
		multiply(l, n, n, k, ta, !ta, alpha, a, a, beta, c, true)
		return
	}
	// The row-major lower triangle is the column-major upper one, of AᵀA for Aᵀ.
	l.fail(l.blas.Syrk(&streams.Update{
		Fill: streams.Upper, Trans: trans(!ta), N: n, K: k, Alpha: float64(alpha), Beta: float64(beta),
		A: a.addr, LDA: a.stride, C: c.addr, LDC: c.stride,
	}, double[T]()))
}

func trans(t bool) streams.Op {
	if t {
		return streams.Trans
	}
	return streams.NoTrans
}

// multiply launches our own kernel; with lower only that triangle is made.
func multiply[T gemm.Float](l *lane, m, n, k int, ta, tb bool, alpha T, a, b operand, beta T, c operand, lower bool) {
	g := streams.Grid{Blocks: [2]uint32{uint32((n + tile - 1) / tile), uint32((m + tile - 1) / tile)}, Threads: threadsPerBlock}
	l.fail(l.stream.Launch(kernel[T](l.c, "product"), g,
		streams.Int64(int64(m)), streams.Int64(int64(n)), streams.Int64(int64(k)), flag(ta), flag(tb), number(alpha),
		streams.Address(a.addr), streams.Int64(int64(a.stride)), streams.Address(b.addr), streams.Int64(int64(b.stride)),
		number(beta), streams.Address(c.addr), streams.Int64(int64(c.stride)), flag(lower)))
}

func flag(b bool) streams.Arg {
	if b {
		return streams.Int32(1)
	}
	return streams.Int32(0)
}

// rows launches a kernel with one thread a row.
func (l *lane) rows(k *streams.Kernel, m int, args ...streams.Arg) {
	const threads = 64
	if m > 0 && l.err == nil {
		l.fail(l.stream.Launch(k, streams.Grid{Blocks: [2]uint32{uint32((m + threads - 1) / threads), 1}, Threads: threads}, args...))
	}
}

// cholesky factors the n×n A in place in its lower triangle, by panels: the factor
// of the diagonal block, the panel below it, the rest of the matrix. bad, an int on
// the device, becomes the place of the first pivot that is not positive.
func cholesky[T gemm.Float](l *lane, n int, a operand, bad uintptr) {
	for j := 0; j < n && l.err == nil; j += panel {
		w := min(panel, n-j)
		d := at[T](a, j, j)
		l.fail(l.stream.Launch(kernel[T](l.c, "cholesky"), streams.Grid{Blocks: [2]uint32{1, 1}, Threads: panel},
			streams.Int64(int64(w)), streams.Int64(int64(j)), streams.Address(d.addr), streams.Int64(int64(d.stride)), streams.Address(bad)))
		if rest := n - j - w; rest > 0 {
			below := at[T](a, j+w, j)
			solveDiagonal[T](l, rest, w, d, below)
			update[T](l, rest, w, false, -1, below, 1, at[T](a, j+w, j+w))
		}
	}
}

// solveDiagonal sets X = X*L⁻ᵀ for the m×w X and a triangle of order w ≤ panel.
func solveDiagonal[T gemm.Float](l *lane, m, w int, d, x operand) {
	l.rows(kernel[T](l.c, "solve_right"), m, streams.Int64(int64(m)), streams.Int64(int64(w)),
		streams.Address(d.addr), streams.Int64(int64(d.stride)), streams.Address(x.addr), streams.Int64(int64(x.stride)))
}

// solve sets X = X*L⁻ᵀ for the m×n X and the lower triangle of A, by panels.
func solve[T gemm.Float](l *lane, m, n int, a, x operand) {
	for j := 0; j < n; j += panel {
		w := min(panel, n-j)
		part := at[T](x, 0, j)
		product[T](l, m, w, j, false, true, -1, x, at[T](a, j, 0), 1, part)
		solveDiagonal[T](l, m, w, at[T](a, j, j), part)
	}
}
