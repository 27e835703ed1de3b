// Package invroot computes what a second-order optimizer needs of a symmetric
// matrix: inverse roots A^(-1/p), eigenbases, and one-step basis refreshes.
//
// # Idea
//
// A refresh is a pure function of a snapshot: it reads a factor and writes a root
// or a basis, and it comes with evidence. Every method returns a [Report] that
// says which method and precision produced the result, how good it is, and what
// had to be retried. A result is written to its destination only when it is
// finite and passed its check; otherwise the destination keeps what it held.
//
// # Methods
//
// [Eigen] (the default) reduces A to tridiagonal form with blocked Householder
// reflectors, solves the tridiagonal problem by divide and conquer with the
// secular equation in float64, transforms back in blocks and forms
//
//	X = Q * f(Λ) * Qᵀ
//
// as one symmetric rank-n product. [CoupledNewton] and [HigherOrder] are the
// coupled iterations of facebookresearch/optimizers, products only.
//
// # Conditioning
//
// Storing A in float32 moves its eigenvalues by about 6e-8 of the largest one, so
// no algorithm can do better than that divided by the smallest. Two options
// answer it: the [Ridge] bounds the smallest eigenvalue from below, and the
// [Precision] says where the work is done. [Auto] works in float32 while
// κ = λmax/(λmin+ridge) ≤ 1e4, for roots while also κ times the exponent ≤ 500, and in
// float64 beyond.
//
// # Storage, aliasing, concurrency
//
// Matrices are row-major [gemm.Matrix] views. Inputs are read only; an output may
// be the input itself, since inputs are copied first. A [Solver] owns the scratch
// of one goroutine and allocates nothing after its first call at an order; results
// do not depend on the number of threads of its engine. [Batch] spreads
// independent problems over solvers of one thread each.
package invroot
