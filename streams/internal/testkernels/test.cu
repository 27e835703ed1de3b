// Kernels that only the tests of streams launch.
#include "kernel.h"

// mix sets to[i] = to[i]*31 + from[i] ^ k: an order-sensitive operation.
KERNEL void mix(long n, unsigned k, const unsigned *from, unsigned *to) {
	for (long i = BLOCK * THREADS + THREAD; i < n; i += BLOCKS * THREADS) to[i] = (to[i] * 31 + from[i]) ^ k;
}
REGISTER(mix)

// every_size takes one parameter of each kind.
KERNEL void every_size(int a, float b, long c, double d, double *out) {
	if (THREAD == 0) out[0] = double(a) + double(b) + double(c) + d;
}
REGISTER(every_size)

// reverse turns each block's part around by way of shared memory.
KERNEL void reverse(const float *x, float *y) {
	SHARED float tile[256];
	long at = BLOCK * THREADS;
	tile[THREAD] = x[at + THREAD];
	BARRIER();
	y[at + THREAD] = tile[THREADS - 1 - THREAD];
}
REGISTER_BARRIER(reverse)

// spin keeps each block busy and counts it.
KERNEL void spin(long rounds, unsigned *out) {
	unsigned v = (unsigned)BLOCK;
	for (long i = 0; i < rounds; i++) v = v * 1664525u + 1013904223u;
	if (THREAD == 0) out[BLOCK] = v | 1;
}
REGISTER(spin)
