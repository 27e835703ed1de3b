package kron

import (
	"context"
	"fmt"
	"math"

	"github.com/asteria-runtime/asteria/gemm"
	"github.com/asteria-runtime/asteria/gemm/vec"
)

// Snapshot is what a refresh job reads: a copy of one block's factors, and of
// its bases where the job starts from them. After [Block.Snapshot] has filled
// it nobody writes it until the job is over. It names the versions that were
// installed when it was taken, because a permutation or rotation means nothing
// relative to another basis.
type Snapshot[T gemm.Float] struct {
	AsOf   int64            // Meta.Calls when it was taken
	Base   [MaxOrder]uint64 // installed version per mode
	Factor [MaxOrder][]T    // d×d, bias corrected, the lower triangle; Refresh completes it; nil without a factor
	Basis  [MaxOrder][]T    // installed basis; nil where the job needs none
}

// beforeMomentum reports whether the snapshot is that of the first call, before
// any moment: its result needs no rotation, and gets none.
func (s *Snapshot[T]) beforeMomentum() bool { return s.AsOf <= 1 }

// Result is what a refresh job writes. A mode without a factor has nil slices.
type Result[T gemm.Float] struct {
	AsOf     int64
	Base     [MaxOrder]uint64
	Root     [MaxOrder][]T   // inverse root or basis
	Rotation [MaxOrder][]T   // Qᵀ·Q' from the old basis to the new; nil where adoption needs none
	Values   [MaxOrder][]T   // eigenvalues, where the solver computed them
	Perm     [MaxOrder][]int // perm[new] = old, how the second moment moves; SOAP only
	Moves    [MaxOrder]bool  // Perm is meaningful
	Fresh    [MaxOrder]bool  // Values replace the tracked eigenvalues (KL)
	Err      [MaxOrder]error // per mode, nil where Root is good

	// Shared says that the buffers serve other blocks too: Install then copies
	// out of them. Otherwise it exchanges Root with the state's buffer, which
	// comes back as the spare slot.
	Shared bool
}

// Job is the memory of one refresh in flight.
type Job[T gemm.Float] struct {
	Snapshot Snapshot[T]
	Result   Result[T]
}

// JobLen returns how many elements and how many indices a job of b needs: those
// of its snapshot and of its result.
func (b *Block[T]) JobLen() (elements, indices int) {
	elements, indices = b.ResultLen()
	return elements + b.SnapshotLen(), indices
}

// SnapshotLen returns how many elements a snapshot of b needs.
func (b *Block[T]) SnapshotLen() (elements int) {
	for k := range b.order {
		n := b.FactorOrder(k)
		elements += n * n
		if b.opts.Method.basis() {
			elements += n * n
		}
	}
	return elements
}

// ResultLen returns how many elements and how many indices a result of b needs.
func (b *Block[T]) ResultLen() (elements, indices int) {
	for k := range b.order {
		n := b.FactorOrder(k)
		elements += n*n + n
		if b.needsRotation(k) {
			elements += n * n
		}
		if b.opts.Method == SOAP {
			indices += n
		}
	}
	return elements, indices
}

// rotates reports whether an adoption re-expresses the momentum.
func (b *Block[T]) rotates() bool {
	return b.opts.Method.late() && b.opts.Momentum == MomentumEigen && b.opts.Betas[0] != 0
}

// needsRotation reports whether the job supplies Qᵀ·Q' for mode k. It costs 2d³,
// against 2d²·others for one more product at the adoption: a side longer than
// all others together is cheaper to take back to the original space and forth.
func (b *Block[T]) needsRotation(k int) bool {
	return b.rotates() && b.modes[k].dim <= b.modes[k].others()
}

// CutJob lays a job of b over the caller's memory, of the lengths that
// [Block.JobLen] gives.
func (b *Block[T]) CutJob(job *Job[T], elements []T, indices []int) {
	*job = Job[T]{}
	n := b.SnapshotLen()
	b.CutSnapshot(&job.Snapshot, elements[:n])
	b.CutResult(&job.Result, elements[n:], indices)
}

// CutSnapshot lays the matrices of s over the caller's memory, of the length that
// [Block.SnapshotLen] gives; what s holds beside them stays.
func (b *Block[T]) CutSnapshot(s *Snapshot[T], elements []T) {
	for k := range b.order {
		n := b.FactorOrder(k)
		if n == 0 {
			continue
		}
		s.Factor[k], elements = cutOff(elements, n*n)
		if b.opts.Method.basis() {
			s.Basis[k], elements = cutOff(elements, n*n)
		}
	}
}

