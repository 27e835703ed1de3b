// Package uvm allocates memory that host and accelerator can both address, in
// bulk and outside the Go heap, so that hundreds of gigabytes of optimizer state
// cost the garbage collector nothing and are given back to the system when told.
//
// # Kinds
//
// [Host] is anonymous mapped memory, on huge pages where the system offers them.
// [Pinned] is the same, locked into RAM; where the system refuses to lock it stays
// ordinary memory, one warning is logged and the refusals are counted.
// [DeviceMemory] is memory that an accelerator uses too. It asks the device how it
// reaches memory and allocates accordingly: the same bytes for both sides where the
// hardware is coherent or integrated, managed memory with prefetch where both sides
// may use it at the same time, page-locked memory to stage copies through otherwise.
// The accelerator is behind the [Driver] interface.
//
// A [Pool] recycles buffers by size class under a byte limit, and knows its
// high-water mark.
//
// # Lifetime
//
// A Buffer's memory is valid until Close. Nothing is freed by a finalizer; a slice
// taken from a closed buffer must not be used, and after Close the methods of the
// buffer panic. Buffers do not move.
//
// # Release
//
// [Buffer.Release] gives the physical pages back (MADV_DONTNEED) and keeps the
// address range; the contents read as zero afterwards.
//
// # The race detector
//
// It does not see mapped memory. Under -race buffers come from the Go heap, so
// that a race in a buffer is reported; Release then only zeroes. Memory of an
// accelerator's driver stays what it is.
//
// # Concurrency
//
// Allocators and pools are safe for concurrent use. A Buffer is as safe as the
// slice that it hands out.
package uvm
