package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// maskTableOnes is how many bytes of ones the table of masks holds, and of
// zeros after them.
const maskTableOnes = 128

// maskTable returns the table of vector masks, which it makes at first use.
func (g *gen) maskTable() Mem {
	if !g.tableDone {
		g.table = g.StaticGlobal("masks")
		g.DataAttributes(rodata)
		for i := range 2 * maskTableOnes / 8 {
			v := U64(0)
			if i < maskTableOnes/8 {
				v = ^v
			}
			g.AddDatum(8*i, v)
		}
		g.tableDone = true
	}
	return g.table
}

const packSignature = "func(dst *byte, ldd int, src *byte, lds int, depth int, width int, pad int)"

func packGo(e elem) string {
	return fmt.Sprintf("(dst *%s, ldd int, src *%s, lds int, depth int, width int, pad int)", e.goType, e.goType)
}

// packArgs holds the arguments of a packing kernel; strides are in bytes.
type packArgs struct{ dst, ldd, src, lds, depth reg.Register }

func (g *gen) packArgs(e elem) packArgs {
	p := packArgs{
		dst: g.Load(g.Param("dst"), g.GP64()), ldd: g.Load(g.Param("ldd"), g.GP64()),
		src: g.Load(g.Param("src"), g.GP64()), lds: g.Load(g.Param("lds"), g.GP64()),
		depth: g.Load(g.Param("depth"), g.GP64()),
	}
	g.SHLQ(Imm(uint64(e.shift())), p.ldd)
	g.SHLQ(Imm(uint64(e.shift())), p.lds)
	return p
}

// copySignature has, over packSignature, panels to copy and the elements from one to
// the next at both ends: narrow panels of few rows would otherwise be all calls.
const copySignature = "func(dst *byte, ldd int, src *byte, lds int, depth int, width int, pad int, count int, dstep int, sstep int)"

func copyGo(e elem) string {
	return fmt.Sprintf("(dst *%s, ldd int, src *%s, lds int, depth, width, pad, count, dstep, sstep int)", e.goType, e.goType)
}

// copyKernel emits the packing of rows: a few vectors a row, read under the
// mask of width and written under that of pad.
func (g *gen) copyKernel(e elem) {
	name := e.prefix + "Copy" + g.isa.suffix
	g.text(name, copySignature, copyGo(e), "packs count panels of depth rows of width elements, padded with zeros.")
	p := g.packArgs(e)
	read, write := g.masks(e, "width"), g.masks(e, "pad")
	var v []reg.VecVirtual
	for range read {
		v = append(v, g.isa.vector(g))
	}
	pad := g.Load(g.Param("pad"), g.GP64())
	for n := 1; n < len(v); n++ {
		g.CMPQ(pad, Imm(uint64(n*e.lanes(g.isa))))
		g.JLE(LabelRef(fmt.Sprintf("panel%d", n)))
	}
	for n := len(v); n > 0; n-- {
		g.copyPanels(e, p, n, v[:n], read, write)
	}
}

// copyPanels emits the loop over panels of n vectors, the loop over their rows, and
// the return.
func (g *gen) copyPanels(e elem, p packArgs, n int, v []reg.VecVirtual, read, write []reg.Register) {
	panel, row := fmt.Sprintf("panel%d", n), fmt.Sprintf("row%d", n)
	dst, src, ahead, rows := g.GP64(), g.GP64(), g.GP64(), g.GP64()
	g.Label(panel)
	g.MOVQ(p.dst, dst)
	g.MOVQ(p.src, src)
	g.LEAQ(Mem{Base: p.src, Index: p.lds, Scale: 8}, ahead)
	g.MOVQ(p.depth, rows)
	g.Label(row)
	for j := range v {
		g.loadMasked(e, Mem{Base: src, Disp: j * g.isa.bytes}, read[j], v[j])
	}
	for j := range v {
		g.PREFETCHT0(Mem{Base: ahead, Disp: j * g.isa.bytes})
		g.storeMasked(e, v[j], write[j], Mem{Base: dst, Disp: j * g.isa.bytes})
	}
	g.ADDQ(p.lds, src)
	g.ADDQ(p.lds, ahead)
	g.ADDQ(p.ldd, dst)
	g.DECQ(rows)
	g.JNZ(LabelRef(row))
	g.hopBy(e, "dstep", p.dst)
	g.hopBy(e, "sstep", p.src)
	count := g.Load(g.Param("count"), g.GP64())
	g.DECQ(count)
	g.Store(count, g.Param("count"))
	g.JNZ(LabelRef(panel))
	g.VZEROUPPER()
	g.RET()
}

