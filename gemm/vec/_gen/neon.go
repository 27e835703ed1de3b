package main

import (
	"fmt"

	"github.com/asteria-runtime/asteria/gemm/_gen/a64"
)

// part says which elements of the vector at a place exist.
type part int

const (
	all part = iota // the whole vector
	one             // one element; lanes beyond it are computed and not stored
	// two and three elements of a reduction's tail, each in its lane.
	two
	three
)

// lane is a value of the NEON machine: a register that the block assigns, or one
// that the kernel has reserved.
type lane int

// Asm makes lane a value; it names no register yet.
func (l lane) Asm() string { return fmt.Sprintf("v%d", int(l)) }

// firstFree is the first value that has no reserved register.
const firstFree lane = 32

// step is one instruction of a block.
type step struct {
	def  lane // -1 where nothing is defined; what is updated in place is also used
	uses []lane
	text func(r func(lane) a64.V) string
}

// neonBody is the machine of a straight-line block. It collects instructions on
// values and assigns registers at the end.
type neonBody struct {
	k      *neonKernel
	part   part
	disp   int // bytes from the slices' pointers
	steps  []step
	values lane
}

// neonKernel emits one kernel. Registers: R0 to R5 the slices, R6 the elements left,
// R7 the constants, R8 and R9 scratch; of vectors, those in fixed and constant are
// reserved.
type neonKernel struct {
	*kernel
	text     *a64.Text
	pointers map[string]int
	scalars  map[string]lane
	constant map[string]lane // kept in registers
	met      map[string]bool // constants that the body asked for
	reserved map[lane]bool
}

func (k *neonKernel) block(p part) *neonBody { return &neonBody{k: k, part: p, values: firstFree} }

// do appends an instruction that defines a new value.
func (b *neonBody) do(text func(d a64.V, r func(lane) a64.V) string, uses ...value) value {
	d := b.values
	b.values++
	b.steps = append(b.steps, step{def: d, uses: lanesOf(uses), text: func(r func(lane) a64.V) string { return text(r(d), r) }})
	return d
}

// also appends an instruction that changes d, or memory when d is negative.
func (b *neonBody) also(d lane, text func(r func(lane) a64.V) string, uses ...value) {
	u := lanesOf(uses)
	if d >= 0 {
		u = append(u, d)
	}
	b.steps = append(b.steps, step{def: d, uses: u, text: text})
}

func lanesOf(values []value) (ls []lane) {
	for _, v := range values {
		ls = append(ls, v.(lane))
	}
	return ls
}

// flush assigns registers in the order of use, oldest free one first, so that
// neighbouring blocks do not wait for each other, and writes the block.
func (b *neonBody) flush() {
	last := map[lane]int{}
	for i, s := range b.steps {
		for _, u := range append(s.uses, s.def) {
			last[u] = i
		}
	}
	var free []a64.V
	for v := range a64.V(32) {
		if !b.k.reserved[lane(v)] {
			free = append(free, v)
		}
	}
	where := map[lane]a64.V{}
	reg := func(l lane) a64.V {
		if l < firstFree {
			return a64.V(l)
		}
		return where[l]
	}
	release := func(l lane, i int) {
		if v, ok := where[l]; ok && last[l] == i {
			free = append(free, v)
			delete(where, l)
		}
	}
	for i, s := range b.steps {
		if _, ok := where[s.def]; s.def >= firstFree && !ok {
			if len(free) == 0 {
				panic("vec/_gen: " + b.k.name + " needs more registers than there are")
			}
			where[s.def], free = free[0], free[1:]
		}
		b.k.text.Raw(s.text(reg))
		for _, u := range append(s.uses, s.def) {
			release(u, i)
		}
	}
	b.steps = nil
}

// three is an instruction on three vectors of float32.
func (b *neonBody) three(op string, x, y value) value {
	return b.do(func(d a64.V, r func(lane) a64.V) string {
		return a64.Three(op, a64.S4, d, r(x.(lane)), r(y.(lane)))
	}, x, y)
}

