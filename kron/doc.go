// Package kron carries the mathematics of the Kronecker-factored optimizers
// Shampoo, SOAP and KL-Shampoo: what happens to one block of a parameter in one
// step. It owns no memory, starts no goroutine, and solves no eigenproblem.
//
// # The idea
//
// Adam keeps one second moment per entry of a gradient. For a matrix parameter
// G the full second moment of vec(G) is too large to keep, but its Kronecker
// approximation is not: one factor per side,
//
//	L = E[G*Gᵀ]   R = E[Gᵀ*G]
//
// and the methods differ in what they do with the two. With Q the eigenvectors
// of a factor (its basis), m and v the first and second moment:
//
//	Shampoo       U = L^(-1/4) * M * R^(-1/4), rescaled to the length of Adam's step
//	SOAP          G' = Q_Lᵀ*G*Q_R, Adam on G', U = Q_L*Adam(G')*Q_Rᵀ
//	KL-Shampoo    as SOAP, but dividing by sqrt(λ_i*λ_j) in place of sqrt(v_ij); each
//	              factor sees the gradient whitened by the others
//	KL-SOAP       KL-Shampoo's factors with SOAP's second moment
//	EigenShampoo  Shampoo in the basis, with eigenvalues corrected every step
//
// Tensors of order 3 have three factors; the products become mode products:
// G ×_k A multiplies side k by A.
//
// # A step
//
// The expensive part, a refresh of roots or bases, is a pure function of a copy
// of the factors, so it can run anywhere and be adopted later. A step is
// therefore in two halves with one adoption point between them:
//
//	b.Begin(st, w, g, lr, ops, scratch)
//	if b.Due(st.Meta) {
//		b.Snapshot(st, &job.Snapshot)                      // a copy, finite, with versions
//		b.Refresh(ctx, solver, ops, &job.Snapshot, &job.Result) // anywhere, any time
//		b.Install(st, &job.Result, ops, scratch)               // at an adoption point
//	}
//	b.Finish(st, w, g, lr, ops, scratch)
//
// [Worker.Step] is exactly that, the synchronous optimizer. See
// [Block.SnapshotFirst] for the order inside the adoption point when a result is
// adopted late.
//
// # Memory
//
// A [Block] describes a tile of a parameter; its [Layout] names sections and
// their lengths. The caller supplies one slice per section and a [Meta], and
// gets a [State]. So a planner knows every byte before anything is allocated, a
// tier controller may move a section between steps ([Block.Bind] again, to
// slices with the same contents, changes nothing), and a checkpoint reads the
// sections in place.
//
// All arrays are packed and row-major. A factor holds its lower triangle, zeros
// above; a basis has eigenvectors in its columns; the second moment of the basis
// methods is indexed by eigenvector, not by row. Parameters and gradients come
// as strided [View]s of the caller's storage, so that a slice of a fused buffer
// needs no copy: results are the same bits as for packed ones, and nothing
// outside the view is written.
//
// # Aliasing and concurrency
//
// Parameter, gradient, state and scratch must not overlap. A Block never changes
// and is safe for concurrent use; a State, a [Scratch] and a [Job] belong to one
// goroutine at a time. A Snapshot shares nothing with the state. Install
// exchanges buffers between state and result, unless the result is Shared: what
// was published before stays untouched in the spare slot.
//
// # Precision and reproducibility
//
// The code is generic: float32 is what runs, float64 the reference mode in which
// the golden files agree to 1e-9 and better. Scalars (bias corrections, learning
// rates) are float64. Dense work goes through [Ops], in an order that depends on
// the shapes alone, so the number of threads changes no bit.
//
// # When a refresh fails
//
// The solver owns retries. A mode whose refresh fails, or returns numbers that
// are not finite, keeps its previous root or basis; failures are counted in
// Meta, and more than Options.MaxFailures in a row make Install return a
// [*RefreshError] that names the block. A result computed from a basis that is no
// longer installed is discarded and counted: its permutation would scramble the
// second moment silently.
//
// # Sources
//
// Gupta, Koren, Singer, arXiv 1802.09568 (Shampoo); Shi et al., arXiv 2309.06497
// (facebookresearch/optimizers); Vyas et al., arXiv 2409.11321 (SOAP); Lin et al.,
// arXiv 2509.03378 (KL-Shampoo, KL-SOAP).
package kron
