// Matrix products and what Cholesky-QR needs beside them, row-major, in single and
// double precision. No TF32: every element of a product is one chain of multiply-adds
// in the order of k, scaled and added to C as gemm does it, so that products of a depth
// that gemm does not cut have the host's bits.
#include "kernel.h"

namespace {

const int side = 64; // tile of C that a block of 256 threads makes, 4×4 elements a thread
const int deep = 16; // slice of k in shared memory
const int panel = 32; // order of the diagonal blocks of a triangular matrix

} // namespace

// product is C = alpha*op(A)*op(B) + beta*C for C m×n; with lower only the part on
// and below the diagonal is made. C is not read where beta is 0.
//
// Note: threads. Thread t makes rows (t/16)*4.. and columns (t%16)*4.. of its tile.
// Both operands are kept in shared memory by slices of k, so that a read of a slice
// is one line for the rows and one for the columns.
template <class T>
DEVICE void product(T (*as)[side], T (*bs)[side], long m, long n, long k, int ta, int tb, T alpha, const T *a, long lda,
                    const T *b, long ldb, T beta, T *c, long ldc, int lower) {
	long row0 = BLOCK_Y * side, col0 = BLOCK * side;
	if (lower && col0 > row0) return; // the same for all threads of the block
	long r = THREAD / 16 * 4, q = THREAD % 16 * 4;
	T sum[4][4] = {};
	for (long k0 = 0; k0 < k; k0 += deep) {
		for (long e = THREAD; e < side * deep; e += 256) {
			// Neighbouring threads read neighbouring elements of memory.
			long i = ta ? e % side : e / deep, l = ta ? e / side : e % deep;
			bool in = row0 + i < m && k0 + l < k;
			as[l][i] = in ? (ta ? a[(k0 + l) * lda + row0 + i] : a[(row0 + i) * lda + k0 + l]) : T(0);
			long j = tb ? e / deep : e % side;
			l = tb ? e % deep : e / side;
			in = col0 + j < n && k0 + l < k;
			bs[l][j] = in ? (tb ? b[(col0 + j) * ldb + k0 + l] : b[(k0 + l) * ldb + col0 + j]) : T(0);
		}
		BARRIER();
		for (int l = 0; l < deep; l++)
			for (int i = 0; i < 4; i++)
				for (int j = 0; j < 4; j++) sum[i][j] = multiply_add(as[l][r + i], bs[l][q + j], sum[i][j]);
		BARRIER();
	}
	for (int i = 0; i < 4; i++) {
		for (int j = 0; j < 4; j++) {
			long row = row0 + r + i, col = col0 + q + j;
			if (row >= m || col >= n || (lower && col > row)) continue;
			T *out = &c[row * ldc + col];
			T v = alpha * sum[i][j];
			*out = beta == 0 ? v : multiply_add(beta, *out, v);
		}
	}
}

// cholesky factors a diagonal block of order ≤ 32 in place, in its lower triangle,
// with one thread a row. bad is set to the place of the first pivot that is not
// positive, unless it is set already.
template <class T> DEVICE void cholesky(T (*t)[panel + 1], long n, long at, T *a, long lda, int *bad) {
	long i = THREAD;
	for (long j = 0; i < n && j <= i; j++) t[i][j] = a[i * lda + j];
	BARRIER();
	for (long j = 0; j < n; j++) {
		if (i == j) {
			T d = t[j][j];
			if (!(d > 0) && *bad == 0) *bad = int(at + j + 1);
			t[j][j] = square_root(d);
		}
		BARRIER();
		if (i > j && i < n) t[i][j] /= t[j][j];
		BARRIER();
		for (long k = j + 1; i < n && k <= i; k++) t[i][k] -= t[i][j] * t[k][j];
		BARRIER();
	}
	for (long j = 0; i < n && j <= i; j++) a[i * lda + j] = t[i][j];
}

// solve_right sets X = X*L⁻ᵀ for the m×n X, n ≤ 32, with one thread a row.
template <class T> DEVICE void solve_right(long m, long n, const T *l, long ldl, T *x, long ldx) {
	long i = BLOCK * THREADS + THREAD;
	if (i >= m) return;
	T *row = x + i * ldx;
	for (long j = 0; j < n; j++) {
		T s = row[j];
		for (long k = 0; k < j; k++) s -= row[k] * l[j * ldl + k];
		row[j] = s / l[j * ldl + j];
	}
}

#define DEFINE(T, type)                                                                                                      \
	KERNEL void product_##T(long m, long n, long k, int ta, int tb, type alpha, const type *a, long lda, const type *b,        \
	                        long ldb, type beta, type *c, long ldc, int lower) {                                              \
		SHARED type as[deep][side];                                                                                            \
		SHARED type bs[deep][side];                                                                                            \
		product<type>(as, bs, m, n, k, ta, tb, alpha, a, lda, b, ldb, beta, c, ldc, lower);                                    \
	}                                                                                                                        \
	REGISTER_BARRIER(product_##T)                                                                                            \
	KERNEL void cholesky_##T(long n, long at, type *a, long lda, int *bad) {                                                 \
		SHARED type t[panel][panel + 1];                                                                                       \
		cholesky<type>(t, n, at, a, lda, bad);                                                                                 \
	}                                                                                                                        \
	REGISTER_BARRIER(cholesky_##T)                                                                                           \
	KERNEL void solve_right_##T(long m, long n, const type *l, long ldl, type *x, long ldx) {                                \
		solve_right<type>(m, n, l, ldl, x, ldx);                                                                               \
	}                                                                                                                        \
	REGISTER(solve_right_##T)

DEFINE(f32, float)
DEFINE(f64, double)
