package invroot

import (
	"context"

	"github.com/asteria-runtime/asteria/gemm"
)

// maxBlock bounds the reflectors that are applied as one product.
const maxBlock = 64

// blockWidth balances the work on triangles, which grows with it, against the depth
// of the products.
func blockWidth(n int) int {
	if n <= 256 {
		return 32
	}
	return maxBlock
}

// backTransform sets Z = Z*H(1)…H(n-1): rows that are eigenvectors of the
// tridiagonal matrix become rows that are eigenvectors of A. A block of
// reflectors is
//
//	H(i)…H(i+k-1) = I - Vᵀ*T*V
//
// with V of k rows and T upper triangular (Schreiber and Van Loan 1989, LAPACK larft). All
// blocks are prepared first; then every strip of rows of Z, small enough to stay in cache,
// meets all blocks in turn. Strips are independent: they are the chunks of parallel work.
type backTransform[T gemm.Float] struct {
	eng     *gemm.Engine
	k       kernels[T]
	workers []*gemm.Engine // one-thread engines
	v       gemm.Matrix[T] // reflectors as rows, where the reduction left them
	tv      gemm.Matrix[T] // T*V of every block
	z       gemm.Matrix[T]
	tau     []T
	t, gram gemm.Matrix[T]
	column  []T
	w       []gemm.Matrix[T] // Z*Vᵀ of a strip, one per worker
	n       int
	wait    pause // nil with more than one worker
}

// newBackTransform returns a transform whose strips are spread over eng and
// worked on by the one-thread engines.
func newBackTransform[T gemm.Float](eng *gemm.Engine, k kernels[T], workers []*gemm.Engine) *backTransform[T] {
	b := &backTransform[T]{
		eng: eng, k: k, workers: workers, column: make([]T, maxBlock),
		t: scratch[T](maxBlock, maxBlock), gram: scratch[T](maxBlock, maxBlock),
	}
	for range workers {
		b.w = append(b.w, scratch[T](maxStrip, maxBlock))
	}
	return b
}

// maxStrip bounds the rows of a strip.
const maxStrip = 128

// strip returns the rows of a strip of Z. More, smaller strips than threads would
// read V more often; a strip of order 2048 takes 1 MiB in float32.
func strip(n int) int {
	if n <= 256 {
		return 64
	}
	return maxStrip
}

// apply transforms the leading n×n part of z. tv is scratch of the size of a.
func (b *backTransform[T]) apply(ctx context.Context, z, a, tv gemm.Matrix[T], tau []T) error {
	b.z, b.v, b.tv, b.tau, b.n = z, a, tv, tau, a.Rows
	for first := 1; first < b.n; first += blockWidth(b.n) {
		if err := b.wait.poll(ctx); err != nil {
			return err
		}
		b.prepare(first)
	}
	strips := (b.n + strip(b.n) - 1) / strip(b.n)
	if len(b.workers) == 1 {
		for i := range strips {
			if err := ctx.Err(); err != nil {
				return err
			}
			b.Do(i, 0) // gives way
		}
		return nil
	}
	b.eng.Run(strips, b)
	return ctx.Err()
}

// block returns the V and the T*V that begin at reflector first. Row r has r
// elements; the block is as wide as its last row.
func (b *backTransform[T]) block(first int) (v, tv gemm.Matrix[T]) {
	k := min(blockWidth(b.n), b.n-first)
	m := first + k - 1
	return b.v.Slice(first, 0, k, m), b.tv.Slice(first, 0, k, m)
}

// prepare completes V with zeros and forms T*V.
func (b *backTransform[T]) prepare(first int) {
	v, tv := b.block(first)
	for i := range v.Rows {
		clear(v.Row(i)[first+i:])
	}
	gram, t := corner(b.gram, v.Rows, v.Rows), corner(b.t, v.Rows, v.Rows)
	gemm.Syrk(b.eng, false, 1, v, 0, gram)
	triangle(b.k, t, gram, b.tau[first:], b.column)
	gemm.Mul(b.eng, false, false, 1, t, v, 0, tv)
}

// triangle builds T from the lower triangle of the Gram matrix of V: column j is
// -tau[j]*T*(V*v_j), and tau[j] on the diagonal. column is scratch.
func triangle[T gemm.Float](k kernels[T], t, gram gemm.Matrix[T], tau, column []T) {
	for j := range t.Rows {
		c := column[:j]
		k.dots(c, t, gram.Row(j)[:j])
		for i, s := range c {
			t.Row(i)[j] = -tau[j] * s
		}
		row := t.Row(j)
		clear(row[:j])
		row[j] = tau[j]
	}
}

// Do implements gemm.Task: one strip meets all blocks.
func (b *backTransform[T]) Do(chunk, worker int) {
	eng := b.workers[worker]
	lo := chunk * strip(b.n)
	h := min(strip(b.n), b.n-lo)
	for first := 1; first < b.n; first += blockWidth(b.n) {
		b.wait.point()
		v, tv := b.block(first)
		z, w := b.z.Slice(lo, 0, h, v.Cols), corner(b.w[worker], h, v.Rows)
		gemm.Mul(eng, false, true, 1, z, v, 0, w)
		gemm.Mul(eng, false, false, -1, w, tv, 1, z)
	}
}
