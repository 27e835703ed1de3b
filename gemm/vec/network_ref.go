package vec

import "github.com/asteria-runtime/asteria/gemm"

func softmaxGradRef[T gemm.Float](dst, p, dp []T, dot, alpha T) {
	for i := range dst {
		dst[i] = T(p[i]*alpha) * T(dp[i]-dot)
	}
}

func swiGLURef[T gemm.Float](dst, gate, up []T) {
	for i, z := range gate {
		dst[i] = T(z/(1+exp(-z))) * up[i]
	}
}

func swiGLUGradRef[T gemm.Float](dgate, dup, gate, up, dout []T) {
	for i, z := range gate {
		s := 1 / (1 + exp(-z))
		silu := T(z * s)
		d := dout[i]
		u := d * up[i]
		dgate[i] = u * T(s+T(silu*T(1-s)))
		dup[i] = d * silu
	}
}

func rotateRef[T gemm.Float](da, db, a, b, c, s []T) {
	for i := range da {
		x, y := a[i], b[i]
		da[i] = T(x*c[i]) - T(y*s[i])
		db[i] = T(y*c[i]) + T(x*s[i])
	}
}

func unrotateRef[T gemm.Float](da, db, a, b, c, s []T) {
	for i := range da {
		x, y := a[i], b[i]
		da[i] = T(x*c[i]) + T(y*s[i])
		db[i] = T(y*c[i]) - T(x*s[i])
	}
}

func rmsNormGradRef[T gemm.Float](dx, dw, dy, x, w []T, alpha, beta T) {
	for i, g := range dy {
		v := x[i]
		d := T(T(g*w[i])*alpha) - T(v*beta)
		dw[i] = T(g*T(v*alpha)) + dw[i]
		dx[i] = d
	}
}
