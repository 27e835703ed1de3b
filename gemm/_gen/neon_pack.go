package main

import (
	"fmt"

	"github.com/asteria-runtime/asteria/gemm/_gen/a64"
)

// copyKernel emits the packing of rows: whole vectors, then single elements, then
// zeros up to the padded width.
func (g *neon) copyKernel(e arm) {
	g.declare(e.prefix+"CopyNEON", packGoOf(e), "packs depth rows of width elements, padded with zeros.", 0, 7)
	g.Op("MOVD dst+0(FP), R0")
	g.Op("MOVD ldd+8(FP), R1")
	g.Op("MOVD src+16(FP), R2")
	g.Op("MOVD lds+24(FP), R3")
	g.Op("MOVD depth+32(FP), R4")
	g.Op("MOVD width+40(FP), R5")
	g.Op("MOVD pad+48(FP), R6")
	g.Op("SUB R5, R6")
	g.Op("LSL $%d, R1", e.shift())
	g.Op("LSL $%d, R3", e.shift())
	g.Label("row")
	g.Op("MOVD R0, R7")
	g.Op("MOVD R2, R8")
	g.Op("SUBS $%d, R5, R9", e.lanes())
	g.Op("BLT tail")
	g.Label("vector")
	g.Op("FMOVQ.P 16(R8), F0")
	g.Op("FMOVQ.P F0, 16(R7)")
	g.Op("SUBS $%d, R9, R9", e.lanes())
	g.Op("BGE vector")
	g.Label("tail")
	g.Op("ADDS $%d, R9, R9", e.lanes())
	g.Op("BEQ padding")
	g.Label("element")
	g.Op("%s.P %d(R8), F0", e.load, e.size())
	g.Op("%s.P F0, %d(R7)", e.load, e.size())
	g.Op("SUBS $1, R9, R9")
	g.Op("BNE element")
	g.Label("padding")
	g.Op("CBZ R6, next")
	g.Op("MOVD R6, R9")
	g.Label("zero")
	g.Op("%s.P ZR, %d(R7)", map[int]string{4: "MOVW", 8: "MOVD"}[e.size()], e.size())
	g.Op("SUBS $1, R9, R9")
	g.Op("BNE zero")
	g.Label("next")
	g.Op("ADD R1, R0")
	g.Op("ADD R3, R2")
	g.Op("SUBS $1, R4, R4")
	g.Op("BNE row")
	g.Op("RET")
}

func packGoOf(e arm) string {
	return fmt.Sprintf("(dst *%s, ldd int, src *%s, lds int, depth int, width int, pad int)", e.goType, e.goType)
}

// turnKernel emits the transposition of one vector of rows, in square blocks.
func (g *neon) turnKernel(e arm) {
	g.declare(e.prefix+"TurnNEON", fmt.Sprintf("(dst *%s, ldd int, src *%s, lds int, blocks int)", e.goType, e.goType),
		fmt.Sprintf("transposes %d rows of %d*blocks elements.", e.lanes(), e.lanes()), 0, 5)
	g.Op("MOVD dst+0(FP), R0")
	g.Op("MOVD ldd+8(FP), R1")
	g.Op("MOVD src+16(FP), R2")
	g.Op("MOVD lds+24(FP), R3")
	g.Op("MOVD blocks+32(FP), R4")
	g.Op("LSL $%d, R1", e.shift())
	g.Op("LSL $%d, R3", e.shift())
	for i := 1; i < e.lanes(); i++ {
		g.Op("ADD R3, R%d, R%d", []int{0, 2, 5, 6}[i], []int{0, 5, 6, 7}[i])
	}
	g.Label("block")
	for i := range e.lanes() {
		g.Op("FMOVQ.P 16(R%d), F%d", []int{2, 5, 6, 7}[i], i)
	}
	for _, v := range g.turned(e) {
		g.Op("FMOVQ F%d, (R0)", v)
		g.Op("ADD R1, R0")
	}
	g.Op("SUBS $1, R4, R4")
	g.Op("BNE block")
	g.Op("RET")
}

// turned emits the transposition of V0… and returns the registers of its rows.
func (g *neon) turned(e arm) []a64.V {
	if e.shape == a64.D2 {
		g.Op("VZIP1 V1.D2, V0.D2, V4.D2")
		g.Op("VZIP2 V1.D2, V0.D2, V5.D2")
		return []a64.V{4, 5}
	}
	for _, pair := range [][2]int{{0, 4}, {2, 6}} { // rows 0 and 1, 2 and 3
		g.Op("VTRN1 V%d.S4, V%d.S4, V%d.S4", pair[0]+1, pair[0], pair[1])
		g.Op("VTRN2 V%d.S4, V%d.S4, V%d.S4", pair[0]+1, pair[0], pair[1]+1)
	}
	for i, op := range []string{"VTRN1", "VTRN2"} { // V4 and V6 hold columns 0 and 2
		g.Op("%s V6.D2, V4.D2, V%d.D2", op, 16+2*i)
		g.Op("%s V7.D2, V5.D2, V%d.D2", op, 17+2*i)
	}
	return []a64.V{16, 17, 18, 19}
}

// peakKernel emits a loop of independent multiply-adds: the ceiling that the
// benchmarks compare with.
func (g *neon) peakKernel(e arm) {
	g.declare(e.prefix+"PeakNEON", "(n int)", fmt.Sprintf("does n rounds of 24 multiply-adds of %d elements.", e.lanes()), 0, 1)
	g.Op("MOVD n+0(FP), R0")
	for v := range a64.V(25) {
		g.zero(v)
	}
	g.Label("loop")
	for v := range a64.V(24) {
		g.Op("VFMLA V24.%v, V24.%v, V%d.%v", e.shape, e.shape, v, e.shape)
	}
	g.Op("SUBS $1, R0, R0")
	g.Op("BNE loop")
	g.Op("RET")
}
