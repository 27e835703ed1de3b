package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// dots: out[i] = row i of a · x for a few rows, lda in bytes.
func (g *gen) dots(e elem, count int) {
	g.begin(e, fmt.Sprintf("Dots%d", count), "(n int, a *%T, lda int, x, out *%T)")
	n, x := g.ptr("n"), g.ptr("x")
	p := g.rows(count, g.ptr("a"), g.ptr("lda"))
	if count == 1 {
		g.dotOne(e, n, p[0], x)
		return
	}
	sums := make([]reg.VecVirtual, count)
	for i := range sums {
		sums[i] = g.zero()
	}
	xv := g.vec()
	g.loop(e, "dots", n, true, func(t *tail) {
		g.load(e, operand.Mem{Base: x}, xv, t)
		for i := range p {
			if t == nil {
				g.fma(e, operand.Mem{Base: p[i]}, xv, sums[i])
				continue
			}
			r := g.vec()
			g.load(e, operand.Mem{Base: p[i]}, r, t)
			g.fma(e, r, xv, sums[i])
		}
	}, append([]reg.GPVirtual{x}, p...)...)
	out := g.ptr("out")
	for i := range sums {
		g.storeLow(e, g.reduce(e, sums[i]), operand.Mem{Base: out, Disp: e.size * i})
	}
	g.end()
}

// dotOne uses four sums, so that the latency of one does not bound the speed.
func (g *gen) dotOne(e elem, n, a, x reg.GPVirtual) {
	sums := make([]reg.VecVirtual, 4)
	for i := range sums {
		sums[i] = g.zero()
	}
	v := g.vec()
	four := uint64(4 * g.lanes(e))
	g.SUBQ(operand.Imm(four), n)
	g.JL(operand.LabelRef("rest"))
	g.Label("four")
	for i := range sums {
		g.load(e, operand.Mem{Base: x, Disp: g.bytes * i}, v, nil)
		g.fma(e, operand.Mem{Base: a, Disp: g.bytes * i}, v, sums[i])
	}
	g.ADDQ(operand.U32(4*g.bytes), x)
	g.ADDQ(operand.U32(4*g.bytes), a)
	g.SUBQ(operand.Imm(four), n)
	g.JGE(operand.LabelRef("four"))
	g.Label("rest")
	g.ADDQ(operand.Imm(four), n)
	g.loop(e, "one", n, true, func(t *tail) {
		g.load(e, operand.Mem{Base: x}, v, t)
		r := g.vec()
		g.load(e, operand.Mem{Base: a}, r, t)
		g.fma(e, r, v, sums[0])
	}, x, a)
	g.add(e, sums[1], sums[0], sums[0])
	g.add(e, sums[3], sums[2], sums[2])
	g.add(e, sums[2], sums[0], sums[0])
	g.storeLow(e, g.reduce(e, sums[0]), operand.Mem{Base: g.ptr("out")})
	g.end()
}

// axpys: y += Σ c[i]*row i of a for a few rows, lda in bytes.
func (g *gen) axpys(e elem, count int) {
	g.begin(e, fmt.Sprintf("Axpys%d", count), "(n int, c, a *%T, lda int, y *%T)")
	n, y, c := g.ptr("n"), g.ptr("y"), g.ptr("c")
	p := g.rows(count, g.ptr("a"), g.ptr("lda"))
	coef := make([]reg.VecVirtual, count)
	for i := range coef {
		coef[i] = g.splatAt(e, operand.Mem{Base: c, Disp: e.size * i})
	}
	g.loop(e, "axpys", n, true, func(t *tail) {
		v := g.vec()
		g.load(e, operand.Mem{Base: y}, v, t)
		for i := range p {
			if t == nil {
				g.fma(e, operand.Mem{Base: p[i]}, coef[i], v)
				continue
			}
			r := g.vec()
			g.load(e, operand.Mem{Base: p[i]}, r, t)
			g.fma(e, r, coef[i], v)
		}
		g.store(e, v, operand.Mem{Base: y}, t)
	}, append([]reg.GPVirtual{y}, p...)...)
	g.end()
}

