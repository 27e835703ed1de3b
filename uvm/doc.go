// Package uvm allocates memory that host and accelerator can both address, in
// bulk and outside the Go heap, so that hundreds of gigabytes of optimizer state
// cost the garbage collector nothing and are given back to the system when told.
//
// # Kinds
//
// [Host] is anonymous mapped memory, on huge pages where the system offers them.
// [Pinned] is the same, locked into RAM; where the system refuses to lock it stays
// ordinary memory, one warning is logged and the refusals are counted. Managed
// memory of an accelerator comes through the [Allocator] interface from the
// package that drives it.
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
// that a race in a buffer is reported; Release then only zeroes.
//
// # Concurrency
//
// Allocators and pools are safe for concurrent use. A Buffer is as safe as the
// slice that it hands out.
package uvm
