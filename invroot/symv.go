package invroot

import (
	"math"

	"github.com/asteria-runtime/asteria/gemm"
)

// symvChunks bounds the pieces of one symmetric matrix-vector product.
const symvChunks = 4

// symvTask computes y = A*x from the lower triangle. Rows are cut into pieces of
// equal area whose number depends on the order alone; each piece sums into its
// own vector, and the vectors are added in order, so that threads change nothing.
type symvTask[T gemm.Float] struct {
	k      kernels[T]
	part   gemm.Matrix[T]
	a      gemm.Matrix[T]
	x      []T
	chunks int
}

// run sets y = a[:n,:n]*x for n = len(x).
func (s *symvTask[T]) run(eng *gemm.Engine, a gemm.Matrix[T], x, y []T) {
	s.a, s.x, s.chunks = a, x, pieces(len(x))
	if s.chunks == 1 {
		clear(y)
		s.k.symvRows(y, a, x, 0, len(x))
		return
	}
	eng.Run(s.chunks, s)
	s.sum(y)
}

// sum adds the partial vectors; piece c reaches as far as its last row.
func (s *symvTask[T]) sum(y []T) {
	last := s.chunks - 1
	copy(y, s.part.Row(last)[:len(y)])
	for c := range last {
		p := s.part.Row(c)[:s.bound(c+1)]
		for i, v := range p {
			y[i] += v
		}
	}
}

// Do implements gemm.Task.
func (s *symvTask[T]) Do(chunk, _ int) {
	lo, hi := s.bound(chunk), s.bound(chunk+1)
	y := s.part.Row(chunk)[:hi]
	clear(y)
	s.k.symvRows(y, s.a, s.x, lo, hi)
}

// bound returns the first row of piece c: the triangle above it has c/chunks of
// the whole area.
func (s *symvTask[T]) bound(c int) int {
	n := len(s.x)
	if c == s.chunks {
		return n
	}
	w := lanes[T]()
	return int(float64(n)*math.Sqrt(float64(c)/float64(s.chunks))) / w * w
}

// pieces returns into how many pieces a product of order n is cut. Below some
// ten thousand elements the hand-over costs more than the work.
func pieces(n int) int {
	switch {
	case n < 384:
		return 1
	case n < 768:
		return 2
	}
	return symvChunks
}
