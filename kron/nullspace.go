package kron

import (
	"context"
	"math"

	"github.com/asteria-runtime/asteria/gemm"
)

// Note: the null space
//
// The first factor is that of one gradient. It is rank deficient where the matrix is
// not square, and its small eigenvalues drown in the rounding of its large ones. A
// solver's eigenvectors for them are whatever its rounding errors make: a last bit
// of the gradient turns them all, and SOAP, which divides each coordinate by its own
// size, then takes other steps. So they are fixed by convention: with Z the
// eigenvectors of the eigenvalues that count as zero, as columns, and Ω a fixed
// matrix without structure,
//
//	QR(Z*Zᵀ*Ω) = Z*QR(Zᵀ*Ω)
//
// depends on the projector Z*Zᵀ alone, up to signs, to which the methods are blind.
// It moves with the gradient as the projector does, by rounding over the gap of the
// spectrum at which the eigenvalues are parted. Later bases start from this one.

// noiseDecade is how far below Options.NullTolerance the gap may lie.
const noiseDecade = 10

// fixesNull reports whether a first basis is made independent of rounding.
func (b *Block[T]) fixesNull() bool {
	return b.opts.NullTolerance > 0 && (b.opts.Method == SOAP || b.opts.Method == KLSOAP)
}

// fixNull replaces the columns of a first basis in r that belong to eigenvalues that
// count as zero. It uses up the matrices of s, which have served.
func (b *Block[T]) fixNull(ctx context.Context, k int, solver Refresher[T], ops Ops[T], s *Snapshot[T], r *Result[T]) error {
	n := b.modes[k].dim
	rank := numericalRank(r.Values[k], b.opts.NullTolerance)
	if n-rank < 2 { // one vector has no choice but its sign
		return nil
	}
	q, p, z := b.square(k, r.Root[k]), b.square(k, s.Factor[k]), b.square(k, s.Basis[k])
	for i := range n {
		row := z.Row(i)
		clear(row[:rank])
		copy(row[rank:], q.Row(i)[rank:])
	}
	ops.Gemm(false, true, 1, z, z, 0, p)
	if err := ops.Sync(); err != nil {
		return err
	}
	fillUnstructured(z)
	if err := solver.Iterate(ctx, z, p, nil); err != nil {
		return err
	}
	for i := range n {
		copy(q.Row(i)[rank:], z.Row(i)[:n-rank])
	}
	return nil
}

// numericalRank returns how many of the descending eigenvalues w do not count as
// zero: those above the widest gap between tolerance/noiseDecade and tolerance, as
// parts of the largest, so that no small difference moves one across. Eigenvalues
// of which none lies so low have no gap to look for.
func numericalRank[T gemm.Float](w []T, tolerance float64) int {
	top := math.Abs(float64(w[0]))
	limit, noise := tolerance*top, tolerance/noiseDecade*top
	best, widest := len(w), 0.0
	for i := len(w) - 1; i > 0; i-- {
		above, below := float64(w[i-1]), float64(w[i])
		if below > limit {
			break
		}
		if above <= noise {
			continue
		}
		if gap := above / max(below, noise/noiseDecade); gap > widest {
			best, widest = i, gap
		}
	}
	return best
}

// fillUnstructured fills m with fixed numbers in [-1, 1) that no subspace is aligned
// to: the top bits of a hash of the position (the finalizer of MurmurHash3, Appleby),
// exact in both precisions.
func fillUnstructured[T gemm.Float](m gemm.Matrix[T]) {
	for i := range m.Rows {
		row := m.Row(i)
		for j := range row {
			h := uint64(i)<<32 + uint64(j) + 0x9e3779b97f4a7c15
			h = (h ^ h>>33) * 0xff51afd7ed558ccd
			h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
			row[j] = T(int64(h^h>>33)>>40) * 0x1p-23
		}
	}
}
