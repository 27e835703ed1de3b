package vec

import "github.com/asteria-runtime/asteria/gemm"

func lerpRef[T gemm.Float](dst, x []T, w T) {
	for i := range dst {
		dst[i] += T(w * T(x[i]-dst[i]))
	}
}

func lerpMulRef[T gemm.Float](dst, x, y []T, keep, w T) {
	for i := range dst {
		dst[i] = T(keep*dst[i]) + T(T(w*x[i])*y[i])
	}
}

func adamDirectionRef[T gemm.Float](dst, m, v []T, mscale, vscale, eps T) {
	for i := range dst {
		dst[i] = T(m[i]*mscale) / (T(root(v[i])*vscale) + eps)
	}
}

func adamWRef[T gemm.Float](p, g, m, v []T, gscale, beta1, keep1, beta2, keep2, decay, step, vscale, eps T) {
	for i := range p {
		x := g[i] * gscale
		m[i] = T(beta1*m[i]) + T(keep1*x)
		v[i] = T(beta2*v[i]) + T(T(keep2*x)*x)
		p[i] = T(p[i]*decay) - T(step*m[i])/(T(root(v[i])*vscale)+eps)
	}
}
