package main

// kernels is the table. Every body follows the specification of the same name
// (nameRef in package vec) operation by operation.
func kernels() []*kernel {
	var ks []*kernel
	ks = append(ks, arithmetic()...)
	ks = append(ks, optimizer()...)
	ks = append(ks, network()...)
	return append(ks, reductions()...)
}

// mapping wraps a body without result.
func mapping(f func(b machine)) func(b machine) value {
	return func(b machine) value {
		f(b)
		return nil
	}
}

func arithmetic() []*kernel {
	xy := []string{"dst", "x", "y"}
	return []*kernel{
		{name: "fill", doc: "sets dst = alpha.", slices: []string{"dst"}, writes: "dst", scalars: []string{"alpha"}, unroll: 4,
			body: mapping(func(b machine) { b.st("dst", b.s("alpha")) })},
		{name: "add", doc: "sets dst = x + y.", slices: xy, writes: "dst", unroll: 4,
			body: mapping(func(b machine) { b.st("dst", b.add(b.ld("x"), b.ld("y"))) })},
		{name: "sub", doc: "sets dst = x - y.", slices: xy, writes: "dst", unroll: 4,
			body: mapping(func(b machine) { b.st("dst", b.sub(b.ld("x"), b.ld("y"))) })},
		{name: "mul", doc: "sets dst = x * y.", slices: xy, writes: "dst", unroll: 4,
			body: mapping(func(b machine) { b.st("dst", b.mul(b.ld("x"), b.ld("y"))) })},
		{name: "div", doc: "sets dst = x / y.", slices: xy, writes: "dst", unroll: 2,
			body: mapping(func(b machine) { b.st("dst", b.div(b.ld("x"), b.ld("y"))) })},
		{name: "mulAdd", doc: "sets dst = x*y + dst.", slices: xy, writes: "dst", unroll: 4,
			body: mapping(func(b machine) { b.st("dst", b.add(b.mul(b.ld("x"), b.ld("y")), b.ld("dst"))) })},
		{name: "axpby", doc: "sets dst = alpha*x + beta*dst.", slices: []string{"dst", "x"}, writes: "dst", scalars: []string{"alpha", "beta"}, unroll: 4,
			body: mapping(func(b machine) {
				b.st("dst", b.add(b.mul(b.ld("x"), b.s("alpha")), b.mul(b.ld("dst"), b.s("beta"))))
			})},
		{name: "axpy", doc: "sets dst = alpha*x + dst.", slices: []string{"dst", "x"}, writes: "dst", scalars: []string{"alpha"}, unroll: 4,
			body: mapping(func(b machine) { b.st("dst", b.add(b.mul(b.ld("x"), b.s("alpha")), b.ld("dst"))) })},
		{name: "scaleTo", doc: "sets dst = alpha*x.", slices: []string{"dst", "x"}, writes: "dst", scalars: []string{"alpha"}, unroll: 4,
			body: mapping(func(b machine) { b.st("dst", b.mul(b.ld("x"), b.s("alpha"))) })},
		{name: "scaledMul", doc: "sets dst = (alpha*x)*y.", slices: xy, writes: "dst", scalars: []string{"alpha"}, unroll: 4,
			body: mapping(func(b machine) { b.st("dst", b.mul(b.mul(b.ld("x"), b.s("alpha")), b.ld("y"))) })},
		{name: "scaledMulAdd", doc: "sets dst = (alpha*x)*y + r.", slices: []string{"dst", "r", "x", "y"}, writes: "dst", scalars: []string{"alpha"}, unroll: 4,
			body: mapping(func(b machine) {
				b.st("dst", b.add(b.mul(b.mul(b.ld("x"), b.s("alpha")), b.ld("y")), b.ld("r")))
			})},
		{name: "combine", doc: "sets dst = (alpha*x + beta*y) + gamma.", slices: xy, writes: "dst", scalars: []string{"alpha", "beta", "gamma"}, unroll: 4,
			body: mapping(func(b machine) {
				v := b.add(b.mul(b.ld("x"), b.s("alpha")), b.mul(b.ld("y"), b.s("beta")))
				b.st("dst", b.add(v, b.s("gamma")))
			})},
		{name: "center", doc: "sets dst = (x-mean)*inv.", slices: []string{"dst", "x"}, writes: "dst", scalars: []string{"mean", "inv"}, unroll: 4,
			body: mapping(func(b machine) { b.st("dst", b.mul(b.sub(b.ld("x"), b.s("mean")), b.s("inv"))) })},
		{name: "clamp", doc: "sets dst = min(max(x, lo), hi), NaN kept.", slices: []string{"dst", "x"}, writes: "dst", scalars: []string{"lo", "hi"}, unroll: 4,
			body: mapping(func(b machine) { b.st("dst", b.min(b.s("hi"), b.max(b.s("lo"), b.ld("x")))) })},
		{name: "clampGrad", doc: "sets dst = dy where lo <= x <= hi, 0 elsewhere.", slices: []string{"dst", "x", "dy"}, writes: "dst", scalars: []string{"lo", "hi"}, unroll: 2,
			body: mapping(func(b machine) { b.st("dst", b.inside(b.ld("dy"), b.ld("x"), b.s("lo"), b.s("hi"))) })},
		{name: "sqrt", doc: "sets dst = sqrt(x).", slices: []string{"dst", "x"}, writes: "dst", unroll: 2,
			body: mapping(func(b machine) { b.st("dst", b.sqrt(b.ld("x"))) })},
		{name: "invSqrt", doc: "sets dst = 1/sqrt(x).", slices: []string{"dst", "x"}, writes: "dst", unroll: 2,
			body: mapping(func(b machine) { b.st("dst", b.div(b.load("one"), b.sqrt(b.ld("x")))) })},
	}
}