// symv handles a few rows of a symmetric product: over the first n columns,
// whole vectors, y += Σ xi[i]*row i and sums; over the next diag columns sums
// only. Then out[i] += sum i. Each element of the matrix is read once.
func (g *gen) symv(e elem, count int) {
	g.begin(e, fmt.Sprintf("Symv%d", count), "(n, diag int, a *%T, lda int, x, y, xi, out *%T)")
	n, x, y, xi := g.ptr("n"), g.ptr("x"), g.ptr("y"), g.ptr("xi")
	p := g.rows(count, g.ptr("a"), g.ptr("lda"))
	coef, sums := make([]reg.VecVirtual, count), make([]reg.VecVirtual, count)
	for i := range coef {
		coef[i] = g.splatAt(e, operand.Mem{Base: xi, Disp: e.size * i})
		sums[i] = g.zero()
	}
	xv := g.vec()
	all := append([]reg.GPVirtual{x}, p...)
	g.loop(e, "both", n, false, func(*tail) {
		var chain [2]reg.VecVirtual // two sums for y halve the latency of a column
		chain[0], chain[1] = g.vec(), g.vec()
		g.load(e, operand.Mem{Base: x}, xv, nil)
		g.load(e, operand.Mem{Base: y}, chain[0], nil)
		for i := range p {
			r := g.vec()
			g.load(e, operand.Mem{Base: p[i]}, r, nil)
			g.fma(e, r, xv, sums[i])
			if i == 1 {
				g.mul(e, r, coef[i], chain[1])
			} else {
				g.fma(e, r, coef[i], chain[i&1])
			}
		}
		if count > 1 {
			g.add(e, chain[1], chain[0], chain[0])
		}
		g.store(e, chain[0], operand.Mem{Base: y}, nil)
	}, append(all, y)...)
	diag := g.ptr("diag")
	g.loop(e, "own", diag, true, func(t *tail) {
		g.load(e, operand.Mem{Base: x}, xv, t)
		for i := range p {
			r := g.vec()
			g.load(e, operand.Mem{Base: p[i]}, r, t)
			g.fma(e, r, xv, sums[i])
		}
	}, all...)
	out := g.ptr("out")
	for i := range sums {
		s := g.reduce(e, sums[i])
		m := operand.Mem{Base: out, Disp: e.size * i}
		if e.size == 4 {
			g.VADDSS(m, s.AsX(), s.AsX())
		} else {
			g.VADDSD(m, s.AsX(), s.AsX())
		}
		g.storeLow(e, s, m)
	}
	g.end()
}

// rotate: x, y = c*x+s*y, c*y-s*x.
func (g *gen) rotate(e elem) {
	g.begin(e, "Rotate", "(n int, x, y *%T, c, s %T)")
	n, x, y := g.ptr("n"), g.ptr("x"), g.ptr("y")
	c, s := g.splat(e, "c"), g.splat(e, "s")
	g.loop(e, "rotate", n, true, func(t *tail) {
		xv, yv, a, b := g.vec(), g.vec(), g.vec(), g.vec()
		g.load(e, operand.Mem{Base: x}, xv, t)
		g.load(e, operand.Mem{Base: y}, yv, t)
		if e.size == 4 {
			g.VMULPS(xv, c, a)
			g.VMULPS(yv, c, b)
			g.VFMADD231PS(yv, s, a)
			g.VFNMADD231PS(xv, s, b)
		} else {
			g.VMULPD(xv, c, a)
			g.VMULPD(yv, c, b)
			g.VFMADD231PD(yv, s, a)
			g.VFNMADD231PD(xv, s, b)
		}
		g.store(e, a, operand.Mem{Base: x}, t)
		g.store(e, b, operand.Mem{Base: y}, t)
	}, x, y)
	g.end()
}
