package main

import (
	"fmt"

	"github.com/asteria-runtime/asteria/gemm/_gen/a64"
)

// neonTile emits one tile kernel. Its registers:
//
//	R0        the argument block
//	R1 R2 R3  a, b and c of this tile
//	R4 R5 R6  bytes between rows (columns when k-major) of a, rows of b, rows of c
//	R7        tiles left
//	R8 R9     rounds of the inner loop; b at this k
//	R10-R17   rows of a, or a at this k in R10
//	R19 R20   row of c; scratch
//	R21-R26   arguments of the partial store: mode, width, diag, sums, rows, row bytes
//	V0…       sums, row by row, then a, then b
type neonTile struct {
	*neon
	arm
	rows, vectors int
	kMajor        bool
}

// Registers of c's vectors and of a broadcast factor, when a and b are done with.
const (
	factorV = a64.V(31)
	firstC  = a64.V(28)
)

func (t *neonTile) sum(i, j int) a64.V { return a64.V(i*t.vectors + j) }
func (t *neonTile) av(i int) a64.V     { return a64.V(t.rows*t.vectors + i) }
func (t *neonTile) bv(j int) a64.V     { return a64.V(32 - t.vectors + j) }

// emit writes the kernel and returns its name.
func (t *neonTile) emit() string {
	name := fmt.Sprintf("%sTile%s%dx%dNEON", t.prefix, orderName(t.kMajor), t.rows, t.vectors*t.lanes())
	frame := 16 * t.rows * t.vectors
	t.declare(name, fmt.Sprintf("(t *tile[%s])", t.goType),
		fmt.Sprintf("runs tiles of %d rows by %d columns.", t.rows, t.vectors*t.lanes()), frame, 1)
	t.arguments(frame)
	t.Label("tile")
	t.start()
	if t.kMajor {
		t.byColumn()
	} else {
		t.byRow()
	}
	t.finish()
	t.hop(offAstep, "R1")
	t.hop(offBstep, "R2")
	t.hop(offCstep, "R3")
	t.Op("SUBS $1, R7, R7")
	t.Op("BNE tile")
	t.Op("RET")
	return name
}

func (t *neonTile) arguments(frame int) {
	t.Op("MOVD t+0(FP), R0")
	t.field(offA, "R1")
	t.field(offB, "R2")
	t.field(offC, "R3")
	t.stride(t.arm, offLda, "R4")
	t.stride(t.arm, offLdb, "R5")
	t.stride(t.arm, offLdc, "R6")
	t.field(offCount, "R7")
	t.field(offMode, "R21")
	t.field(offDiag, "R23")
	t.Op("MOVD $sums-%d(SP), R24", frame)
	t.Op("MOVD $%d, R26", 16*t.vectors)
}

// hop adds a field, in elements, to a pointer.
func (t *neonTile) hop(offset int, r string) {
	t.stride(t.arm, offset, "R20")
	t.Op("ADD R20, %s", r)
}

// start points at the operands and clears the sums.
func (t *neonTile) start() {
	t.Op("MOVD R2, R9")
	t.Op("MOVD R1, R10")
	for i := 1; i < t.rows && !t.kMajor; i++ {
		t.Op("ADD R4, R%d, R%d", 9+i, 10+i)
	}
	for s := range t.rows * t.vectors {
		t.zero(a64.V(s))
	}
	t.field(offK, "R20")
}