func optimizer() []*kernel {
	return []*kernel{
		{name: "lerp", doc: "sets dst += w*(x-dst).", slices: []string{"dst", "x"}, writes: "dst", scalars: []string{"w"}, unroll: 4,
			body: mapping(func(b machine) {
				d := b.ld("dst")
				b.st("dst", b.add(d, b.mul(b.sub(b.ld("x"), d), b.s("w"))))
			})},
		{name: "lerpMul", doc: "sets dst = keep*dst + (w*x)*y.", slices: []string{"dst", "x", "y"}, writes: "dst", scalars: []string{"keep", "w"}, unroll: 4,
			body: mapping(func(b machine) {
				v := b.mul(b.mul(b.ld("x"), b.s("w")), b.ld("y"))
				b.st("dst", b.add(b.mul(b.ld("dst"), b.s("keep")), v))
			})},
		{name: "adamDirection", doc: "sets dst = (m*mscale) / (sqrt(v)*vscale + eps).", slices: []string{"dst", "m", "v"}, writes: "dst", scalars: []string{"mscale", "vscale", "eps"}, unroll: 2,
			body: mapping(func(b machine) {
				d := b.add(b.mul(b.sqrt(b.ld("v")), b.s("vscale")), b.s("eps"))
				b.st("dst", b.div(b.mul(b.ld("m"), b.s("mscale")), d))
			})},
		{name: "adamW", doc: "is one AdamW step; keep1 = 1-beta1 weighs the gradient, as keep2 its square.",
			slices: []string{"p", "grad", "m", "v"}, writes: "p m v",
			scalars: []string{"gscale", "beta1", "keep1", "beta2", "keep2", "decay", "step", "vscale", "eps"}, unroll: 2,
			body: mapping(func(b machine) {
				x := b.mul(b.ld("grad"), b.s("gscale"))
				m := b.add(b.mul(b.ld("m"), b.s("beta1")), b.mul(x, b.s("keep1")))
				b.st("m", m)
				v := b.add(b.mul(b.ld("v"), b.s("beta2")), b.mul(b.mul(x, b.s("keep2")), x))
				b.st("v", v)
				d := b.add(b.mul(b.sqrt(v), b.s("vscale")), b.s("eps"))
				q := b.div(b.mul(m, b.s("step")), d)
				b.st("p", b.sub(b.mul(b.ld("p"), b.s("decay")), q))
			})},
	}
}

