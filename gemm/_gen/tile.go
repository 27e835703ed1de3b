package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Offsets of the fields of tile[T]; a test of package gemm holds them.
const (
	offA     = 0
	offB     = 24
	offC     = 48
	offLda   = 72
	offLdb   = 80
	offLdc   = 88
	offK     = 96
	offCount = 104
	offAstep = 112
	offWidth = 120
	offMode  = 128
	offDiag  = 136
	offBstep = 152
	offCstep = 160
	offAhead = 168
	offPace  = 192
	offAlpha = 200 // beta follows
)

// Bits of tile.mode.
const (
	modeScale = 1 << iota
	modeAdd
	modeBeta
	modeLower
)

// tileGen emits one tile kernel.
type tileGen struct {
	*gen
	e       elem
	rows    int
	vectors int
	kMajor  bool
	name    string

	t         reg.Register // the argument block
	a, b, c   reg.Register
	lda, lda3 reg.Register
	ldb, ldc  reg.Register
	p5, p10   reg.Register // rows 5 and 10 of a
	count     Mem          // tiles left
	abase     Mem          // a, b and c of this tile
	bbase     Mem
	cbase     Mem
	ahead     Mem // what to fetch next
	lower     Mem // mask of a row, shifted up by 16, when modeLower
	sums      [][]reg.VecVirtual
	bs, bc    []reg.VecVirtual
	rowMask   []reg.Register // of a full row
}

// newTile prepares a kernel.
func newTile(g *gen, e elem, rows, vectors int, kMajor bool) *tileGen {
	t := &tileGen{gen: g, e: e, rows: rows, vectors: vectors, kMajor: kMajor}
	t.name = fmt.Sprintf("%sTile%s%dx%d%s", e.prefix, orderName(kMajor), rows, vectors*e.lanes(g.isa), g.isa.suffix)
	return t
}

func (t *tileGen) emit() {
	t.text(t.name, "func(t *byte)", fmt.Sprintf("(t *tile[%s])", t.e.goType),
		fmt.Sprintf("runs tiles of %d rows by %d columns.", t.rows, t.vectors*t.e.lanes(t.isa)))
	t.loadArguments()
	t.Label("tile")
	t.startTile()
	t.inner()
	t.finish()
	t.Comment("next tile")
	t.hop(offAstep, t.abase)
	t.hop(offBstep, t.bbase)
	t.hop(offCstep, t.cbase)
	t.DECQ(t.count)
	t.JNZ(LabelRef("tile"))
	t.VZEROUPPER()
	t.RET()
	t.fetching()
}

// hop adds a field, in elements, to an address kept in memory.
func (t *tileGen) hop(offset int, base Mem) { t.ADDQ(t.stride(offset), base) }

// keep copies a field to a local.
func (t *tileGen) keep(offset int, local *Mem) {
	*local = t.AllocLocal(8)
	x := t.GP64()
	t.field(offset, x)
	t.MOVQ(x, *local)
}

// field loads a field of the argument block.
func (t *tileGen) field(offset int, r Op) { t.MOVQ(Mem{Base: t.t, Disp: offset}, r) }

// stride loads a stride in bytes.
func (t *tileGen) stride(offset int) reg.Register {
	r := t.GP64()
	t.field(offset, r)
	t.SHLQ(Imm(uint64(t.e.shift())), r)
	return r
}

func (t *tileGen) loadArguments() {
	t.t = t.Load(t.Param("t"), t.GP64())
	t.keep(offCount, &t.count)
	t.keep(offA, &t.abase)
	t.keep(offB, &t.bbase)
	t.keep(offC, &t.cbase)
	if !t.kMajor {
		t.keep(offAhead, &t.ahead)
	}
	t.lower = t.AllocLocal(8)
	t.initLower()
	t.a, t.b, t.c = t.GP64(), t.GP64(), t.GP64()
	t.lda, t.ldb, t.ldc = t.stride(offLda), t.stride(offLdb), t.stride(offLdc)
	if !t.kMajor && t.rows > 3 {
		t.lda3 = t.GP64()
		t.LEAQ(Mem{Base: t.lda, Index: t.lda, Scale: 2}, t.lda3)
	}
}

// startTile points at the operands, clears the sums and fetches the tile of C.
func (t *tileGen) startTile() {
	t.MOVQ(t.abase, t.a)
	t.MOVQ(t.bbase, t.b)
	t.MOVQ(t.cbase, t.c)
	if !t.kMajor && t.rows > 5 {
		t.p5 = t.GP64()
		t.LEAQ(Mem{Base: t.a, Index: t.lda, Scale: 4}, t.p5)
		t.ADDQ(t.lda, t.p5)
	}
	if !t.kMajor && t.rows > 10 {
		t.p10 = t.GP64()
		t.LEAQ(Mem{Base: t.p5, Index: t.lda, Scale: 4}, t.p10)
		t.ADDQ(t.lda, t.p10)
	}
	t.sums = nil
	for range t.rows {
		row := make([]reg.VecVirtual, t.vectors)
		for j := range row {
			row[j] = t.isa.vector(t.gen)
			t.zero(row[j])
		}
		t.sums = append(t.sums, row)
	}
	t.eachRow(func(_ int, p reg.Register) {
		for j := 0; j < t.vectors*t.isa.bytes; j += 64 {
			t.PREFETCHT0(Mem{Base: p, Disp: j})
		}
	})
}