// CutResult lays the arrays of r over the caller's memory, of the lengths that
// [Block.ResultLen] gives; what r holds beside them stays.
func (b *Block[T]) CutResult(r *Result[T], elements []T, indices []int) {
	for k := range b.order {
		n := b.FactorOrder(k)
		if n == 0 {
			continue
		}
		r.Root[k], elements = cutOff(elements, n*n)
		r.Values[k], elements = cutOff(elements, n)
		if b.needsRotation(k) {
			r.Rotation[k], elements = cutOff(elements, n*n)
		}
		if b.opts.Method == SOAP {
			r.Perm[k], indices = cutOff(indices, n)
		}
	}
}

// cutOff divides x after n elements.
func cutOff[E any](x []E, n int) (part, rest []E) { return x[:n:n], x[n:] }

// NewJob allocates a job for b.
func (b *Block[T]) NewJob() *Job[T] {
	elements, indices := b.JobLen()
	job := new(Job[T])
	b.CutJob(job, gemm.OnHugePages(make([]T, elements)), make([]int, indices))
	return job
}

// Snapshot copies what a refresh of the block reads now, at its adoption
// point, into s, on the host: with operations that are asynchronous, Sync comes
// first. Factors are, for Shampoo and EigenShampoo, divided by their bias
// correction. It returns an error that matches [ErrNonFinite] when a factor is
// not finite: such a block must not be refreshed, and [Block.Fail] counts it.
//
// A step that takes many snapshots must not be slower than others, so this
// touches the lower triangles only; the other half is the job's work.
func (b *Block[T]) Snapshot(st *State[T], s *Snapshot[T]) error {
	s.AsOf = st.Meta.Calls()
	for k := range b.order {
		if !b.modes[k].factored {
			continue
		}
		s.Base[k] = st.Meta.Version(k)
		if s.Basis[k] != nil {
			copy(s.Basis[k], st.Root[k])
		}
		n := b.modes[k].dim
		if !copyLower(s.Factor[k], st.Factor[k], n, T(b.snapshotScale(st, k))) {
			return fmt.Errorf("%w in factor %d of block %s", ErrNonFinite, k, b.name)
		}
		if b.opts.Method == EigenShampoo {
			addDiagonal(s.Factor[k], n, T(b.opts.Epsilon))
		}
	}
	return nil
}

// copyLower sets the lower triangle of dst to scale times that of src, and
// reports whether it is finite: row by row, while a row is in the cache.
func copyLower[T gemm.Float](dst, src []T, n int, scale T) (finite bool) {
	for i := range n {
		row := dst[i*n : i*n+i+1]
		vec.ScaleTo(row, scale, src[i*n:i*n+i+1])
		if !vec.Finite(row) {
			return false
		}
	}
	return true
}

// mirrorTile is the side of the squares in which mirror works: rows of the
// source and columns of the destination then stay in the first-level cache.
const mirrorTile = 32

// mirror copies the lower triangle of the n×n a to the upper one.
func mirror[T gemm.Float](a []T, n int) {
	for i0 := 0; i0 < n; i0 += mirrorTile {
		for j0 := 0; j0 <= i0; j0 += mirrorTile {
			for i := i0; i < min(i0+mirrorTile, n); i++ {
				for j := j0; j < min(j0+mirrorTile, i); j++ {
					a[j*n+i] = a[i*n+j]
				}
			}
		}
	}
}

// addDiagonal adds v*I to the n×n a. EigenShampoo's reference does so before a
// basis refresh: it leaves eigenvectors alone but shifts the QR algorithm.
func addDiagonal[T gemm.Float](a []T, n int, v T) {
	for i := range n {
		a[i*n+i] += v
	}
}

// snapshotScale is what turns the state's factor into the matrix whose root or
// basis is wanted.
func (b *Block[T]) snapshotScale(st *State[T], k int) float64 {
	if b.opts.Method.late() {
		return 1
	}
	scale := 1 / b.factorCorrection(st.Meta.Step())
	if b.opts.TraceScaling && b.opts.Method == Shampoo {
		n := b.modes[k].dim
		trace := 0.0
		for i := range n {
			trace += float64(st.Factor[k][i*n+i]) * scale
		}
		scale /= math.Sqrt(max(trace, b.opts.Epsilon, math.SmallestNonzeroFloat64))
	}
	return scale
}