func network() []*kernel {
	return []*kernel{
		{name: "swiGLU", doc: "sets dst = (gate / (1+exp(-gate))) * up.", slices: []string{"dst", "gate", "up"}, writes: "dst", unroll: 2,
			body: mapping(func(b machine) {
				z := b.ld("gate")
				e := b.add(b.exp(b.xor(z, "sign")), b.c("one"))
				b.st("dst", b.mul(b.div(z, e), b.ld("up")))
			})},
		{name: "swiGLUGrad", doc: "sets the gradients of gate and up.", slices: []string{"dgate", "dup", "gate", "up", "dout"}, writes: "dgate dup", unroll: 1,
			body: mapping(func(b machine) {
				z := b.ld("gate")
				one := b.load("one")
				s := b.div(one, b.add(b.exp(b.xor(z, "sign")), b.c("one")))
				silu := b.mul(z, s)
				slope := b.add(s, b.mul(silu, b.sub(one, s)))
				d := b.ld("dout")
				u := b.mul(d, b.ld("up"))
				b.st("dgate", b.mul(u, slope))
				b.st("dup", b.mul(d, silu))
			})},
		{name: "rotate", doc: "sets (da, db) = (a*c - b*s, b*c + a*s).", slices: []string{"da", "db", "a", "b", "c", "s"}, writes: "da db", unroll: 1,
			body: mapping(func(b machine) {
				x, y, c, s := b.ld("a"), b.ld("b"), b.ld("c"), b.ld("s")
				b.st("da", b.sub(b.mul(x, c), b.mul(y, s)))
				b.st("db", b.add(b.mul(y, c), b.mul(x, s)))
			})},
		{name: "unrotate", doc: "sets (da, db) = (a*c + b*s, b*c - a*s).", slices: []string{"da", "db", "a", "b", "c", "s"}, writes: "da db", unroll: 1,
			body: mapping(func(b machine) {
				x, y, c, s := b.ld("a"), b.ld("b"), b.ld("c"), b.ld("s")
				b.st("da", b.add(b.mul(x, c), b.mul(y, s)))
				b.st("db", b.sub(b.mul(y, c), b.mul(x, s)))
			})},
		{name: "softmaxGrad", doc: "sets dst = (p*alpha)*(dp-dot).", slices: []string{"dst", "p", "dp"}, writes: "dst", scalars: []string{"dot", "alpha"}, unroll: 4,
			body: mapping(func(b machine) {
				v := b.sub(b.ld("dp"), b.s("dot"))
				b.st("dst", b.mul(b.mul(b.ld("p"), b.s("alpha")), v))
			})},
		{name: "rmsNormGrad", doc: "sets dx = (dy*w)*alpha - x*beta and dw += dy*(x*alpha).",
			slices: []string{"dx", "dw", "dy", "x", "w"}, writes: "dx dw", scalars: []string{"alpha", "beta"}, unroll: 2,
			body: mapping(func(b machine) {
				dy, x := b.ld("dy"), b.ld("x")
				g := b.mul(b.mul(dy, b.ld("w")), b.s("alpha"))
				dw := b.add(b.mul(dy, b.mul(x, b.s("alpha"))), b.ld("dw"))
				b.st("dx", b.sub(g, b.mul(x, b.s("beta"))))
				b.st("dw", dw)
			})},
	}
}

func reductions() []*kernel {
	return []*kernel{
		{name: "sum", doc: "returns the sum of x.", slices: []string{"x"}, fold: add,
			body: func(b machine) value { return b.ld("x") }},
		{name: "dot", doc: "returns the sum of x*y.", slices: []string{"x", "y"}, fold: add,
			body: func(b machine) value { return b.mul(b.ld("x"), b.ld("y")) }},
		{name: "dot3", doc: "returns the sum of (x*y)*z.", slices: []string{"x", "y", "z"}, fold: add,
			body: func(b machine) value { return b.mul(b.mul(b.ld("x"), b.ld("y")), b.ld("z")) }},
		{name: "squaresAbout", doc: "returns the sum of (x-mean)².", slices: []string{"x"}, scalars: []string{"mean"}, fold: add,
			body: func(b machine) value {
				d := b.live(b.sub(b.ld("x"), b.s("mean")))
				return b.mul(d, d)
			}},
		{name: "expSum", doc: "sets dst = exp(x-shift) and returns the sum of dst.", slices: []string{"dst", "x"}, writes: "dst", scalars: []string{"shift"}, fold: add,
			body: func(b machine) value {
				e := b.exp(b.sub(b.ld("x"), b.s("shift")))
				b.st("dst", e)
				return b.live(e)
			}},
		{name: "sumSquares", doc: "returns the sum of x² in float64.", slices: []string{"x"}, fold: add64,
			body: func(b machine) value {
				return b.square64(b.ldDouble("x"))
			}},
		{name: "most", doc: "returns the largest element.", slices: []string{"x"}, fold: most,
			body: func(b machine) value { return b.ldOr("x", "neginf") }},
		{name: "absBits", doc: "returns the largest bit pattern of |x|.", slices: []string{"x"}, fold: umax,
			body: func(b machine) value { return b.and(b.ld("x"), "abs") }},
	}
}
