package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Offsets of the fields of wedge[T]; a test of package gemm holds them.
const (
	offWedgeL     = 0
	offWedgeB     = 24
	offWedgeAt    = 48
	offWedgeStep  = 56
	offWedgeWidth = 64
)

// wedgeStride is the number of elements between rows of the coefficients.
const wedgeStride = 16

// wedgeGen emits one kernel that solves with, or multiplies by, a lower triangle
// of the given order, on two vectors of columns that stay in registers.
type wedgeGen struct {
	*gen
	e     elem
	order int
	t     reg.Register
	l     reg.Register
	masks []reg.Register
	x     [][]reg.VecVirtual
}

// wedgeKernels emits the kernels of every order that the registers hold.
func (g *gen) wedgeKernels(e elem) {
	for _, solve := range []bool{true, false} {
		word := map[bool]string{true: "Solve", false: "Times"}[solve]
		var names []string
		for order := 1; order <= g.isa.rows[2]; order++ {
			w := &wedgeGen{gen: g, e: e, order: order}
			name := fmt.Sprintf("%s%s%d%s", e.prefix, word, order, g.isa.suffix)
			g.text(name, "func(t *byte)", "(t *wedge["+e.goType+"])", "works in a triangle of that order.")
			w.emit(solve)
			names = append(names, name)
		}
		g.list(e.prefix+word+"Kernels"+g.isa.suffix, "func(*wedge["+e.goType+"])", names)
	}
}

func (w *wedgeGen) emit(solve bool) {
	w.t = w.Load(w.Param("t"), w.GP64())
	w.l = w.GP64()
	w.MOVQ(Mem{Base: w.t, Disp: offWedgeL}, w.l)
	w.rows(func(row int, p reg.Register) {
		pair := []reg.VecVirtual{w.isa.vector(w.gen), w.isa.vector(w.gen)}
		for j, v := range pair {
			w.loadMasked(w.e, Mem{Base: p, Disp: j * w.isa.bytes}, w.masks[j], v)
		}
		w.x = append(w.x, pair)
	})
	if solve {
		w.solve()
	} else {
		w.times()
	}
	w.rows(func(row int, p reg.Register) {
		for j, v := range w.x[row] {
			w.storeMasked(w.e, v, w.masks[j], Mem{Base: p, Disp: j * w.isa.bytes})
		}
	})
	w.VZEROUPPER()
	w.RET()
}

// rows makes the masks and calls f for every row with its address.
func (w *wedgeGen) rows(f func(row int, p reg.Register)) {
	n, p, step := w.GP64(), w.GP64(), w.GP64()
	w.MOVQ(Mem{Base: w.t, Disp: offWedgeWidth}, n)
	w.masks = w.masksOf(w.e, n)
	w.MOVQ(Mem{Base: w.t, Disp: offWedgeAt}, p)
	w.SHLQ(Imm(uint64(w.e.shift())), p)
	w.ADDQ(Mem{Base: w.t, Disp: offWedgeB}, p)
	w.MOVQ(Mem{Base: w.t, Disp: offWedgeStep}, step)
	w.SHLQ(Imm(uint64(w.e.shift())), step)
	for row := range w.order {
		f(row, p)
		if row < w.order-1 {
			w.ADDQ(step, p)
		}
	}
}

// coefficient broadcasts element (i, j) of the triangle.
func (w *wedgeGen) coefficient(i, j int) reg.VecVirtual {
	v := w.isa.vector(w.gen)
	w.e.broadcast(w.Context, Mem{Base: w.l, Disp: (i*wedgeStride + j) * w.e.size}, v)
	return v
}

// solve replaces x by the solution of L*x = b, row by row.
func (w *wedgeGen) solve() {
	for i := range w.order {
		d := w.coefficient(i, i)
		for _, v := range w.x[i] {
			w.e.div(w.Context, d, v, v)
		}
		for r := i + 1; r < w.order; r++ {
			c := w.coefficient(r, i)
			for j := range w.x[r] {
				w.e.fnma(w.Context, c, w.x[i][j], w.x[r][j])
			}
		}
	}
}

// times replaces x by L*x, from the last row up.
func (w *wedgeGen) times() {
	for i := w.order - 1; i >= 0; i-- {
		d := w.coefficient(i, i)
		for _, v := range w.x[i] {
			w.e.mul(w.Context, d, v, v)
		}
		for r := range i {
			c := w.coefficient(i, r)
			for j := range w.x[i] {
				w.e.fma(w.Context, c, w.x[r][j], w.x[i][j])
			}
		}
	}
}
