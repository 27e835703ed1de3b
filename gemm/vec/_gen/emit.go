package main

import (
	"strings"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// fold says how a reduction combines its lanes and its chunks.
type fold int

const (
	none  fold = iota
	add        // float32 sum over 64 lanes
	add64      // float64 sum over 32 lanes
	most       // float32 maximum, NaN kept
	umax       // maximum of bit patterns
)

// kernel is one entry of the table. Reads and writes name the slices; the first
// in order gives the length.
type kernel struct {
	name    string
	doc     string
	slices  []string // parameter order
	writes  string   // names that are written, blank separated
	scalars []string
	unroll  int
	fold    fold
	body    func(b machine) value // the contribution of a reduction
}

func (k *kernel) result() string {
	return map[fold]string{add: "float32", add64: "float64", most: "float32", umax: "uint32"}[k.fold]
}

func (k *kernel) signature() string {
	s := "func(" + strings.Join(k.slices, ", ") + " *float32, n int"
	if len(k.scalars) > 0 {
		s += ", " + strings.Join(k.scalars, ", ") + " float32"
	}
	s += ")"
	if r := k.result(); r != "" {
		s += " (sum " + r + ")"
	}
	return s
}

func emit(k *kernel, s *isa) {
	TEXT(k.name+s.name, attr.NOSPLIT, k.signature())
	Doc(k.name + s.name + " " + k.doc)
	Pragma("noescape")
	b := &body{isa: s, ptr: map[string]reg.GPVirtual{}, scalar: map[string]reg.VecVirtual{}}
	for _, p := range k.slices {
		b.ptr[p] = GP64()
		Load(Param(p), b.ptr[p])
	}
	n := GP64()
	Load(Param("n"), n)
	for _, p := range k.scalars {
		v := s.vec()
		a, err := Param(p).Resolve()
		if err != nil {
			panic(err)
		}
		VBROADCASTSS(a.Addr, v)
		b.scalar[p] = v
	}
	b.idx = GP64()
	XORQ(b.idx, b.idx)
	if k.fold == none {
		emitMap(k, b, n)
	} else {
		emitReduce(k, b, n)
	}
	VZEROUPPER()
	RET()
}

// emitMap runs the body over whole groups, then whole vectors, then the tail.
func emitMap(k *kernel, b *body, n reg.GPVirtual) {
	loop := func(label string, vectors int) {
		lanes := vectors * b.lanes
		Label(label)
		CMPQ(n, operand.U32(uint32(lanes)))
		JL(operand.LabelRef(label + "_done"))
		for u := range vectors {
			b.disp = 4 * b.lanes * u
			k.body(b)
		}
		b.disp = 0
		ADDQ(operand.U32(uint32(4*lanes)), b.idx)
		SUBQ(operand.U32(uint32(lanes)), n)
		JMP(operand.LabelRef(label))
		Label(label + "_done")
	}
	if k.unroll > 1 {
		loop("group", k.unroll)
	}
	loop("single", 1)
	TESTQ(n, n)
	JZ(operand.LabelRef("done"))
	masks := b.masks(n, b.lanes)
	masks(0)
	k.body(b)
	Label("done")
}

// masks prepares masks for the last n elements and returns a function that puts
// the one of vector j, per lanes apart, into force.
func (b *body) masks(n reg.GPVirtual, per int) func(j int) {
	b.masked = true
	if b.wide {
		bits := GP64()
		MOVQ(operand.I32(-1), bits)
		cnt := GP64()
		MOVQ(n, cnt)
		SHLXQ(cnt, bits, bits)
		NOTQ(bits)
		return func(j int) {
			b.k = K()
			KMOVW(bits.As32(), b.k)
			SHRQ(operand.U8(per), bits)
		}
	}
	base, off := GP64(), GP64()
	LEAQ(data["mask"].Offset(4*64), base)
	MOVQ(n, off)
	NEGQ(off)
	return func(j int) {
		b.m = YMM()
		VMOVUPS(operand.Mem{Base: base, Index: off, Scale: 4, Disp: 4 * per * j}, b.m)
	}
}

// emitReduce keeps element i of a chunk in lane i%64 (i%32 for float64), on
// either width, and folds the lanes in halves.
func emitReduce(k *kernel, b *body, n reg.GPVirtual) {
	lanes, per := 64, b.lanes
	if k.fold == add64 {
		lanes, per = 32, b.lanes/2
	}
	acc := make([]reg.VecVirtual, lanes/per)
	var nan reg.VecVirtual
	for j := range acc {
		acc[j] = b.vec()
		if k.fold == most {
			VMOVUPS(data["neginf"], acc[j])
		} else {
			VXORPS(acc[j].AsX(), acc[j].AsX(), acc[j].AsX())
		}
	}
	if k.fold == most {
		nan = b.vec()
		VXORPS(nan.AsX(), nan.AsX(), nan.AsX())
	}
	step := func(j int) {
		b.disp = 4 * per * j
		b.accumulate(k, acc[j], nan)
		b.disp = 0
	}
	Label("group")
	CMPQ(n, operand.U32(uint32(lanes)))
	JL(operand.LabelRef("group_done"))
	for j := range acc {
		step(j)
	}
	ADDQ(operand.U32(uint32(4*lanes)), b.idx)
	SUBQ(operand.U32(uint32(lanes)), n)
	JMP(operand.LabelRef("group"))
	Label("group_done")
	TESTQ(n, n)
	JZ(operand.LabelRef("fold"))
	masks := b.masks(n, per)
	for j := range acc {
		if j > 0 {
			// Whole vectors past the end are skipped: most rows are short.
			CMPQ(n, operand.U32(uint32(per*j)))
			JLE(operand.LabelRef("fold"))
		}
		masks(j)
		step(j)
	}
	b.masked = false
	Label("fold")
	b.finish(k, acc, nan)
}

func (b *body) accumulate(k *kernel, acc, nan reg.VecVirtual) {
	v := k.body(b).(reg.VecVirtual)
	switch k.fold {
	case add:
		VADDPS(v, acc, acc)
	case add64:
		VADDPD(v, acc, acc)
	case most:
		// v-v is 0, or NaN for NaN and infinities; OR of the unordered compare
		// with itself keeps NaN alone.
		VMAXPS(acc, v, acc)
		u := b.vec()
		if b.wide {
			q := K()
			VCMPPS(operand.U8(3), v, v, q)
			VMOVAPS(v, q, nan)
		} else {
			VCMPPS(operand.U8(3), v, v, u)
			VORPS(u, nan, nan)
		}
	case umax:
		VPMAXUD(v, acc, acc)
	}
}

// finish folds acc to one value and stores it.
func (b *body) finish(k *kernel, acc []reg.VecVirtual, nan reg.VecVirtual) {
	op := map[fold]func(x, acc reg.VecVirtual){
		add:   func(x, a reg.VecVirtual) { VADDPS(x, a, a) },
		add64: func(x, a reg.VecVirtual) { VADDPD(x, a, a) },
		most:  func(x, a reg.VecVirtual) { VMAXPS(a, x, a) },
		umax:  func(x, a reg.VecVirtual) { VPMAXUD(x, a, a) },
	}[k.fold]
	for w := len(acc) / 2; w > 0; w /= 2 {
		for j := range w {
			op(acc[j+w], acc[j])
		}
	}
	a := acc[0]
	if b.wide {
		hi := YMM()
		VEXTRACTF64X4(operand.U8(1), a, hi)
		a = a.AsY().(reg.VecVirtual)
		op(hi, a)
	}
	hi := XMM()
	VEXTRACTF128(operand.U8(1), a.AsY(), hi)
	x := a.AsX().(reg.VecVirtual)
	op(hi, x)
	t := XMM()
	VPERMILPD(operand.U8(1), x, t)
	op(t, x)
	if k.fold != add64 {
		VPERMILPS(operand.U8(1), x, t)
		op(t, x)
	}
	if k.fold == most {
		b.keepNaN(x, nan)
	}
	r, err := Return("sum").Resolve()
	if err != nil {
		panic(err)
	}
	if k.fold == add64 {
		VMOVSD(x, r.Addr)
	} else {
		VMOVSS(x, r.Addr)
	}
}

// keepNaN replaces x by NaN when any lane of nan is one (all bits set on AVX2).
func (b *body) keepNaN(x, nan reg.VecVirtual) {
	flag := GP32()
	if b.wide {
		q := K()
		VCMPPS(operand.U8(3), nan, nan, q)
		KMOVW(q, flag)
	} else {
		VMOVMSKPS(nan, flag)
	}
	TESTL(flag, flag)
	JZ(operand.LabelRef("ordered"))
	VPCMPEQD(x, x, x)
	Label("ordered")
}
