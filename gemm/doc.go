// Package gemm multiplies matrices: dense level-3 kernels for float32 and float64
// in Go assembly for AVX-512, AVX2 and NEON, with portable Go as their specification and
// as the fallback elsewhere (and under the build tag noasm).
//
//	e := gemm.New(2)
//	defer e.Close()
//	gemm.Mul(e, false, true, 1, q, k, 0, scores) // scores = q * kᵀ
//
// # What there is
//
//	Sgemm, Dgemm, Mul            C = α*op(A)*op(B) + β*C
//	SgemmBatch, DgemmBatch, …    the same for many products of one size
//	Ssyrk, Dsyrk, Syrk           C = α*A*Aᵀ + β*C or α*Aᵀ*A + β*C, lower triangle
//	MulParts                     Mul, summed part by part of the inner dimension
//	MulTree                      Mul, summed by groups of such parts in a binary tree
//	MulLower                     the lower triangle of op(A)*op(B)
//	Strsm, Dtrsm, Trsm           op(A)*X = α*B or X*op(A) = α*B, all 16 forms
//	Strmm, Dtrmm, Trmm           B = α*op(A)*B or α*B*op(A), all 16 forms
//	Spotrf, Dpotrf, Potrf        A = L*Lᵀ, lower triangle
//	Copy, Transpose              B = A, B = Aᵀ
//
// The S and D methods take slices and strides as BLAS does; the generic functions
// take [Matrix] views. Package gonumblas makes an engine gonum's BLAS.
//
// # Storage and aliasing
//
// Matrices are row-major with a stride of at least one row ("leading dimension").
// Only elements of the matrix are read or written, never the rest of a row or what
// lies behind the last one. Operands that are only read may overlap each other; what
// is written (c; b of the triangular routines; a of potrf) must not overlap anything
// else that the call uses, or the result is undefined. Elements above the diagonal of
// a lower triangular result may be read but are never written.
//
// # Special values
//
// As in the BLAS reference: β = 0 overwrites c without reading it, NaN included;
// α = 0 or k = 0 leaves a and b unread, so that their NaNs do not count; everything
// else follows IEEE 754, so that Inf*0 is NaN and a NaN spoils exactly the elements
// that depend on it.
//
// # Note: determinism
//
// An element of a product is one chain of multiply-adds over k in rising order,
// cut into slices whose depth is a function of k alone; the sum of a slice is scaled
// by α and added to C before the next. Tiles, packing and chunks only decide which
// register and which thread computes the element. Hence results do not depend, to
// the bit, on the number of threads, on timing, or on addresses, and the panels of a
// larger product equal the products of its panels. MulTree alone adds slices in another
// order, that of its groups, which it gets from the caller. They do depend on the kernel set
// (assembly rounds once per multiply-add, portable Go on some processors twice), which
// [Engine.Kernels] names.
//
// # Concurrency
//
// An [Engine] has its own workers and no state outside itself. One call at a time is
// spread over them; calls from other goroutines, and from inside a [Task], run on
// their caller, with the same results. No call allocates once its buffers have grown
// to size. No call into assembly lasts longer than a fraction of a millisecond, so
// that the scheduler and the garbage collector can stop a thread soon.
//
// Under the race detector, which does not see assembly, calls report the ranges that
// they read and write.
package gemm

//go:generate ./_gen/generate.sh
