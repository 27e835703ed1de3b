package main

import (
	"fmt"

	"github.com/asteria-runtime/asteria/gemm/_gen/a64"
)

// neonWedge emits one kernel that solves with, or multiplies by, a lower triangle of
// the given order, on two vectors of columns that stay in registers V0 to V15.
// Narrower panels are copied to the stack first, so that all columns take the same
// operations. R0 is the argument block, R1 the coefficients, R2 and R3 the first row
// and the bytes to the next.
type neonWedge struct {
	*neon
	arm
	order int
}

func (w *neonWedge) x(i, j int) a64.V { return a64.V(2*i + j) }

// coefficientV holds one element of the triangle.
const coefficientV = a64.V(16)

// wedges emits the kernels of every order.
func (g *neon) wedges(e arm) {
	g.moveRows(e)
	for _, word := range []string{"Solve", "Times"} {
		var names []string
		for order := 1; order <= neonRows[2]; order++ {
			w := &neonWedge{neon: g, arm: e, order: order}
			name := fmt.Sprintf("%s%s%dNEON", e.prefix, word, order)
			w.emit(name, word == "Solve")
			names = append(names, name)
		}
		g.list(e.prefix+word+"KernelsNEON", "func(*wedge["+e.goType+"])", names)
	}
}

func (w *neonWedge) emit(name string, solve bool) {
	frame := 32 * w.order
	w.declare(name, "(t *wedge["+w.goType+"])", "works in a triangle of that order.", frame, 1)
	w.Op("MOVD t+0(FP), R0")
	w.field(offWedgeL, "R1")
	w.stride(w.arm, offWedgeAt, "R2")
	w.field(offWedgeB, "R4")
	w.Op("ADD R4, R2")
	w.stride(w.arm, offWedgeStep, "R3")
	w.field(offWedgeWidth, "R8")
	w.Op("CMP $%d, R8", 2*w.lanes())
	w.Op("BEQ whole")
	w.stackRows(frame, "R2", "R3", "R9", "R10") // from b
	w.Op("MOVD $rows-%d(SP), R2", frame)
	w.Op("MOVD $32, R3")
	w.Label("whole")
	w.rows("FMOVQ %[2]d(R4), F%[1]d")
	if solve {
		w.solve()
	} else {
		w.times()
	}
	w.rows("FMOVQ F%[1]d, %[2]d(R4)")
	w.Op("CMP $%d, R8", 2*w.lanes())
	w.Op("BEQ end")
	w.stride(w.arm, offWedgeAt, "R2")
	w.field(offWedgeB, "R4")
	w.Op("ADD R4, R2")
	w.stride(w.arm, offWedgeStep, "R3")
	w.stackRows(frame, "R9", "R10", "R2", "R3") // to b
	w.Label("end")
	w.Op("RET")
}

// stackRows calls the copy between b, at R2 with R3 bytes between rows, and the
// stack. The registers tell which is the source and which the destination.
func (w *neonWedge) stackRows(frame int, source, sourceStep, target, targetStep string) {
	w.Op("MOVD $rows-%d(SP), R9", frame)
	w.Op("MOVD $32, R10")
	w.Op("MOVD %s, R11", source)
	w.Op("MOVD %s, R12", sourceStep)
	w.Op("MOVD %s, R13", target)
	w.Op("MOVD %s, R14", targetStep)
	w.Op("MOVD $%d, R15", w.order)
	w.Op("CALL %sMoveRowsNEON<>(SB)", w.prefix)
}

// moveRows emits the copy of R15 rows of R8 elements from R11, R12 bytes apart, to
// R13, R14 bytes apart.
func (g *neon) moveRows(e arm) {
	g.Local(e.prefix+"MoveRowsNEON", "copies rows of a few elements.")
	g.Label("row")
	g.Op("MOVD R11, R16")
	g.Op("MOVD R13, R17")
	g.Op("MOVD R8, R19")
	g.Label("element")
	g.Op("%s.P %d(R16), F0", e.load, e.size())
	g.Op("%s.P F0, %d(R17)", e.load, e.size())
	g.Op("SUBS $1, R19, R19")
	g.Op("BNE element")
	g.Op("ADD R12, R11")
	g.Op("ADD R14, R13")
	g.Op("SUBS $1, R15, R15")
	g.Op("BNE row")
	g.Op("RET")
}

// rows emits a move of both vectors of every row; the format takes the register and
// the offset from the row's address in R4.
func (w *neonWedge) rows(move string) {
	w.Op("MOVD R2, R4")
	for i := range w.order {
		w.Op(move, w.x(i, 0), 0)
		w.Op(move, w.x(i, 1), 16)
		if i < w.order-1 {
			w.Op("ADD R3, R4")
		}
	}
}

// coefficient loads element (i, j) of the triangle.
func (w *neonWedge) coefficient(i, j int) {
	w.Op("%s %d(R1), F%d", w.load, (i*wedgeStride+j)*w.size(), coefficientV)
}

// solve replaces x by the solution of L*x = b, row by row.
func (w *neonWedge) solve() {
	for i := range w.order {
		w.coefficient(i, i)
		w.Op("VDUP V%d.%s[0], V%d.%v", coefficientV, w.shape.String()[:1], coefficientV, w.shape)
		for j := range 2 {
			w.Raw(a64.Three("fdiv", w.shape, w.x(i, j), w.x(i, j), coefficientV))
		}
		for r := i + 1; r < w.order; r++ {
			w.coefficient(r, i)
			for j := range 2 {
				w.Raw(a64.Element("fmls", w.shape, w.x(r, j), w.x(i, j), coefficientV, 0))
			}
		}
	}
}

// times replaces x by L*x, from the last row up.
func (w *neonWedge) times() {
	for i := w.order - 1; i >= 0; i-- {
		w.coefficient(i, i)
		for j := range 2 {
			w.Raw(a64.Element("fmul", w.shape, w.x(i, j), w.x(i, j), coefficientV, 0))
		}
		for r := range i {
			w.coefficient(i, r)
			for j := range 2 {
				w.Raw(a64.Element("fmla", w.shape, w.x(i, j), w.x(r, j), coefficientV, 0))
			}
		}
	}
}
