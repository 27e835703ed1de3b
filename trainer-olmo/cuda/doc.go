// Package cuda is the mathematics of kron and invroot on a CUDA device.
//
// [Ops] is kron's interface: factor updates, rotations and the element-wise rest of
// a step. [Refresher] is the solver of a refresh: eigendecompositions, and the inverse
// roots made of them, by cuSOLVER where it is found; inverse roots by the coupled
// Newton iteration otherwise and where the options ask for it, and basis refreshes by
// Cholesky-QR, both made of products on the device. What the device cannot
// do well (a factor too ill-conditioned for Cholesky-QR, a root that does not
// converge in single precision, an exponent that is not 1/p) goes to the solver of
// the host, with its own retries and evidence.
//
// Arithmetic is that of the element type throughout: no TF32, no half precision.
// Products go to cuBLAS where its library is found and to a kernel of ours
// otherwise; everything else is a kernel of ours, in kernels, embedded as PTX.
//
// # Where data lives
//
// Operands are slices of the host. Memory that the device addresses as well (see
// [Context.Alloc]) is used where it is. All other memory is staged through pinned
// buffers: an operand is copied to the device when it is first used, results stay
// there until Sync, which brings them back. Until Sync the caller must neither
// write an operand nor read a result, as kron.Ops says.
//
// # Determinism
//
// A result depends on the shapes and the numbers alone, not on what runs beside it.
// It differs from the host's by rounding, and between cuBLAS and our kernel, so a
// run's bits are those of a device and its libraries.
package cuda
