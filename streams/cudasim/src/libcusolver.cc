// soname libcusolver.so.11
//
// The part of cuSOLVER in use, over the simulated driver: Jacobi's method and an
// unblocked Cholesky factorization, column-major.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "sim.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

struct Handle {
	Stream *stream = nullptr;
};
enum { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 3 };

template <class F> static int later(Handle *h, F f) {
	if (!h->stream || !cudasim_current()) return NOT_INITIALIZED;
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
template <class T> static T *at(T *p, size_t elements) {
	return static_cast<T *>(cudasim_device(reinterpret_cast<uint64_t>(p), sizeof(T) * elements));
}

EXPORT int cusolverDnCreate(Handle **h) { return cudasim_current() ? (*h = new Handle, SUCCESS) : NOT_INITIALIZED; }
EXPORT int cusolverDnDestroy(Handle *h) { return delete h, SUCCESS; }
EXPORT int cusolverDnSetStream(Handle *h, Stream *s) { return h->stream = s, SUCCESS; }

// jacobi diagonalizes a (full, order n) by cyclic rotations; q gathers them as columns.
static bool jacobi(int n, std::vector<double> &a, std::vector<double> &q) {
	auto A = [&](int i, int j) -> double & { return a[i + size_t(j) * n]; };
	auto Q = [&](int i, int j) -> double & { return q[i + size_t(j) * n]; };
	for (int i = 0; i < n; i++)
		for (int j = 0; j < n; j++) Q(i, j) = i == j;
	for (int sweep = 0; sweep < 60; sweep++) {
		double off = 0, all = 0;
		for (int j = 0; j < n; j++)
			for (int i = 0; i < n; i++) all += A(i, j) * A(i, j), off += i == j ? 0 : A(i, j) * A(i, j);
		if (!(off > 1e-30 * all)) return std::isfinite(all);
		for (int p = 0; p < n; p++) {
			for (int r = p + 1; r < n; r++) {
				if (A(p, r) == 0) continue;
				double theta = (A(r, r) - A(p, p)) / (2 * A(p, r));
				double t = (theta < 0 ? -1 : 1) / (std::fabs(theta) + std::sqrt(theta * theta + 1));
				double c = 1 / std::sqrt(t * t + 1), s = t * c;
				for (int k = 0; k < n; k++) {
					double x = A(k, p), y = A(k, r);
					A(k, p) = c * x - s * y, A(k, r) = s * x + c * y;
				}
				for (int k = 0; k < n; k++) {
					double x = A(p, k), y = A(r, k);
					A(p, k) = c * x - s * y, A(r, k) = s * x + c * y;
				}
				for (int k = 0; k < n; k++) {
					double x = Q(k, p), y = Q(k, r);
					Q(k, p) = c * x - s * y, Q(k, r) = s * x + c * y;
				}
			}
		}
	}
	return false;
}

// need is how many elements of work the calls want: what the real ones want is of this order.
static int need(int n) { return std::max(2 * n * n, 1); }

template <class T> static int syevd(Handle *h, int vectors, int upper, int n, T *a, int lda, T *w, T *work, int lwork, int *info) {
	if (n < 0 || lda < std::max(1, n) || vectors != 1 || upper < 0 || upper > 1 || lwork < need(n)) return INVALID_VALUE;
	return later(h, [=] {
		T *A = at(a, size_t(lda) * (n - 1) + n), *W = at(w, n), *S = at(work, lwork);
		int *outcome = at(info, 1);
		if (!A || !W || !S || !outcome) return;
		std::fill(S, S + lwork, T(NAN)); // it may hold anything afterwards
		std::vector<double> full(size_t(n) * n), q(size_t(n) * n);
		for (int j = 0; j < n; j++)
			for (int i = 0; i < n; i++) {
				int r = upper ? std::min(i, j) : std::max(i, j), c = upper ? std::max(i, j) : std::min(i, j);
				full[i + size_t(j) * n] = A[r + size_t(c) * lda];
			}
		*outcome = jacobi(n, full, q) ? 0 : n;
		std::vector<int> order(n);
		std::iota(order.begin(), order.end(), 0);
		std::stable_sort(order.begin(), order.end(), [&](int x, int y) { return full[x + size_t(x) * n] < full[y + size_t(y) * n]; });
		for (int j = 0; j < n; j++) {
			W[j] = full[order[j] + size_t(order[j]) * n];
			for (int i = 0; i < n; i++) A[i + size_t(j) * lda] = q[i + size_t(order[j]) * n];
		}
	});
}

template <class T> static int potrf(Handle *h, int upper, int n, T *a, int lda, T *work, int lwork, int *info) {
	if (n < 0 || lda < std::max(1, n) || upper < 0 || upper > 1 || lwork < need(n)) return INVALID_VALUE;
	return later(h, [=] {
		T *A = at(a, size_t(lda) * (n - 1) + n), *S = at(work, lwork);
		int *outcome = at(info, 1);
		if (!A || !S || !outcome) return;
		std::fill(S, S + lwork, T(NAN));
		auto L = [&](int i, int j) -> T & { return upper ? A[j + size_t(i) * lda] : A[i + size_t(j) * lda]; };
		*outcome = 0;
		for (int j = 0; j < n; j++) {
			T d = L(j, j);
			for (int k = 0; k < j; k++) d -= L(j, k) * L(j, k);
			if (!(d > 0)) {
				*outcome = j + 1;
				return;
			}
			L(j, j) = std::sqrt(d);
			for (int i = j + 1; i < n; i++) {
				T s = L(i, j);
				for (int k = 0; k < j; k++) s -= L(i, k) * L(j, k);
				L(i, j) = s / L(j, j);
			}
		}
	});
}

#define PRECISION(letter, T)                                                                                                      \
	EXPORT int cusolverDn##letter##syevd_bufferSize(Handle *, int, int, int n, const T *, int, const T *, int *size) {               \
		return *size = need(n), SUCCESS;                                                                                             \
	}                                                                                                                               \
	EXPORT int cusolverDn##letter##syevd(Handle *h, int vectors, int upper, int n, T *a, int lda, T *w, T *work, int lwork, int *info) { \
		return syevd(h, vectors, upper, n, a, lda, w, work, lwork, info);                                                            \
	}                                                                                                                               \
	EXPORT int cusolverDn##letter##potrf_bufferSize(Handle *, int, int n, T *, int, int *size) {                                     \
		return *size = need(n), SUCCESS;                                                                                             \
	}                                                                                                                               \
	EXPORT int cusolverDn##letter##potrf(Handle *h, int upper, int n, T *a, int lda, T *work, int lwork, int *info) {                \
		return potrf(h, upper, n, a, lda, work, lwork, info);                                                                        \
	}
PRECISION(S, float)
PRECISION(D, double)