// byRow is the loop over k for rows of a: a vector of each row serves as many
// steps as it has elements.
func (t *neonTile) byRow() {
	per := t.lanes()
	t.Op("LSR $%d, R20, R8", 2-int(t.shape))
	t.Op("CBZ R8, rest")
	t.Label("loop")
	for i := range t.rows {
		t.Op("FMOVQ.P 16(R%d), F%d", 10+i, t.av(i))
	}
	for lane := range per {
		t.products(func(i int) (a64.V, int) { return t.av(i), lane })
	}
	t.Op("SUBS $1, R8, R8")
	t.Op("BNE loop")
	t.Label("rest")
	t.Op("ANDS $%d, R20, R8", per-1)
	t.Op("BEQ done")
	t.Label("one")
	for i := range t.rows {
		t.Op("%s.P %d(R%d), F%d", t.load, t.size(), 10+i, t.av(i))
	}
	t.products(func(i int) (a64.V, int) { return t.av(i), 0 })
	t.Op("SUBS $1, R8, R8")
	t.Op("BNE one")
	t.Label("done")
}

// byColumn is the loop over k for columns of a, two steps a round.
func (t *neonTile) byColumn() {
	t.Op("LSR $1, R20, R8")
	t.Op("CBZ R8, rest")
	t.Label("loop")
	t.columnStep()
	t.columnStep()
	t.Op("SUBS $1, R8, R8")
	t.Op("BNE loop")
	t.Label("rest")
	t.Op("TBZ $0, R20, done")
	t.columnStep()
	t.Label("done")
}

// columnStep reads one column of a, nothing behind its last row, and adds its products.
func (t *neonTile) columnStep() {
	at, v := 0, 0
	type place struct {
		v    a64.V
		lane int
	}
	var where []place
	for at < t.rows {
		take := t.lanes()
		for take > t.rows-at {
			take /= 2
		}
		op := map[int]string{4: "FMOVS", 8: "FMOVD", 16: "FMOVQ"}[take*t.size()]
		t.Op("%s %d(R10), F%d", op, at*t.size(), t.av(v))
		for lane := range take {
			where = append(where, place{t.av(v), lane})
		}
		at, v = at+take, v+1
	}
	t.Op("ADD R4, R10")
	t.products(func(i int) (a64.V, int) { return where[i].v, where[i].lane })
}

// products adds the products of one k; a returns where the element of a row is.
func (t *neonTile) products(a func(i int) (a64.V, int)) {
	for j := range t.vectors {
		t.Op("FMOVQ %d(R9), F%d", 16*j, t.bv(j))
	}
	t.Op("ADD R5, R9")
	for i := range t.rows {
		v, lane := a(i)
		for j := range t.vectors {
			t.Raw(a64.Element("fmla", t.shape, t.sum(i, j), t.bv(j), v, lane))
		}
	}
}

// finish scales the sums, adds C and stores them, as the mode says. Tiles that are
// not stored in full go through memory.
func (t *neonTile) finish() {
	t.Op("TBZ $0, R21, scaled")
	t.factor(offAlpha)
	for s := range a64.V(t.rows * t.vectors) {
		t.Raw(a64.Three("fmul", t.shape, s, s, factorV))
	}
	t.Label("scaled")
	t.field(offWidth, "R22")
	t.Op("CMP $%d, R22", t.vectors*t.lanes())
	t.Op("BNE partial")
	t.Op("TBNZ $3, R21, partial")
	t.Op("TBZ $1, R21, added")
	t.eachOfC(func(s, c a64.V) { t.Raw(a64.Three("fadd", t.shape, s, s, c)) })
	t.Label("added")
	t.Op("TBZ $2, R21, beta")
	t.factor(offAlpha + t.size())
	t.eachOfC(func(s, c a64.V) { t.Op("VFMLA V%d.%v, V%d.%v, V%d.%v", factorV, t.shape, c, t.shape, s, t.shape) })
	t.Label("beta")
	t.Op("MOVD R3, R19")
	for i := range t.rows {
		for j := range t.vectors {
			t.Op("FMOVQ F%d, %d(R19)", t.sum(i, j), 16*j)
		}
		t.nextRow(i)
	}
	t.Op("B stored")
	t.Label("partial")
	for s := range t.rows * t.vectors {
		t.Op("FMOVQ F%d, %d(R24)", s, 16*s)
	}
	t.Op("MOVD $%d, R25", t.rows)
	t.Op("CALL %sPartialNEON<>(SB)", t.prefix)
	t.Label("stored")
}

