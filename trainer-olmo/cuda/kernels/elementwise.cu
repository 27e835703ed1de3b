// The element-wise operations and reductions of kron.Ops, in single and double
// precision. The Go code of gemm/vec is their specification. Sums are taken in
// double precision, in an order that the shape alone fixes.
#include "kernel.h"

// EACH visits i = 0..n-1 with all threads of the launch.
#define EACH(i, n) for (long i = BLOCK * THREADS + THREAD; i < (n); i += BLOCKS * THREADS)

// BOTH defines a kernel for float and for double; T stands for the type.
#define BOTH(name, parameters, ...)                  \
	namespace name##_in_f32 { typedef float T;         \
	KERNEL void name##_f32 parameters __VA_ARGS__           \
	REGISTER(name##_f32) }                             \
	namespace name##_in_f64 { typedef double T;        \
	KERNEL void name##_f64 parameters __VA_ARGS__           \
	REGISTER(name##_f64) }
#define BOTH_BARRIER(name, parameters, ...)          \
	namespace name##_in_f32 { typedef float T;         \
	KERNEL void name##_f32 parameters __VA_ARGS__           \
	REGISTER_BARRIER(name##_f32) }                     \
	namespace name##_in_f64 { typedef double T;        \
	KERNEL void name##_f64 parameters __VA_ARGS__           \
	REGISTER_BARRIER(name##_f64) }

BOTH(axpby, (long n, T alpha, const T *x, T beta, T *y), {
	EACH(i, n) y[i] = alpha * x[i] + beta * y[i];
})

BOTH(scale, (long n, T alpha, T *x), {
	EACH(i, n) x[i] *= alpha;
})

BOTH(lerp, (long n, T *y, const T *x, T w), {
	EACH(i, n) y[i] += w * (x[i] - y[i]);
})

BOTH(lerp_square, (long n, T *y, const T *x, T w), {
	EACH(i, n) y[i] = (1 - w) * y[i] + w * (x[i] * x[i]);
})

BOTH(adam_direction, (long n, T *dst, const T *m, const T *v, T mscale, T vscale, T eps), {
	EACH(i, n) dst[i] = m[i] * mscale / (square_root(v[i]) * vscale + eps);
})

// dst[p,i] = m[p,i] / (sqrt(v[i])*s[p] + eps)
BOTH(whiten_rows, (long rows, long n, T *dst, const T *m, const T *s, const T *v, T eps), {
	EACH(e, rows * n) dst[e] = m[e] / (square_root(v[e % n]) * s[e / n] + eps);
})

// x[p,i,q] *= s[i]
BOTH(scale_mode, (long pre, long n, long post, T *x, const T *s), {
	EACH(e, pre * n * post) x[e] *= s[e / post % n];
})

// dst[p,i,q] = x[p,perm[i],q]
BOTH(permute_mode, (long pre, long n, long post, T *dst, const T *x, const long *perm), {
	EACH(e, pre * n * post) {
		long q = e % post, i = e / post % n, p = e / post / n;
		dst[e] = x[(p * n + perm[i]) * post + q];
	}
})

// reduce adds the 256 threads' sums as a tree; every thread gets the total.
DEVICE double reduce(double *tile, double sum) {
	tile[THREAD] = sum;
	BARRIER();
	for (long half = 128; half > 0; half /= 2) {
		if (THREAD < half) tile[THREAD] += tile[THREAD + half];
		BARRIER();
	}
	double total = tile[0];
	BARRIER();
	return total;
}

// partial[b] = sum of x² over the b-th chunk of as many elements
BOTH_BARRIER(sum_squares, (long n, long chunk, const T *x, double *partial), {
	SHARED double tile[256];
	long end = (BLOCK + 1) * chunk < n ? (BLOCK + 1) * chunk : n;
	double sum = 0;
	for (long i = BLOCK * chunk + THREAD; i < end; i += 256) sum += double(x[i]) * double(x[i]);
	sum = reduce(tile, sum);
	if (THREAD == 0) partial[BLOCK] = sum;
})

// dst[i] = sum over p and q of (before[p]*x[p,i,q]*after[q])², one block an i
BOTH_BARRIER(squares_mode, (long pre, long n, long post, T *dst, const T *x, const T *before, const T *after), {
	SHARED double tile[256];
	for (long i = BLOCK; i < n; i += BLOCKS) {
		double sum = 0;
		for (long e = THREAD; e < pre * post; e += 256) {
			long p = e / post, q = e % post;
			double v = double(before[p]) * double(x[(p * n + i) * post + q]) * double(after[q]);
			sum += v * v;
		}
		sum = reduce(tile, sum);
		if (THREAD == 0) dst[i] = T(sum);
	}
})

// dst[j] = sum over i of x[i,j]*y[i,j], one block a column
BOTH_BARRIER(column_dots, (long n, double *dst, const T *x, const T *y), {
	SHARED double tile[256];
	for (long j = BLOCK; j < n; j += BLOCKS) {
		double sum = 0;
		for (long i = THREAD; i < n; i += 256) sum += double(x[i * n + j]) * double(y[i * n + j]);
		sum = reduce(tile, sum);
		if (THREAD == 0) dst[j] = sum;
	}
})

// worst[i] = max over j of |x[i,j] - (i == j)|; not a number stays one
BOTH_BARRIER(identity_error, (long n, double *worst, const T *x), {
	SHARED double tile[256];
	for (long i = BLOCK; i < n; i += BLOCKS) {
		double m = 0;
		for (long j = THREAD; j < n; j += 256) {
			double d = double(x[i * n + j]) - (i == j ? 1 : 0);
			if (d < 0) d = -d;
			if (m == m && !(d <= m)) m = d;
		}
		tile[THREAD] = m;
		BARRIER();
		if (THREAD == 0) {
			for (int t = 1; t < 256; t++)
				if (m == m && !(tile[t] <= m)) m = tile[t];
			worst[i] = m;
		}
		BARRIER();
	}
})

// full m = factor*a + diagonal*I of the lower triangle of a
BOTH(load_symmetric, (long n, T *m, const T *a, T factor, T diagonal), {
	EACH(e, n * n) {
		long i = e / n, j = e % n;
		m[e] = factor * (i >= j ? a[i * n + j] : a[j * n + i]) + (i == j ? diagonal : T(0));
	}
})

// load_symmetric into double precision, without a diagonal to add
BOTH(widen_symmetric, (long n, double *m, const T *a, double factor), {
	EACH(e, n * n) {
		long i = e / n, j = e % n;
		m[e] = factor * double(i >= j ? a[i * n + j] : a[j * n + i]);
	}
})

// y = x rounded to T
BOTH(narrow, (long n, T *y, const double *x), {
	EACH(i, n) y[i] = T(x[i]);
})

// t = diagonal*I + factor*m
BOTH(shifted, (long n, T *t, const T *m, T factor, T diagonal), {
	EACH(e, n * n) t[e] = factor * m[e] + (e / n == e % n ? diagonal : T(0));
})

// y = (x + xᵀ)/2
BOTH(symmetrize, (long n, T *y, const T *x), {
	EACH(e, n * n) {
		long i = e / n, j = e % n;
		y[e] = i == j ? x[e] : (x[e] + x[j * n + i]) / 2;
	}
})

// x[i,j] *= s[j]
BOTH(scale_columns, (long n, T *x, const T *s), {
	EACH(e, n * n) x[e] *= s[e % n];
})
