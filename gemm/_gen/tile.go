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
	offAlpha = 152 // beta follows
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
	a, abase  reg.Register
	lda, lda3 reg.Register
	p5, p10   reg.Register
	b, ldb    reg.Register
	c, ldc    reg.Register
	depth     reg.Register
	count     reg.Register
	lower     Mem // mask of a row, shifted up by 16, when modeLower
	sums      [][]reg.VecVirtual
	bs, bc    []reg.VecVirtual
	unroll    int
	rowMask   []reg.Register // of a full row
	edge0     reg.Register
}

func newTile(g *gen, e elem, rows, vectors int, kMajor bool) *tileGen {
	t := &tileGen{gen: g, e: e, rows: rows, vectors: vectors, kMajor: kMajor, unroll: 4}
	if rows*vectors > 12 {
		t.unroll = 2
	}
	t.name = fmt.Sprintf("%sTile%s%dx%d%s", e.prefix, orderName(kMajor), rows, vectors*e.lanes(g.isa), g.isa.suffix)
	return t
}

func (t *tileGen) emit() {
	t.text(t.name, "func(t *byte)", fmt.Sprintf("(t *tile[%s])", t.e.goType),
		fmt.Sprintf("runs tiles of %d rows by %d columns.", t.rows, t.vectors*t.e.lanes(t.isa)))
	t.lower = t.AllocLocal(8)
	t.loadArguments()
	t.initLower()
	t.Label("tile")
	t.startTile()
	t.inner()
	t.finish()
	t.Comment("next tile")
	step := t.GP64()
	t.field(offAstep, step)
	t.LEAQ(Mem{Base: t.abase, Index: step, Scale: uint8(t.e.size)}, t.abase)
	t.DECQ(t.count)
	t.JNZ(LabelRef("tile"))
	t.VZEROUPPER()
	t.RET()
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
	t.abase, t.a, t.b, t.c = t.GP64(), t.GP64(), t.GP64(), t.GP64()
	t.field(offA, t.abase)
	t.field(offC, t.c)
	t.lda, t.ldb, t.ldc = t.stride(offLda), t.stride(offLdb), t.stride(offLdc)
	t.depth, t.count = t.GP64(), t.GP64()
	t.field(offCount, t.count)
	if !t.kMajor && t.rows > 3 {
		t.lda3 = t.GP64()
		t.LEAQ(Mem{Base: t.lda, Index: t.lda, Scale: 2}, t.lda3)
	}
}

// startTile points at the operands, clears the sums and fetches the tile of C.
func (t *tileGen) startTile() {
	t.MOVQ(t.abase, t.a)
	t.field(offB, t.b)
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
		for j := range t.vectors {
			t.PREFETCHT0(Mem{Base: p, Disp: j * t.isa.bytes})
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

// inner is the loop over k.
func (t *tileGen) inner() {
	t.bs, t.bc = nil, nil
	for range t.vectors {
		t.bs = append(t.bs, t.isa.vector(t.gen))
	}
	for range 2 {
		t.bc = append(t.bc, t.isa.vector(t.gen))
	}
	left := t.GP64()
	t.field(offK, t.depth)
	t.MOVQ(t.depth, left)
	t.SHRQ(Imm(uint64(map[int]int{2: 1, 4: 2}[t.unroll])), t.depth)
	t.JZ(LabelRef("rest"))
	t.Label("loop")
	for u := range t.unroll {
		t.step(u)
	}
	t.advance(t.unroll)
	t.DECQ(t.depth)
	t.JNZ(LabelRef("loop"))
	t.Label("rest")
	t.ANDQ(Imm(uint64(t.unroll-1)), left)
	t.JZ(LabelRef("done"))
	t.Label("one")
	t.step(0)
	t.advance(1)
	t.DECQ(left)
	t.JNZ(LabelRef("one"))
	t.Label("done")
}

// step adds the products of one k.
func (t *tileGen) step(u int) {
	for j, v := range t.bs {
		t.e.load(t.Context, Mem{Base: t.b, Disp: j * t.isa.bytes}, v)
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
	t.ADDQ(t.ldb, t.b)
	if t.kMajor {
		t.ADDQ(t.lda, t.a)
	}
}

// advance moves the row-major pointers of a by n elements.
func (t *tileGen) advance(n int) {
	if t.kMajor {
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
		return Mem{Base: t.a, Disp: i * t.e.size}
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