// Refresh computes r from s alone, whose matrices it completes and may use up, and may run on any goroutine that owns
// solver and ops. A mode that fails leaves its error in r.Err, which also
// collects what the solver's own retries could not save; the first of them is
// returned.
func (b *Block[T]) Refresh(ctx context.Context, solver Refresher[T], ops Ops[T], s *Snapshot[T], r *Result[T]) error {
	r.AsOf, r.Base = s.AsOf, s.Base
	var first error
	for k := range b.order {
		r.Err[k], r.Moves[k], r.Fresh[k] = nil, false, false
		if !b.modes[k].factored {
			continue
		}
		mirror(s.Factor[k], b.modes[k].dim)
		err := b.refreshMode(ctx, k, solver, ops, s, r)
		if err == nil && !vec.Finite(r.Root[k]) {
			err = ErrNonFinite
		}
		if err != nil {
			r.Err[k] = fmt.Errorf("kron: block %s: refresh mode %d: %w", b.name, k, err)
			first = or(first, r.Err[k])
		}
	}
	return first
}

func (b *Block[T]) refreshMode(ctx context.Context, k int, solver Refresher[T], ops Ops[T], s *Snapshot[T], r *Result[T]) error {
	a, q := b.square(k, s.Factor[k]), b.square(k, r.Root[k])
	if b.opts.Method == Shampoo {
		return solver.Root(ctx, q, a, b.modes[k].exponent)
	}
	if err := b.refreshBasis(ctx, k, solver, ops, s, r); err != nil {
		return err
	}
	if r.Rotation[k] != nil && !s.beforeMomentum() {
		ops.Gemm(true, false, 1, b.square(k, s.Basis[k]), q, 0, b.square(k, r.Rotation[k]))
	}
	return ops.Sync()
}

// refreshBasis fills r.Root[k] with eigenvectors: a full decomposition for the
// first, where there is no basis to improve, and as the options say afterwards.
func (b *Block[T]) refreshBasis(ctx context.Context, k int, solver Refresher[T], ops Ops[T], s *Snapshot[T], r *Result[T]) error {
	a, q := b.square(k, s.Factor[k]), b.square(k, r.Root[k])
	first := s.Base[k] == 0
	copy(r.Root[k], s.Basis[k])
	if b.opts.Method == EigenShampoo {
		if b.opts.Basis == RefreshEigh {
			return solver.Eigen(ctx, q, r.Values[k], a, false)
		}
		return solver.Diagonalize(ctx, q, r.Values[k], a, b.opts.QRIterations, b.opts.QRTolerance)
	}
	if first {
		err := solver.Eigen(ctx, q, r.Values[k], a, true)
		if err == nil && b.fixesNull() {
			err = b.fixNull(ctx, k, solver, ops, s, r)
		}
		return err
	}
	if b.opts.Basis == RefreshEigh {
		return b.refreshEigh(ctx, k, solver, ops, s, r)
	}
	if b.opts.Method == SOAP {
		r.Moves[k] = true
	}
	return solver.Iterate(ctx, q, a, r.Perm[k])
}

// refreshEigh replaces the basis by a full decomposition in descending order.
// SOAP's second moment follows by rank: its order is that of the old columns by
// descending diag(Qᵀ·A·Q). KL's columns lose their identity, so its eigenvalues
// are replaced as well.
func (b *Block[T]) refreshEigh(ctx context.Context, k int, solver Refresher[T], ops Ops[T], s *Snapshot[T], r *Result[T]) error {
	a, q := b.square(k, s.Factor[k]), b.square(k, r.Root[k])
	if b.opts.Method == SOAP {
		old := b.square(k, s.Basis[k])
		ops.Gemm(false, false, 1, a, old, 0, q)
		if err := ops.Sync(); err != nil {
			return err
		}
		columnDots(r.Values[k], old, q)
		rankDescending(r.Perm[k], r.Values[k])
		r.Moves[k] = true
	}
	r.Fresh[k] = b.opts.Method.kl()
	return solver.Eigen(ctx, q, r.Values[k], a, true)
}

// columnDots sets dst[j] = x[:,j]·y[:,j].
func columnDots[T gemm.Float](dst []T, x, y gemm.Matrix[T]) {
	clear(dst)
	for i := range x.Rows {
		u, v := x.Row(i), y.Row(i)
		for j := range dst {
			dst[j] += u[j] * v[j]
		}
	}
}

// rankDescending fills perm with the indices of v from the largest value to the
// smallest, equal ones in their order. Insertion suffices for an array that the
// last refresh left nearly sorted, and needs no memory.
func rankDescending[T gemm.Float](perm []int, v []T) {
	for i := range perm {
		j := i
		for ; j > 0 && v[perm[j-1]] < v[i]; j-- {
			perm[j] = perm[j-1]
		}
		perm[j] = i
	}
}
