package main

import (
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// finish scales the sums, adds C and stores them, as the mode says.
func (t *tileGen) finish() {
	mode := t.GP64()
	t.field(offMode, mode)
	t.ifMode(mode, modeScale, "scaled", func() {
		factor := t.isa.vector(t.gen)
		t.e.broadcast(t.Context, Mem{Base: t.t, Disp: offAlpha}, factor)
		t.eachSum(func(_, _ int, s reg.VecVirtual) { t.e.mul(t.Context, factor, s, s) })
	})
	if t.isa.bytes == 32 {
		t.finishWhole(mode)
	}
	t.fullMasks()
	t.addModes(mode, "masked")
	t.TESTQ(U32(modeLower), mode)
	t.JNZ(LabelRef("lower"))
	t.storeRows()
	t.JMP(LabelRef("stored"))
	t.Label("lower")
	t.storeLower()
	t.Label("stored")
}

// finishWhole is the path for tiles that need no mask: masked moves of 32 bytes
// are slow on some processors. It falls through when the tile needs one.
func (t *tileGen) finishWhole(mode reg.Register) {
	width := t.GP64()
	t.field(offWidth, width)
	t.CMPQ(width, Imm(uint64(t.vectors*t.e.lanes(t.isa))))
	t.JNE(LabelRef("partial"))
	t.TESTQ(U32(modeLower), mode)
	t.JNZ(LabelRef("partial"))
	t.rowMask = nil
	t.addModes(mode, "whole")
	t.storeRows()
	t.JMP(LabelRef("stored"))
	t.Label("partial")
}

// addModes adds C or beta times C where the mode says so.
func (t *tileGen) addModes(mode reg.Register, label string) {
	t.ifMode(mode, modeAdd, label+"add", func() { t.addC(nil) })
	t.ifMode(mode, modeBeta, label+"beta", func() {
		factor := t.isa.vector(t.gen)
		t.e.broadcast(t.Context, Mem{Base: t.t, Disp: offAlpha + t.e.size}, factor)
		t.addC(factor)
	})
}

// ifMode emits body so that it runs when the bit is set.
func (t *tileGen) ifMode(mode reg.Register, bit int, label string, body func()) {
	t.TESTQ(U32(bit), mode)
	t.JZ(LabelRef(label))
	body()
	t.Label(label)
}

func (t *tileGen) eachSum(f func(i, j int, s reg.VecVirtual)) {
	for i, row := range t.sums {
		for j, s := range row {
			f(i, j, s)
		}
	}
}

// bitMask returns a register with the low n bits set.
func (t *tileGen) bitMask(n reg.Register) reg.Register {
	m := t.GP64()
	t.MOVQ(I64(-1), m)
	t.BZHIQ(n, m, m)
	return m
}

// fullMasks makes the masks of a row of width columns: opmasks, or vectors of
// sign bits read from a table of ones followed by zeros.
func (t *tileGen) fullMasks() {
	t.rowMask = nil
	width := t.GP64()
	t.field(offWidth, width)
	if t.isa.bytes == 64 {
		t.opmasks(t.bitMask(width))
		return
	}
	t.vectorMasks(width)
}

// opmasks splits the bits of m among the vectors; m is used up.
func (t *tileGen) opmasks(m reg.Register) {
	first := t.rowMask == nil
	for j := range t.vectors {
		if first {
			t.rowMask = append(t.rowMask, t.K())
		}
		t.KMOVW(m.(reg.GPVirtual).As32(), t.rowMask[j])
		if j < t.vectors-1 {
			t.SHRQ(Imm(uint64(t.e.lanes(t.isa))), m)
		}
	}
}

// vectorMasks reads the masks of the first n columns; n is used up.
func (t *tileGen) vectorMasks(n reg.Register) {
	first := t.rowMask == nil
	table := t.GP64()
	t.LEAQ(t.maskTable(), table)
	t.SHLQ(Imm(uint64(t.e.shift())), n)
	t.SUBQ(n, table)
	for j := range t.vectors {
		if first {
			t.rowMask = append(t.rowMask, t.YMM())
		}
		t.VMOVUPS(Mem{Base: table, Disp: maskTableOnes + j*t.isa.bytes}, t.rowMask[j])
	}
}

// addC adds C, or factor times C, to the sums.
func (t *tileGen) addC(factor reg.Register) {
	t.eachRow(func(i int, p reg.Register) {
		for j, s := range t.sums[i] {
			t.addVector(Mem{Base: p, Disp: j * t.isa.bytes}, factor, j, s)
		}
	})
}

// addVector adds one vector of C, or factor times it.
func (t *tileGen) addVector(src Op, factor reg.Register, j int, s reg.VecVirtual) {
	if t.isa.bytes == 32 && t.rowMask != nil {
		v := t.YMM()
		t.e.maskMove(t.Context, src, t.rowMask[j], v)
		src = v
	}
	op, first := t.e.add, Op(s)
	if factor != nil {
		op, first = t.e.fma, factor
	}
	if t.isa.bytes == 64 {
		op(t.Context, src, first, t.rowMask[j], s)
		return
	}
	op(t.Context, src, first, s)
}

// storeRow writes one row of sums under the masks, if any.
func (t *tileGen) storeRow(i int, p reg.Register) {
	for j, s := range t.sums[i] {
		dst := Mem{Base: p, Disp: j * t.isa.bytes}
		switch {
		case t.rowMask == nil:
			t.e.load(t.Context, s, dst)
		case t.isa.bytes == 32:
			t.e.maskMove(t.Context, s, t.rowMask[j], dst)
		default:
			t.e.load(t.Context, s, t.rowMask[j], dst)
		}
	}
}

func (t *tileGen) storeRows() { t.eachRow(t.storeRow) }

// initLower stores the mask of the first row, columns <= diag, as diag+17 bits:
// 16 more than the row has, since diag may be as low as -16. Rows further down
// shift a one in. diag is capped where every column is stored.
func (t *tileGen) initLower() {
	n, top := t.GP64(), t.GP64()
	t.field(offDiag, n)
	t.MOVQ(I32(47), top)
	t.CMPQ(n, top)
	t.CMOVQGT(top, n)
	t.ADDQ(Imm(17), n)
	t.MOVQ(t.bitMask(n), t.lower)
}

// storeLower writes each row up to its diagonal.
func (t *tileGen) storeLower() {
	full, bits := t.GP64(), t.GP64()
	t.field(offWidth, full)
	t.MOVQ(t.lower, bits)
	mask := t.bitMask(full)
	t.eachRow(func(i int, p reg.Register) {
		m := t.GP64()
		t.MOVQ(bits, m)
		t.SHRQ(Imm(16), m)
		t.ANDQ(mask, m)
		t.bitMasks(m)
		t.storeRow(i, p)
		t.LEAQ(Mem{Disp: 1, Base: bits, Index: bits, Scale: 1}, bits)
	})
	t.MOVQ(bits, t.lower)
}

// bitMasks makes the masks of a row of the one bits of m, which is used up: opmasks, or
// vectors from the table by their number.
func (t *tileGen) bitMasks(m reg.Register) {
	if t.isa.bytes == 32 {
		t.POPCNTQ(m, m)
		t.vectorMasks(m)
		return
	}
	t.opmasks(m)
}
