// soname libcublas.so.12
//
// The part of cuBLAS in use, over the simulated driver: column-major, in plain loops.

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
	if (h->math != 0) return NOT_INITIALIZED; // TF32 must have been ruled out
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
template <class T> static T *at(const T *p) { return static_cast<T *>(cudasim_host(reinterpret_cast<uint64_t>(p))); }

EXPORT int cublasCreate_v2(Handle **h) { return *h = new Handle, SUCCESS; }
EXPORT int cublasDestroy_v2(Handle *h) { return delete h, SUCCESS; }
EXPORT int cublasSetStream_v2(Handle *h, Stream *s) { return h->stream = s, SUCCESS; }
EXPORT int cublasSetMathMode(Handle *h, int mode) { return h->math = mode, SUCCESS; }

template <class T>
static int gemm(Handle *h, int ta, int tb, int m, int n, int k, T alpha, const T *a, int lda, const T *b, int ldb, T beta, T *c, int ldc) {
	if (lda < (ta ? k : m) || ldb < (tb ? n : k) || ldc < m || m < 0 || n < 0 || k < 0) return INVALID_VALUE;
	return later(h, [=] {
		const T *A = at(a), *B = at(b);
		T *C = at(c);
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
	if (lda < (trans ? k : n) || ldc < n) return INVALID_VALUE;
	return later(h, [=] {
		const T *A = at(a);
		T *C = at(c);
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