// factor broadcasts a field to all lanes.
func (t *neonTile) factor(offset int) {
	t.Op("ADD $%d, R0, R20", offset)
	t.Op("VLD1R (R20), %s", a64.List(t.shape, factorV))
}

// eachOfC loads C and calls f for each sum. Sums beyond V27 would be in its way;
// there are none.
func (t *neonTile) eachOfC(f func(s, c a64.V)) {
	t.Op("MOVD R3, R19")
	for i := range t.rows {
		for j := range t.vectors {
			t.Op("FMOVQ %d(R19), F%d", 16*j, firstC+a64.V(j))
		}
		t.nextRow(i)
		for j := range t.vectors {
			f(t.sum(i, j), firstC+a64.V(j))
		}
	}
}

func (t *neonTile) nextRow(i int) {
	if i < t.rows-1 {
		t.Op("ADD R6, R19")
	}
}

// partial emits the store of sums that lie in memory: R25 rows of R26 bytes at R24,
// of which row i goes to the first min(R22, R23+i+1) elements (R22 without
// modeLower) of row i at R3. It leaves the last column of the row after the tile in
// R23, where the next tile goes on.
func (g *neon) partial(e arm) {
	g.Local(e.prefix+"PartialNEON", "adds and stores sums of a tile at its edges, as tile.store does.")
	g.Op("ADD $%d, R0, R20", offAlpha+e.size())
	g.Op("VLD1R (R20), %s", a64.List(e.shape, factorV))
	g.Op("MOVD R3, R19")
	g.Op("MOVD R24, R9")
	g.Label("row")
	g.Op("MOVD R22, R8")
	g.Op("TBZ $3, R21, columns")
	g.Op("ADD $1, R23, R23")
	g.Op("CMP R8, R23")
	g.Op("CSEL LT, R23, R8, R8")
	g.Op("CMP $0, R8")
	g.Op("BLE next")
	g.Label("columns")
	g.Op("MOVD R9, R10")
	g.Op("MOVD R19, R11")
	g.Op("SUBS $%d, R8, R8", e.lanes())
	g.Op("BLT tail")
	g.Label("vector")
	g.addStore("vector", fmt.Sprintf("SUBS $%d, R8, R8", e.lanes()), 16, "FMOVQ",
		a64.Three("fadd", e.shape, 0, 0, 1), fmt.Sprintf("VFMLA V31.%v, V1.%v, V0.%v", e.shape, e.shape, e.shape), "BGE")
	g.Label("tail")
	g.Op("ADDS $%d, R8, R8", e.lanes())
	g.Op("BEQ next")
	g.Label("element")
	g.addStore("element", "SUBS $1, R8, R8", e.size(), e.load,
		e.add+" F1, F0, F0", e.fma+" F31, F0, F1, F0", "BNE")
	g.Label("next")
	g.Op("ADD R26, R9")
	g.Op("ADD R6, R19")
	g.Op("SUBS $1, R25, R25")
	g.Op("BNE row")
	g.Op("RET")
}

// addStore emits the loop label: load sums at R10, add what the mode says of C at
// R11, store there, and go on while count says so.
func (g *neon) addStore(label, count string, bytes int, move, add, fma, again string) {
	g.Op("%s.P %d(R10), F0", move, bytes)
	g.Op("TBZ $1, R21, %sAdded", label)
	g.Op("%s (R11), F1", move)
	g.Raw(add)
	g.Label(label + "Added")
	g.Op("TBZ $2, R21, %sBeta", label)
	g.Op("%s (R11), F1", move)
	g.Raw(fma)
	g.Label(label + "Beta")
	g.Op("%s.P F0, %d(R11)", move, bytes)
	g.Op("%s", count)
	g.Op("%s %s", again, label)
}