// zero clears a vector.
func (t *tileGen) zero(v reg.VecVirtual) {
	if t.isa.bytes == 64 {
		t.VPXORD(v, v, v)
		return
	}
	t.VXORPS(v, v, v)
}

// eachRow calls f for each row with the address of C's row.
func (t *tileGen) eachRow(f func(i int, p reg.Register)) {
	p := t.GP64()
	t.MOVQ(t.c, p)
	for i := range t.rows {
		f(i, p)
		if i < t.rows-1 {
			t.ADDQ(t.ldc, p)
		}
	}
}

// inner is the loop over k: with fetches when the tiles have a pace.
func (t *tileGen) inner() {
	t.bs, t.bc = nil, nil
	for range t.vectors {
		t.bs = append(t.bs, t.isa.vector(t.gen))
	}
	for range 2 {
		t.bc = append(t.bc, t.isa.vector(t.gen))
	}
	depth := t.GP64()
	t.field(offK, depth)
	t.SHRQ(Imm(1), depth)
	t.JZ(LabelRef("rest"))
	if !t.kMajor {
		t.CMPQ(Mem{Base: t.t, Disp: offPace}, Imm(0))
		t.JNE(LabelRef("fetch"))
	}
	t.rounds("loop", depth, func() {})
	t.Label("rest")
	t.field(offK, depth)
	t.TESTQ(U32(1), depth)
	t.JZ(LabelRef("done"))
	t.products(0)
	t.Label("done")
}

// fetching is the loop over k that also asks for what comes next, a line a round: out
// of the way of those calls, most, that leave that to the processor.
func (t *tileGen) fetching() {
	if t.kMajor {
		return
	}
	t.Label("fetch")
	depth, ahead := t.GP64(), t.GP64()
	t.field(offK, depth)
	t.SHRQ(Imm(1), depth)
	t.MOVQ(t.ahead, ahead)
	t.rounds("fetching", depth, func() {
		t.PREFETCHT0(Mem{Base: ahead})
		t.ADDQ(Mem{Base: t.t, Disp: offPace}, ahead)
	})
	t.MOVQ(ahead, t.ahead)
	t.JMP(LabelRef("rest"))
}

// rounds emits depth rounds of two steps of k, with something between the two. Two keep
// the integer additions, which compete with the multiply-adds for ports, few and the loop
// in the decoded cache.
func (t *tileGen) rounds(label string, depth reg.Register, between func()) {
	t.Label(label)
	t.products(0)
	between()
	t.products(1)
	t.advance(2)
	t.DECQ(depth)
	t.JNZ(LabelRef(label))
}

// products adds the products of one k, u steps ahead.
func (t *tileGen) products(u int) {
	for j, v := range t.bs {
		src := Mem{Base: t.b, Disp: j * t.isa.bytes}
		if u == 1 {
			src.Index, src.Scale = t.ldb, 1
		}
		t.e.load(t.Context, src, v)
	}
	for i := range t.rows {
		src := t.addr(i, u)
		if t.vectors == 1 && t.isa.bytes == 64 {
			t.e.fmaBcst(t.Context, src, t.bs[0], t.sums[i][0])
			continue
		}
		bc := t.bc[i&1]
		t.e.broadcast(t.Context, src, bc)
		for j, v := range t.bs {
			t.e.fma(t.Context, bc, v, t.sums[i][j])
		}
	}
}

// advance moves the pointers by n <= 2 steps of k.
func (t *tileGen) advance(n int) {
	t.LEAQ(Mem{Base: t.b, Index: t.ldb, Scale: uint8(n)}, t.b)
	if t.kMajor {
		t.LEAQ(Mem{Base: t.a, Index: t.lda, Scale: uint8(n)}, t.a)
		return
	}
	for _, p := range []reg.Register{t.a, t.p5, t.p10} {
		if p != nil {
			t.ADDQ(Imm(uint64(n*t.e.size)), p)
		}
	}
}

// addr is the element of a in row i, u steps ahead. Three base pointers and lda
// times 1, 2, 3, 4, 6, 8 reach 14 rows.
func (t *tileGen) addr(i, u int) Mem {
	if t.kMajor {
		m := Mem{Base: t.a, Disp: i * t.e.size}
		if u == 1 {
			m.Index, m.Scale = t.lda, 1
		}
		return m
	}
	d := u * t.e.size
	switch i {
	case 0:
		return Mem{Base: t.a, Disp: d}
	case 1, 2, 4:
		return Mem{Base: t.a, Index: t.lda, Scale: uint8(i), Disp: d}
	case 3:
		return Mem{Base: t.a, Index: t.lda3, Scale: 1, Disp: d}
	case 5:
		return Mem{Base: t.p5, Disp: d}
	case 6, 7, 9:
		return Mem{Base: t.p5, Index: t.lda, Scale: uint8(i - 5), Disp: d}
	case 8:
		return Mem{Base: t.p5, Index: t.lda3, Scale: 1, Disp: d}
	case 10:
		return Mem{Base: t.p10, Disp: d}
	case 11, 12:
		return Mem{Base: t.p10, Index: t.lda, Scale: uint8(i - 10), Disp: d}
	case 13:
		return Mem{Base: t.p10, Index: t.lda3, Scale: 1, Disp: d}
	}
	panic("no such row")
}
