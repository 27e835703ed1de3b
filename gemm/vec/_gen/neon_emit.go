package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/asteria-runtime/asteria/gemm/_gen/a64"
)

// constraintNEON is when the NEON kernels are built.
const constraintNEON = "arm64 && gc && !noasm"

// neonFiles returns the assembly of every kernel and its declarations.
func neonFiles(ks []*kernel) (asm []byte, stubs string) {
	t := &a64.Text{}
	t.Head("the kernel generator in _gen", constraintNEON)
	t.Words("neonConstants", neonConstants())
	var decl strings.Builder
	fmt.Fprintf(&decl, header, constraintNEON)
	for _, k := range ks {
		emitNEON(t, k)
		fmt.Fprintf(&decl, "// %sNEON %s\n//\n//go:noescape\nfunc %sNEON%s\n\n", k.name, k.doc, k.name, strings.TrimPrefix(k.signature(), "func"))
	}
	return t.Bytes(), decl.String()
}

// emitNEON writes one kernel: once in vain, to learn which constants it needs.
func emitNEON(t *a64.Text, k *kernel) {
	n := &neonKernel{kernel: k, text: &a64.Text{}, met: map[string]bool{}}
	n.emit()
	keep := slices.Sorted(maps.Keys(n.met))
	if k.fold != none {
		keep = nil // the sums need the registers
	}
	n = &neonKernel{kernel: k, text: t, met: n.met}
	n.emit(keep...)
}

// emit writes the kernel with the given constants kept in registers.
func (k *neonKernel) emit(keep ...string) {
	frame := 0
	if k.fold != none {
		frame = 256
	}
	k.pointers, k.scalars, k.constant, k.reserved = map[string]int{}, map[string]lane{}, map[string]lane{}, map[lane]bool{}
	offset := k.arguments(frame)
	if len(k.met) > 0 {
		k.text.Op("MOVD $neonConstants<>(SB), R7")
	}
	for _, name := range keep {
		v := k.reserve()
		k.text.Op("FMOVQ %d(R7), F%d", constantOffset(name), v)
		k.constant[name] = v
	}
	if k.fold == none {
		k.elements()
	} else {
		k.reduce(offset)
	}
	k.text.Op("RET")
}

// reserve takes the highest register that is left.
func (k *neonKernel) reserve() lane {
	v := lane(31 - len(k.reserved))
	k.reserved[v] = true
	return v
}

// arguments starts the function, loads the parameters and returns the offset of the
// result.
func (k *neonKernel) arguments(frame int) int {
	offset := 8*len(k.slices) + 8
	result := (offset + 4*len(k.kernel.scalars) + 7) &^ 7
	size := offset + 4*len(k.kernel.scalars)
	if r := k.result(); r != "" {
		size = result + map[string]int{"float32": 4, "uint32": 4, "float64": 8}[r]
	}
	k.text.Func(k.name+"NEON", k.doc, frame, size)
	for i, s := range k.slices {
		k.pointers[s] = i
		k.text.Op("MOVD %s+%d(FP), R%d", s, 8*i, i)
	}
	k.text.Op("MOVD n+%d(FP), R6", 8*len(k.slices))
	for i, s := range k.kernel.scalars {
		v := k.reserve()
		k.scalars[s] = v
		k.text.Op("FMOVS %s+%d(FP), F%d", s, offset+4*i, v)
		k.text.Op("VDUP V%d.S[0], V%d.S4", v, v)
	}
	return result
}

// advance moves the slices' pointers.
func (k *neonKernel) advance(bytes int) {
	for i := range k.slices {
		k.text.Op("ADD $%d, R%d", bytes, i)
	}
}

// elements runs the body over whole groups, then whole vectors, then single elements.
func (k *neonKernel) elements() {
	loop := func(label string, vectors int) {
		k.text.Label(label)
		k.text.Op("CMP $%d, R6", 4*vectors)
		k.text.Op("BLT %s_done", label)
		b := k.block(all)
		for u := range vectors {
			b.disp = 16 * u
			k.body(b)
		}
		b.flush()
		k.advance(16 * vectors)
		k.text.Op("SUB $%d, R6", 4*vectors)
		k.text.Op("B %s", label)
		k.text.Label(label + "_done")
	}
	if k.unroll > 1 {
		loop("group", k.unroll)
	}
	loop("single", 1)
	k.text.Op("CBZ R6, done")
	k.text.Label("one")
	b := k.block(one)
	k.body(b)
	b.flush()
	k.advance(4)
	k.text.Op("SUBS $1, R6, R6")
	k.text.Op("BNE one")
	k.text.Label("done")
}

// reduce keeps element i of a chunk in lane i%64 (i%32 for float64), 16 registers
// either way, and folds the lanes in halves. The tail works on lanes in memory.
func (k *neonKernel) reduce(result int) {
	per := 4
	if k.fold == add64 {
		per = 2
	}
	var ordered lane = -1
	if k.fold == most {
		ordered = k.reserve()
		k.text.Op("VCMEQ V%d.B16, V%d.B16, V%d.B16", ordered, ordered, ordered)
	}
	for j := range 16 {
		k.reserved[lane(j)] = true
		if k.fold == most {
			k.text.Op("FMOVQ %d(R7), F%d", constantOffset("neginf"), j)
			k.met["neginf"] = true
			continue
		}
		k.text.Op("VEOR V%d.B16, V%d.B16, V%d.B16", j, j, j)
	}
	k.text.Label("group")
	k.text.Op("CMP $%d, R6", 16*per)
	k.text.Op("BLT group_done")
	b := k.block(all)
	for j := range 16 {
		b.disp = 4 * per * j
		b.accumulate(lane(j), ordered)
	}
	b.flush()
	k.advance(64 * per)
	k.text.Op("SUB $%d, R6", 16*per)
	k.text.Op("B group")
	k.text.Label("group_done")
	k.text.Op("CBZ R6, fold")
	k.tail(per, ordered)
	k.text.Label("fold")
	k.finish(result, ordered)
}

