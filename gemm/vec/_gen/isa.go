package main

import (
	"math"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// isa is one instruction set; lanes counts float32 elements of a register.
type isa struct {
	name  string
	lanes int
	wide  bool // AVX-512: opmasks instead of vector masks
}

var (
	avx512 = isa{name: "AVX512", lanes: 16, wide: true}
	avx2   = isa{name: "AVX2", lanes: 8}
)

func (s *isa) vec() reg.VecVirtual {
	if s.wide {
		return ZMM()
	}
	return YMM()
}

// constants are stored 16 times each, so that both widths use them as memory
// operands. The polynomial interpolates (exp(r)-1-r)/r² at the Chebyshev nodes
// of |r| <= ln(2)/2: relative error of exp 1.1e-8.
var constants = []struct {
	name string
	bits uint32
}{
	{"log2e", 0x3fb8aa3b},
	{"magic", 0x4b400000}, // 1.5*2^23: adding it rounds to an integer
	{"ln2hi", 0x3f318000}, // 355/512: its product with an 8-bit integer is exact
	{"ln2lo", math.Float32bits(-2.12194440e-4)},
	{"exp4", 0x3ab68885}, {"exp3", 0x3c0905b7}, {"exp2", 0x3d2aaa8d},
	{"exp1", 0x3e2aaa6e}, {"exp0", 0x3f000000},
	{"one", 0x3f800000},
	{"expmax", math.Float32bits(89)},
	{"expmin", math.Float32bits(-104)},
	{"bias", 127},
	{"abs", 0x7fffffff},
	{"sign", 0x80000000},
	{"neginf", 0xff800000},
}

var data = map[string]operand.Mem{}

func declareData() {
	for _, c := range constants {
		m := GLOBL("vec_"+c.name, attr.RODATA|attr.NOPTR)
		for i := range 16 {
			DATA(4*i, operand.U32(c.bits))
		}
		data[c.name] = m
	}
	// A window of this table that starts 4*(64-n) bytes in masks n of 64 lanes.
	m := GLOBL("vec_mask", attr.RODATA|attr.NOPTR)
	for i := range 128 {
		v := uint32(0)
		if i < 64 {
			v = math.MaxUint32
		}
		DATA(4*i, operand.U32(v))
	}
	data["mask"] = m
}

// body is one unrolled piece of a kernel: it works on the vector at byte offset
// disp from the element pointers, in full or under a mask.
type body struct {
	*isa
	masked bool
	k      reg.OpmaskVirtual // AVX-512 mask
	m      reg.VecVirtual    // AVX2 mask
	ptr    map[string]reg.GPVirtual
	scalar map[string]reg.VecVirtual
	idx    reg.GPVirtual
	disp   int
	parity int // which of the two halves of a float64 vector step
}

func (b *body) addr(name string) operand.Mem {
	return operand.Mem{Base: b.ptr[name], Index: b.idx, Scale: 1, Disp: b.disp}
}

func (b *body) ld(name string) value { return b.read(name) }

// read loads the vector at this place.
func (b *body) read(name string) reg.VecVirtual {
	v := b.vec()
	switch {
	case !b.masked:
		VMOVUPS(b.addr(name), v)
	case b.wide:
		VMOVUPS_Z(b.addr(name), b.k, v)
	default:
		VMASKMOVPS(b.addr(name), b.m, v)
	}
	return v
}

func (b *body) ldOr(name, fill string) value {
	if !b.masked {
		return b.ld(name)
	}
	v := b.vec()
	if b.wide {
		VMOVUPS(data[fill], v)
		VMOVUPS(b.addr(name), b.k, v)
		return v
	}
	x := b.read(name)
	f := b.vec()
	VMOVUPS(data[fill], f)
	VBLENDVPS(b.m, x, f, v)
	return v
}

func (b *body) ldDouble(name string) value {
	v := b.vec()
	switch {
	case !b.masked:
		VCVTPS2PD(b.addr(name), v)
	case b.wide:
		VCVTPS2PD_Z(b.addr(name), b.k, v)
	default:
		x := XMM()
		VMASKMOVPS(b.addr(name), b.m.AsX(), x)
		VCVTPS2PD(x, v)
	}
	return v
}

func (b *body) st(name string, v value) {
	switch {
	case !b.masked:
		VMOVUPS(v, b.addr(name))
	case b.wide:
		VMOVUPS(v, b.k, b.addr(name))
	default:
		VMASKMOVPS(v, b.m, b.addr(name))
	}
}

func (b *body) live(v value) value {
	if !b.masked {
		return v
	}
	w := b.vec()
	if b.wide {
		VMOVAPS_Z(v, b.k, w)
	} else {
		VANDPS(b.m, v, w)
	}
	return w
}

func (b *body) s(name string) value { return b.scalar[name] }
func (b *body) c(name string) value { return data[name] }

func (b *body) op3(f func(...operand.Op), x, y value) value {
	v := b.vec()
	f(y, x, v)
	return v
}

// The first operand of sub and div is the left one; it must be a register. The
// commutative operations want the memory operand second too.
func (b *body) add(x, y value) value { return b.op3(VADDPS, x, y) }
func (b *body) sub(x, y value) value { return b.op3(VSUBPS, x, y) }
func (b *body) mul(x, y value) value { return b.op3(VMULPS, x, y) }
func (b *body) div(x, y value) value { return b.op3(VDIVPS, x, y) }

func (b *body) max(x, y value) value { return b.op3(VMAXPS, x, y) }
func (b *body) min(x, y value) value { return b.op3(VMINPS, x, y) }

func (b *body) sqrt(x value) value {
	v := b.vec()
	VSQRTPS(x, v)
	return v
}

func (b *body) square64(x value) value {
	v := b.vec()
	VMULPD(x, x, v)
	return v
}

func (b *body) load(name string) value {
	v := b.vec()
	VMOVUPS(data[name], v)
	return v
}

func (b *body) xor(x value, name string) value {
	v := b.vec()
	if b.wide {
		VPXORD(data[name], x, v)
	} else {
		VXORPS(data[name], x, v)
	}
	return v
}

func (b *body) and(x value, name string) value {
	v := b.vec()
	if b.wide {
		VPANDD(data[name], x, v)
	} else {
		VANDPS(data[name], x, v)
	}
	return v
}

func (b *body) inside(x, y, lo, hi value) value {
	const notLess, notGreater = operand.U8(0x15), operand.U8(0x1a)
	v := b.vec()
	if b.wide {
		k := K()
		VCMPPS(notLess, lo, y, k)
		k2 := K()
		VCMPPS(notGreater, hi, y, k2)
		KANDW(k, k2, k)
		VMOVAPS_Z(x, k, v)
		return v
	}
	m, m2 := YMM(), YMM()
	VCMPPS(notLess, lo, y, m)
	VCMPPS(notGreater, hi, y, m2)
	VANDPS(m, m2, m)
	VANDPS(m, x, v)
	return v
}

func (b *body) exp(x value) value {
	const notLess = operand.U8(0x15) // unordered counts as true: NaN goes on
	y := b.vec()
	var k reg.OpmaskVirtual
	var m reg.VecVirtual
	hi := b.load("expmax")
	if b.wide {
		k = K()
		VCMPPS(notLess, data["expmin"], x, k)
		VMINPS_Z(x, hi, k, y)
	} else {
		m = YMM()
		VCMPPS(notLess, data["expmin"], x, m)
		VMINPS(x, hi, y)
		VANDPS(m, y, y)
	}
	p, n, t := expPolynomial(b, y)
	if b.wide {
		v := b.vec()
		VSCALEFPS_Z(n, p, k, v)
		return v
	}
	return b.scale(p, t, m)
}

// scale multiplies p by 2^n in two steps, n being the low bits of t, and clears
// the lanes outside m. The first product is exact.
func (b *body) scale(p, t, m value) value {
	n, h := YMM(), YMM()
	VPSUBD(data["magic"], t, n)
	VPSRAD(operand.U8(1), n, h)
	VPSUBD(h, n, n)
	for _, v := range []reg.VecVirtual{h, n} {
		VPADDD(data["bias"], v, v)
		VPSLLD(operand.U8(23), v, v)
		p = b.mul(p, v)
	}
	v := YMM()
	VANDPS(m, p, v)
	return v
}