// native is an instruction that Go's assembler has, on vectors of the given shape:
// op y, x, d.
func (b *neonBody) native(op, shape string, x, y value) value {
	return b.do(func(d a64.V, r func(lane) a64.V) string {
		return fmt.Sprintf("%s V%d.%s, V%d.%s, V%d.%s", op, r(y.(lane)), shape, r(x.(lane)), shape, d, shape)
	}, x, y)
}

func (b *neonBody) add(x, y value) value { return b.three("fadd", x, y) }
func (b *neonBody) sub(x, y value) value { return b.three("fsub", x, y) }
func (b *neonBody) mul(x, y value) value { return b.three("fmul", x, y) }
func (b *neonBody) div(x, y value) value { return b.three("fdiv", x, y) }

func (b *neonBody) max(x, y value) value { return b.choose(b.three("fcmgt", x, y), x, y) }
func (b *neonBody) min(x, y value) value { return b.choose(b.three("fcmgt", y, x), x, y) }

// choose returns x where mask has ones and y elsewhere.
func (b *neonBody) choose(mask, x, y value) value {
	b.also(mask.(lane), func(r func(lane) a64.V) string {
		return fmt.Sprintf("VBSL V%d.B16, V%d.B16, V%d.B16", r(y.(lane)), r(x.(lane)), r(mask.(lane)))
	}, x, y)
	return mask
}

// clear returns x where mask has zeros and 0 elsewhere.
func (b *neonBody) clear(x, mask value) value {
	return b.do(func(d a64.V, r func(lane) a64.V) string {
		return a64.Clear(d, r(x.(lane)), r(mask.(lane)))
	}, x, mask)
}

func (b *neonBody) sqrt(x value) value {
	return b.do(func(d a64.V, r func(lane) a64.V) string { return a64.Sqrt(a64.S4, d, r(x.(lane))) }, x)
}

func (b *neonBody) square64(x value) value {
	return b.do(func(d a64.V, r func(lane) a64.V) string {
		return a64.Three("fmul", a64.D2, d, r(x.(lane)), r(x.(lane)))
	}, x)
}

func (b *neonBody) xor(x value, constant string) value {
	return b.native("VEOR", "B16", x, b.c(constant))
}

func (b *neonBody) and(x value, constant string) value {
	return b.native("VAND", "B16", x, b.c(constant))
}

func (b *neonBody) inside(x, y, lo, hi value) value {
	out := b.native("VORR", "B16", b.three("fcmgt", lo, y), b.three("fcmgt", y, hi))
	return b.clear(x, out)
}

func (b *neonBody) s(name string) value    { return b.k.scalars[name] }
func (b *neonBody) load(name string) value { return b.c(name) }

// c returns the register that keeps a constant, or loads it.
func (b *neonBody) c(name string) value {
	b.k.met[name] = true
	if l, ok := b.k.constant[name]; ok {
		return l
	}
	return b.do(func(d a64.V, _ func(lane) a64.V) string {
		return fmt.Sprintf("FMOVQ %d(R7), F%d", constantOffset(name), d)
	})
}

// exp is exp32 of the specification. A comparison with NaN is false, so that NaN
// goes on to the end.
func (b *neonBody) exp(x value) value {
	below := b.three("fcmgt", b.c("expmin"), x)
	y := b.clear(b.three("fmin", x, b.c("expmax")), below)
	p, _, t := expPolynomial(b, y)
	n := b.native("VSUB", "S4", t, b.c("magic"))
	h := b.do(func(d a64.V, r func(lane) a64.V) string { return a64.ShiftRight(d, r(n.(lane)), 1) }, n)
	for _, k := range []value{h, b.native("VSUB", "S4", n, h)} { // 2^n in two steps; the first product is exact
		p = b.mul(p, b.power(k))
	}
	return b.clear(p, below)
}

// power returns 2^k for integers k.
func (b *neonBody) power(k value) value {
	e := b.native("VADD", "S4", k, b.c("bias"))
	return b.do(func(d a64.V, r func(lane) a64.V) string {
		return fmt.Sprintf("VSHL $23, V%d.S4, V%d.S4", r(e.(lane)), d)
	}, e)
}
