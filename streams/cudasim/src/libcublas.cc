// soname libcublas.so.12
//
// The part of cuBLAS in use, over the simulated driver: column-major, in plain loops.

#include <algorithm>
#include <cmath>
#include <vector>

#include "sim.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

struct Handle {
	Stream *stream = nullptr;
	int math = -1;
};
enum { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7 };

// later runs f in the order of the handle's stream.
template <class F> static int later(Handle *h, F f) {
	if (h->math != 0 || !h->stream || !cudasim_current()) return NOT_INITIALIZED; // TF32 must have been ruled out
	cudasim_enqueue(
	    h->stream,
	    [](void *p) {
		    auto *f = static_cast<F *>(p);
		    (*f)();
		    delete f;
	    },
	    new F(std::move(f)));
	return SUCCESS;
}
// at is a column-major matrix on the device, of so many columns; the last has rows elements.
template <class T> static T *at(const T *p, int rows, int cols, int ld) {
	if (rows == 0 || cols == 0) return nullptr;
	return static_cast<T *>(cudasim_device(reinterpret_cast<uint64_t>(p), sizeof(T) * (size_t(cols - 1) * ld + rows)));
}

EXPORT int cublasCreate_v2(Handle **h) { return cudasim_current() ? (*h = new Handle, SUCCESS) : NOT_INITIALIZED; }
EXPORT int cublasDestroy_v2(Handle *h) { return delete h, SUCCESS; }
EXPORT int cublasSetStream_v2(Handle *h, Stream *s) { return h->stream = s, SUCCESS; }
EXPORT int cublasSetMathMode(Handle *h, int mode) { return h->math = mode, SUCCESS; }

template <class T>
static int gemm(Handle *h, int ta, int tb, int m, int n, int k, T alpha, const T *a, int lda, const T *b, int ldb, T beta, T *c, int ldc) {
	if (lda < std::max(1, ta ? k : m) || ldb < std::max(1, tb ? n : k) || ldc < std::max(1, m) || m < 0 || n < 0 || k < 0) return INVALID_VALUE;
	if (ta < 0 || ta > 1 || tb < 0 || tb > 1) return INVALID_VALUE;
	return later(h, [=] {
		const T *A = at(a, ta ? k : m, ta ? m : k, lda), *B = at(b, tb ? n : k, tb ? k : n, ldb);
		T *C = at(c, m, n, ldc);
		if (!A || !B || !C) return;
		for (int j = 0; j < n; j++) {
			std::vector<T> sum(m);
			for (int l = 0; l < k; l++) {
				T v = tb ? B[j + size_t(l) * ldb] : B[l + size_t(j) * ldb];
				for (int i = 0; i < m; i++) sum[i] = std::fma(ta ? A[l + size_t(i) * lda] : A[i + size_t(l) * lda], v, sum[i]);
			}
			for (int i = 0; i < m; i++) {
				T &out = C[i + size_t(j) * ldc];
				out = beta == 0 ? alpha * sum[i] : std::fma(beta, out, alpha * sum[i]);
			}
		}
	});
}
EXPORT int cublasSgemm_v2(Handle *h, int ta, int tb, int m, int n, int k, const float *alpha, const float *a, int lda, const float *b, int ldb, const float *beta, float *c, int ldc) {
	return gemm(h, ta, tb, m, n, k, *alpha, a, lda, b, ldb, *beta, c, ldc);
}
EXPORT int cublasDgemm_v2(Handle *h, int ta, int tb, int m, int n, int k, const double *alpha, const double *a, int lda, const double *b, int ldb, const double *beta, double *c, int ldc) {
	return gemm(h, ta, tb, m, n, k, *alpha, a, lda, b, ldb, *beta, c, ldc);
}

template <class T>
static int syrk(Handle *h, int upper, int trans, int n, int k, T alpha, const T *a, int lda, T beta, T *c, int ldc) {
	if (lda < std::max(1, trans ? k : n) || ldc < std::max(1, n) || n < 0 || k < 0) return INVALID_VALUE;
	if (upper < 0 || upper > 1 || trans < 0 || trans > 1) return INVALID_VALUE;
	return later(h, [=] {
		const T *A = at(a, trans ? k : n, trans ? n : k, lda);
		T *C = at(c, n, n, ldc);
		if (!A || !C) return;
		for (int j = 0; j < n; j++) {
			for (int i = upper ? 0 : j; i < (upper ? j + 1 : n); i++) {
				T sum = 0;
				for (int l = 0; l < k; l++)
					sum = trans ? std::fma(A[l + size_t(i) * lda], A[l + size_t(j) * lda], sum) : std::fma(A[i + size_t(l) * lda], A[j + size_t(l) * lda], sum);
				T &out = C[i + size_t(j) * ldc];
				out = beta == 0 ? alpha * sum : std::fma(beta, out, alpha * sum);
			}
		}
	});
}
EXPORT int cublasSsyrk_v2(Handle *h, int u, int t, int n, int k, const float *alpha, const float *a, int lda, const float *beta, float *c, int ldc) {
	return syrk(h, u, t, n, k, *alpha, a, lda, *beta, c, ldc);
}
EXPORT int cublasDsyrk_v2(Handle *h, int u, int t, int n, int k, const double *alpha, const double *a, int lda, const double *beta, double *c, int ldc) {
	return syrk(h, u, t, n, k, *alpha, a, lda, *beta, c, ldc);
}