// hopBy adds an argument, in elements, to an address.
func (g *gen) hopBy(e elem, param string, address reg.Register) {
	step := g.Load(g.Param(param), g.GP64())
	g.SHLQ(Imm(uint64(e.shift())), step)
	g.ADDQ(step, address)
}

// masks returns the masks of the first n columns, one a vector of the widest tile.
func (g *gen) masks(e elem, param string) []reg.Register {
	return g.masksOf(e, g.Load(g.Param(param), g.GP64()))
}

// masksOf is masks with n in a register, which it uses up.
func (g *gen) masksOf(e elem, n reg.Register) []reg.Register {
	if g.isa.bytes == 64 {
		m := g.GP64()
		g.MOVQ(I64(-1), m)
		g.BZHIQ(n, m, m)
		var masks []reg.Register
		for range 3 {
			k := g.K()
			g.KMOVW(m.As32(), k)
			g.SHRQ(Imm(uint64(e.lanes(g.isa))), m)
			masks = append(masks, k)
		}
		return masks
	}
	table, a, b := g.GP64(), g.YMM(), g.YMM()
	g.LEAQ(g.maskTable(), table)
	g.SHLQ(Imm(uint64(e.shift())), n)
	g.SUBQ(n, table)
	g.VMOVUPS(Mem{Base: table, Disp: maskTableOnes}, a)
	g.VMOVUPS(Mem{Base: table, Disp: maskTableOnes + g.isa.bytes}, b)
	return []reg.Register{a, b}
}

// loadMasked reads the masked elements and zeros the others.
func (g *gen) loadMasked(e elem, src Mem, mask, v reg.Register) {
	if g.isa.bytes == 64 {
		e.loadZ(g.Context, src, mask, v)
		return
	}
	e.maskMove(g.Context, src, mask, v)
}

// storeMasked writes the masked elements.
func (g *gen) storeMasked(e elem, v, mask reg.Register, dst Mem) {
	if g.isa.bytes == 64 {
		e.load(g.Context, v, mask, dst)
		return
	}
	e.maskMove(g.Context, v, mask, dst)
}

// turnKernels emits the transposing packing for 1 to lanes rows.
func (g *gen) turnKernels(e elem) {
	var names []string
	for rows := 1; rows <= e.lanes(g.isa); rows++ {
		t := &turnGen{gen: g, e: e, rows: rows, group: 16 / e.size}
		t.emit()
		names = append(names, t.name)
	}
	g.list(e.prefix+"Turns"+g.isa.suffix, "func(*"+e.goType+", int, *"+e.goType+", int, int, int, int)", names)
}

// turnGen emits one transposing kernel. It takes group columns at a time: vector
// j holds, in its 128-bit lanes, rows j, j+group, j+2*group, … so that two rounds
// of unpacking leave a column in row order.
type turnGen struct {
	*gen
	e     elem
	rows  int
	group int
	name  string
	p     packArgs
	base  []reg.Register
	lds3  reg.Register
}

func (t *turnGen) emit() {
	t.name = fmt.Sprintf("%sTurn%d%s", t.e.prefix, t.rows, t.isa.suffix)
	t.text(t.name, packSignature, packGo(t.e), fmt.Sprintf("packs %d rows of depth elements, transposed.", t.rows))
	t.p = t.packArgs(t.e)
	mask := t.masks(t.e, "pad")[0]
	t.bases()
	groups, rest := t.GP64(), t.GP64()
	t.MOVQ(t.p.depth, groups)
	t.MOVQ(t.p.depth, rest)
	t.SHRQ(Imm(uint64(t.group/2)), groups)
	t.JZ(LabelRef("rest"))
	t.Label("loop")
	for c, v := range t.columns() {
		t.storeMasked(t.e, v, mask, Mem{Base: t.p.dst})
		_ = c
		t.ADDQ(t.p.ldd, t.p.dst)
	}
	t.move(16)
	t.DECQ(groups)
	t.JNZ(LabelRef("loop"))
	t.Label("rest")
	t.ANDQ(Imm(uint64(t.group-1)), rest)
	t.JZ(LabelRef("done"))
	t.Label("one")
	t.scalarColumn(mask)
	t.DECQ(rest)
	t.JNZ(LabelRef("one"))
	t.Label("done")
	t.VZEROUPPER()
	t.RET()
}

// bases points at every group-th row.
func (t *turnGen) bases() {
	t.base = []reg.Register{t.p.src}
	for r := t.group; r < t.rows; r += t.group {
		b := t.GP64()
		t.LEAQ(Mem{Base: t.base[len(t.base)-1], Index: t.p.lds, Scale: uint8(t.group)}, b)
		t.base = append(t.base, b)
	}
	if t.group == 4 && t.rows > 3 {
		t.lds3 = t.GP64()
		t.LEAQ(Mem{Base: t.p.lds, Index: t.p.lds, Scale: 2}, t.lds3)
	}
}

