// Package vec provides element-wise kernels and reductions over slices of
// float32 and float64, as an optimizer step and a transformer layer need them.
//
// Every function has a portable specification in Go (nameRef), and for float32
// AVX-512, AVX2 and NEON versions that give the same bits: each operation is
// rounded on its own (nothing is fused), elements do not influence each other,
// and exp is one polynomial evaluated in the same order everywhere. So a result
// does not depend on the instruction set, on the address or alignment of a slice,
// on the position of an element in it, or, for element-wise functions, on how a
// caller splits the slice between threads. (The bits of a NaN are not specified.)
//
// Reductions add element i of a chunk of 32768 to lane i%64 (i%32 where the sum
// is in float64), fold the lanes in halves, and add the chunks in order: the
// order depends on the length alone. Splitting a reduction changes its rounding;
// a caller that splits must do so at fixed places.
//
// Aliasing: a destination may be the very slice of a source (same first element)
// unless the function says otherwise; other overlap is not allowed. Slices that
// are shorter than the one that gives the length panic, longer ones are cut.
// Nothing allocates. Functions are safe for concurrent use on disjoint slices.
//
// The kernels are chosen at each call from the feature bits of klauspost/cpuid,
// a load and a few tests; the package has no state of its own. The tag noasm
// leaves the portable version only.
package vec
