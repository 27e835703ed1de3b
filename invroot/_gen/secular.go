package main

import (
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The kernels of the secular equation, in float64. With AVX2 they handle whole
// vectors only; their callers finish the rest.

// masked reports whether partial vectors are handled here.
func (g *gen) masked() bool { return g.bytes == 64 }

// one returns 1 in all lanes.
func (g *gen) one() reg.VecVirtual {
	bits := g.GP64()
	g.MOVQ(operand.U64(0x3ff0000000000000), bits)
	x, v := g.XMM(), g.vec()
	g.VMOVQ(bits, x)
	g.VBROADCASTSD(x, v)
	return v
}

// reciprocal sets r = 1/x to one unit in the last place. With AVX-512 it
// refines the 14-bit estimate by two Newton steps, r += r*(1-x*r): less than
// half the time of a division. x must not be denormal. Lanes beyond a tail may
// hold anything.
func (g *gen) reciprocal(x, one, r reg.VecVirtual) {
	if g.bytes == 32 {
		g.VDIVPD(x, one, r)
		return
	}
	estimate, err := g.vec(), g.vec()
	g.VRCP14PD(x, estimate)
	for range 2 {
		g.VMOVAPD(one, err)
		g.VFNMADD231PD(x, estimate, err)
		g.VFMADD231PD(err, estimate, estimate)
	}
	g.VMOVAPD(estimate, r)
}

// quotient is reciprocal with x = 1 in the lanes beyond a tail, so that those
// are finite too.
func (g *gen) quotient(x, one, r reg.VecVirtual, t *tail) {
	if t == nil {
		g.reciprocal(x, one, r)
		return
	}
	whole := g.vec()
	g.VMOVAPD(one, whole)
	g.VMOVAPD(x, t.k, whole)
	g.reciprocal(whole, one, r)
}

// secular: sums of z2/((d-origin)-offset) and of z2/((d-origin)-offset)².
func (g *gen) secular() {
	e := double
	g.begin(e, "Secular", "(n int, d, z2 *float64, origin, offset float64, out *float64)")
	n, d, z := g.ptr("n"), g.ptr("d"), g.ptr("z2")
	origin, offset, one := g.splat(e, "origin"), g.splat(e, "offset"), g.one()
	sum, slope := g.zero(), g.zero()
	g.loop(e, "secular", n, g.masked(), func(t *tail) {
		r, w := g.vec(), g.vec()
		g.load(e, operand.Mem{Base: d}, r, t)
		g.load(e, operand.Mem{Base: z}, w, t)
		g.VSUBPD(origin, r, r)
		g.VSUBPD(offset, r, r)
		g.quotient(r, one, r, t)
		g.VMULPD(r, w, w)
		g.VADDPD(w, sum, sum)
		g.VFMADD231PD(w, r, slope)
	}, d, z)
	out := g.ptr("out")
	g.storeLow(e, g.reduce(e, sum), operand.Mem{Base: out})
	g.storeLow(e, g.reduce(e, slope), operand.Mem{Base: out, Disp: 8})
	g.end()
}

// loewner: prod *= ((origin-d)+offset)/(pole-d).
func (g *gen) loewner() {
	e := double
	g.begin(e, "Loewner", "(n int, prod, d *float64, origin, offset, pole float64)")
	n, prod, d := g.ptr("n"), g.ptr("prod"), g.ptr("d")
	origin, offset, pole, one := g.splat(e, "origin"), g.splat(e, "offset"), g.splat(e, "pole"), g.one()
	g.loop(e, "loewner", n, g.masked(), func(t *tail) {
		v, a, b := g.vec(), g.vec(), g.vec()
		g.load(e, operand.Mem{Base: d}, v, t)
		g.VSUBPD(v, origin, a)
		g.VADDPD(offset, a, a)
		g.VSUBPD(v, pole, b)
		g.quotient(b, one, b, t)
		g.VMULPD(b, a, a)
		g.load(e, operand.Mem{Base: prod}, b, t)
		g.VMULPD(b, a, a)
		g.store(e, a, operand.Mem{Base: prod}, t)
	}, prod, d)
	g.end()
}

// vector: out = z/((d-origin)-offset) and the sum of squares, for either
// element type of out.
func (g *gen) vector(e elem) {
	f := double
	g.Function(e.prefix + "Vector" + g.isa.name)
	g.Attributes(build.NOSPLIT)
	signature := "(n int, out *" + e.typ + ", d, z *float64, origin, offset float64, sum *float64)"
	g.SignatureExpr("func" + signature)
	g.decl.WriteString("//go:noescape\nfunc " + e.prefix + "Vector" + g.isa.name + signature + "\n\n")
	n, out, d, z := g.ptr("n"), g.ptr("out"), g.ptr("d"), g.ptr("z")
	origin, offset, one := g.splat(f, "origin"), g.splat(f, "offset"), g.one()
	sum := g.zero()
	g.loop(f, "vector", n, g.masked(), func(t *tail) {
		r, w := g.vec(), g.vec()
		g.load(f, operand.Mem{Base: d}, r, t)
		g.load(f, operand.Mem{Base: z}, w, t)
		g.VSUBPD(origin, r, r)
		g.VSUBPD(offset, r, r)
		g.quotient(r, one, r, t)
		g.VMULPD(r, w, w)
		g.VFMADD231PD(w, w, sum)
		switch {
		case e.size == 8:
			g.store(f, w, operand.Mem{Base: out}, t)
		case g.bytes == 64 && t != nil:
			h := g.YMM()
			g.VCVTPD2PS(w, h)
			g.VMOVUPS(h, t.k, operand.Mem{Base: out})
		case g.bytes == 64:
			h := g.YMM()
			g.VCVTPD2PS(w, h)
			g.VMOVUPS(h, operand.Mem{Base: out})
		default:
			h := g.XMM()
			g.VCVTPD2PSY(w, h)
			g.VMOVUPS(h, operand.Mem{Base: out})
		}
		g.ADDQ(operand.Imm(uint64(g.bytes*e.size/8)), out)
	}, d, z)
	g.storeLow(f, g.reduce(f, sum), operand.Mem{Base: g.ptr("sum")})
	g.end()
}