// move steps the row pointers.
func (t *turnGen) move(bytes int) {
	for _, b := range t.base {
		t.ADDQ(Imm(uint64(bytes)), b)
	}
}

// addr is the next element of row r.
func (t *turnGen) addr(r int) Mem {
	base := t.base[r/t.group]
	switch j := r % t.group; j {
	case 0:
		return Mem{Base: base}
	case 3:
		return Mem{Base: base, Index: t.lds3, Scale: 1}
	default:
		return Mem{Base: base, Index: t.p.lds, Scale: uint8(j)}
	}
}

// columns loads group columns of all rows and returns them in order.
func (t *turnGen) columns() []reg.VecVirtual {
	z := make([]reg.VecVirtual, t.group)
	for j := range z {
		z[j] = t.gather(j)
	}
	if t.group == 2 {
		return t.unpackPD(z[0], z[1])
	}
	lo01, hi01 := t.isa.vector(t.gen), t.isa.vector(t.gen)
	lo23, hi23 := t.isa.vector(t.gen), t.isa.vector(t.gen)
	t.VUNPCKLPS(z[1], z[0], lo01)
	t.VUNPCKHPS(z[1], z[0], hi01)
	t.VUNPCKLPS(z[3], z[2], lo23)
	t.VUNPCKHPS(z[3], z[2], hi23)
	return append(t.unpackPD(lo01, lo23), t.unpackPD(hi01, hi23)...)
}

// gather loads rows j, j+group, … into the lanes of a vector; absent rows are 0.
func (t *turnGen) gather(j int) reg.VecVirtual {
	v := t.isa.vector(t.gen)
	if j >= t.rows {
		if t.isa.bytes == 64 {
			t.VPXORD(v, v, v)
		} else {
			t.VXORPS(v, v, v)
		}
		return v
	}
	t.VMOVUPS(t.addr(j), v.AsX())
	for lane, r := 1, j+t.group; r < t.rows; lane, r = lane+1, r+t.group {
		if t.isa.bytes == 64 {
			t.VINSERTF32X4(Imm(uint64(lane)), t.addr(r), v, v)
		} else {
			t.VINSERTF128(Imm(uint64(lane)), t.addr(r), v, v)
		}
	}
	return v
}

// unpackPD interleaves pairs: the low ones, then the high ones.
func (t *turnGen) unpackPD(a, b reg.VecVirtual) []reg.VecVirtual {
	lo, hi := t.isa.vector(t.gen), t.isa.vector(t.gen)
	t.VUNPCKLPD(b, a, lo)
	t.VUNPCKHPD(b, a, hi)
	return []reg.VecVirtual{lo, hi}
}

// scalarColumn packs one column, element by element over a row of zeros.
func (t *turnGen) scalarColumn(mask reg.Register) {
	zero := t.isa.vector(t.gen)
	if t.isa.bytes == 64 {
		t.VPXORD(zero, zero, zero)
	} else {
		t.VXORPS(zero, zero, zero)
	}
	t.storeMasked(t.e, zero, mask, Mem{Base: t.p.dst})
	for r := range t.rows {
		x := t.GP64()
		if t.e.size == 4 {
			t.MOVL(t.addr(r), x.As32())
			t.MOVL(x.As32(), Mem{Base: t.p.dst, Disp: 4 * r})
		} else {
			t.MOVQ(t.addr(r), x)
			t.MOVQ(x, Mem{Base: t.p.dst, Disp: 8 * r})
		}
	}
	t.move(t.e.size)
	t.ADDQ(t.p.ldd, t.p.dst)
}

// peakKernel emits a loop of independent multiply-adds: the ceiling that the
// benchmarks compare with.
func (g *gen) peakKernel(e elem) {
	name := e.prefix + "Peak" + g.isa.suffix
	g.text(name, "func(n int)", "(n int)", fmt.Sprintf("does n rounds of 12 multiply-adds of %d elements.", e.lanes(g.isa)))
	n := g.Load(g.Param("n"), g.GP64())
	x := g.isa.vector(g)
	g.VXORPS(x.AsX(), x.AsX(), x.AsX())
	var sums []reg.VecVirtual
	for range 12 {
		v := g.isa.vector(g)
		g.VXORPS(v.AsX(), v.AsX(), v.AsX())
		sums = append(sums, v)
	}
	g.Label("loop")
	for _, v := range sums {
		e.fma(g.Context, x, x, v)
	}
	g.DECQ(n)
	g.JNZ(LabelRef("loop"))
	g.VZEROUPPER()
	g.RET()
}
