package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	noSplit = attr.NOSPLIT
	rodata  = attr.RODATA | attr.NOPTR
)

// isa is an instruction set and the tiles that its registers hold.
type isa struct {
	file, suffix string
	rows         [4]int // most rows of a tile, by vectors of columns
	bytes        int    // of a vector
	vector       func(g *gen) reg.VecVirtual
}

// avx512 has 32 registers: 27 or 28 sums, 2 or 3 of b, 2 broadcast. With two
// 512-bit multiply-adds a cycle of latency 4, 8 sums would hide the latency; more
// save loads, of which there are two a cycle: 9×3 needs 12 for 27 multiply-adds,
// 14×2 needs 16 for 28.
func avx512() isa {
	return isa{file: "avx512", suffix: "AVX512", rows: [4]int{0, 14, 14, 9}, bytes: 64,
		vector: func(g *gen) reg.VecVirtual { return g.ZMM() }}
}

// avx2 has 16 registers: 12 sums, 2 of b, 2 broadcast.
func avx2() isa {
	return isa{file: "avx2", suffix: "AVX2", rows: [4]int{0, 6, 6, 0}, bytes: 32,
		vector: func(g *gen) reg.VecVirtual { return g.YMM() }}
}

// elem is an element type and the instructions that differ by it.
type elem struct {
	prefix, goType string
	size           int
	broadcast      func(*build.Context, ...operand.Op)
	fma            func(*build.Context, ...operand.Op)
	mul            func(*build.Context, ...operand.Op)
	add            func(*build.Context, ...operand.Op)
	load           func(*build.Context, ...operand.Op)
	loadZ          func(*build.Context, operand.Op, operand.Op, operand.Op)
	maskMove       func(*build.Context, operand.Op, operand.Op, operand.Op)
	fmaBcst        func(*build.Context, ...operand.Op)
	fnma           func(*build.Context, ...operand.Op)
	div            func(*build.Context, ...operand.Op)
}

var single = elem{
	prefix: "s", goType: "float32", size: 4,
	broadcast: (*build.Context).VBROADCASTSS,
	fma:       (*build.Context).VFMADD231PS,
	mul:       (*build.Context).VMULPS,
	add:       (*build.Context).VADDPS,
	load:      (*build.Context).VMOVUPS,
	loadZ:     (*build.Context).VMOVUPS_Z,
	maskMove:  (*build.Context).VMASKMOVPS,
	fmaBcst:   (*build.Context).VFMADD231PS_BCST,
	fnma:      (*build.Context).VFNMADD231PS,
	div:       (*build.Context).VDIVPS,
}

var double = elem{
	prefix: "d", goType: "float64", size: 8,
	broadcast: (*build.Context).VBROADCASTSD,
	fma:       (*build.Context).VFMADD231PD,
	mul:       (*build.Context).VMULPD,
	add:       (*build.Context).VADDPD,
	load:      (*build.Context).VMOVUPD,
	loadZ:     (*build.Context).VMOVUPD_Z,
	maskMove:  (*build.Context).VMASKMOVPD,
	fmaBcst:   (*build.Context).VFMADD231PD_BCST,
	fnma:      (*build.Context).VFNMADD231PD,
	div:       (*build.Context).VDIVPD,
}

// lanes is how many elements a vector of s holds.
func (e elem) lanes(s isa) int { return s.bytes / e.size }

// shift is log2 of the element size.
func (e elem) shift() int {
	if e.size == 8 {
		return 3
	}
	return 2
}
