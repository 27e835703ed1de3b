// The whole language of our kernels, in two meanings: for the device (clang -x cuda,
// without a CUDA toolkit) and for the simulated driver (plain C++).
//
// A kernel is
//
//	KERNEL void name(long n, const float *x, float *y) { ... }
//	REGISTER(name)
//
// and uses BLOCK, BLOCKS, THREAD, THREADS (index and count along x), BLOCK_Y,
// multiply_add for a*b+c rounded once (nothing is fused unless it says so),
// SHARED for an array that the threads of a block share, and BARRIER() to wait for
// them. A kernel with a BARRIER registers with REGISTER_BARRIER: the simulator then
// runs its threads as fibers instead of one after the other.
#pragma once

#ifdef __CUDA__ // clang defines it for -x cuda

#define KERNEL extern "C" __attribute__((global))
#define DEVICE static inline __attribute__((device, always_inline))
#define SHARED static __attribute__((shared))
#define BARRIER() __syncthreads()
#define BLOCK ((long)__nvvm_read_ptx_sreg_ctaid_x())
#define BLOCK_Y ((long)__nvvm_read_ptx_sreg_ctaid_y())
#define BLOCKS ((long)__nvvm_read_ptx_sreg_nctaid_x())
#define THREAD ((long)__nvvm_read_ptx_sreg_tid_x())
#define THREADS ((long)__nvvm_read_ptx_sreg_ntid_x())
#define REGISTER(name)
#define REGISTER_BARRIER(name)

DEVICE float square_root(float x) { return __nvvm_sqrt_rn_f(x); }
DEVICE double square_root(double x) { return __nvvm_sqrt_rn_d(x); }
DEVICE float multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEVICE double multiply_add(double a, double b, double c) { return __builtin_fma(a, b, c); }

#else // the simulator

#include <cmath>

#include "emulate.h"

#define KERNEL extern "C"
#define DEVICE static inline
#define SHARED static thread_local
#define BARRIER() cudasim::barrier()
#define BLOCK (cudasim::here.block)
#define BLOCK_Y (cudasim::here.block_y)
#define BLOCKS (cudasim::here.blocks)
#define THREAD (cudasim::here.thread)
#define THREADS (cudasim::here.threads)
#define REGISTER(name) static cudasim::Registered registered_##name(#name, name, false);
#define REGISTER_BARRIER(name) static cudasim::Registered registered_##name(#name, name, true);

DEVICE float square_root(float x) { return std::sqrt(x); }
DEVICE double square_root(double x) { return std::sqrt(x); }
DEVICE float multiply_add(float a, float b, float c) { return std::fma(a, b, c); }
DEVICE double multiply_add(double a, double b, double c) { return std::fma(a, b, c); }

#endif