// tail adds what is left of a group to lanes in memory, at R9.
func (k *neonKernel) tail(per int, ordered lane) {
	k.text.Op("MOVD $lanes-256(SP), R9")
	for j := range 16 {
		k.text.Op("FMOVQ F%d, %d(R9)", j, 16*j)
	}
	k.text.Label("vector")
	k.text.Op("CMP $%d, R6", per)
	k.text.Op("BLT rest")
	k.tailStep(all, ordered)
	k.advance(4 * per)
	k.text.Op("ADD $16, R9")
	k.text.Op("SUB $%d, R6", per)
	k.text.Op("B vector")
	k.text.Label("rest")
	k.text.Op("CBZ R6, reload")
	for p := one; int(p) < per; p++ {
		if int(p) < per-1 {
			k.text.Op("CMP $%d, R6", int(p))
			k.text.Op("BNE rest%d", int(p))
		}
		k.tailStep(p, ordered)
		if int(p) < per-1 {
			k.text.Op("B reload")
			k.text.Label(fmt.Sprintf("rest%d", int(p)))
		}
	}
	k.text.Label("reload")
	k.text.Op("MOVD $lanes-256(SP), R9")
	for j := range 16 {
		k.text.Op("FMOVQ %d(R9), F%d", 16*j, j)
	}
}

// tailStep adds a vector or a part of one to the lanes at R9.
func (k *neonKernel) tailStep(p part, ordered lane) {
	k.text.Op("FMOVQ (R9), F0")
	b := k.block(p)
	b.accumulate(0, ordered)
	b.flush()
	k.text.Op("FMOVQ F0, (R9)")
}

// accumulate adds the body's vector to the lanes in acc.
func (b *neonBody) accumulate(acc, ordered lane) {
	v := b.k.body(b)
	if b.k.fold == most {
		number := b.three("fcmeq", v, v)
		b.also(ordered, func(r func(lane) a64.V) string {
			return fmt.Sprintf("VAND V%d.B16, V%d.B16, V%d.B16", r(number.(lane)), r(ordered), r(ordered))
		}, number)
	}
	b.combine(acc, v)
}

// combine sets acc to its sum or maximum with v.
func (b *neonBody) combine(acc lane, v value) {
	switch b.k.fold {
	case add, add64:
		shape := map[fold]a64.Shape{add: a64.S4, add64: a64.D2}[b.k.fold]
		b.also(acc, func(r func(lane) a64.V) string { return a64.Three("fadd", shape, r(acc), r(acc), r(v.(lane))) }, v)
	case most:
		larger := b.three("fcmgt", v, acc)
		b.also(acc, func(r func(lane) a64.V) string {
			return fmt.Sprintf("VBIT V%d.B16, V%d.B16, V%d.B16", r(larger.(lane)), r(v.(lane)), r(acc))
		}, v, larger)
	case umax:
		b.also(acc, func(r func(lane) a64.V) string {
			return fmt.Sprintf("VUMAX V%d.S4, V%d.S4, V%d.S4", r(v.(lane)), r(acc), r(acc))
		}, v)
	}
}

// finish folds the lanes to one value and stores it.
func (k *neonKernel) finish(result int, ordered lane) {
	b := k.block(all)
	for w := 8; w > 0; w /= 2 {
		for j := range w {
			b.combine(lane(j), lane(j+w))
		}
	}
	b.combine(0, b.broadcast(0, "D[1]", "D2"))
	if k.fold != add64 {
		b.combine(0, b.broadcast(0, "S[1]", "S4"))
	}
	b.flush()
	if k.fold == most {
		k.keepNaN(ordered)
	}
	move := map[fold]string{add64: "FMOVD"}[k.fold]
	if move == "" {
		move = "FMOVS"
	}
	k.text.Op("%s F0, sum+%d(FP)", move, result)
}

// broadcast returns one element of x in all lanes.
func (b *neonBody) broadcast(x lane, element, shape string) value {
	return b.do(func(d a64.V, r func(lane) a64.V) string {
		return fmt.Sprintf("VDUP V%d.%s, V%d.%s", r(x), element, d, shape)
	}, x)
}

// keepNaN replaces the result by NaN when any element was one: when a lane of
// ordered is not all ones.
func (k *neonKernel) keepNaN(ordered lane) {
	k.text.Op("VMOV V%d.D[0], R8", ordered)
	k.text.Op("VMOV V%d.D[1], R9", ordered)
	k.text.Op("AND R8, R9")
	k.text.Op("CMN $1, R9")
	k.text.Op("BEQ numbers")
	k.text.Op("FMOVQ %d(R7), F0", constantOffset("live3"))
	k.text.Label("numbers")
}
