package main

import (
	"fmt"

	"github.com/asteria-runtime/asteria/gemm/_gen/a64"
)

// moves names the instruction that moves as many bytes as the elements of a part.
func (p part) move(elements int) string {
	bytes := map[part]int{all: 4 * elements, one: 4, two: 8, three: 8}[p]
	return map[int]string{4: "FMOVS", 8: "FMOVD", 16: "FMOVQ"}[bytes]
}

func (b *neonBody) ld(name string) value { return b.read(name, 4) }

// read loads up to the given elements; a third one in the tail is loaded by itself.
func (b *neonBody) read(name string, elements int) value {
	p, move, disp := b.k.pointers[name], b.part.move(elements), b.disp
	v := b.do(func(d a64.V, _ func(lane) a64.V) string {
		return fmt.Sprintf("%s %d(R%d), F%d", move, disp, p, d)
	})
	if b.part == three {
		b.also(v.(lane), func(r func(lane) a64.V) string {
			return fmt.Sprintf("ADD $8, R%d, R8\n\tVLD1 (R8), V%d.S[2]", p, r(v.(lane)))
		})
	}
	return v
}

func (b *neonBody) ldOr(name, fill string) value {
	v := b.ld(name)
	if b.part == all {
		return v
	}
	return b.choose(b.copyOf(b.c(b.mask())), v, b.c(fill))
}

// mask names the constant that has ones in the elements of a part.
func (b *neonBody) mask() string { return fmt.Sprintf("live%d", int(b.part)) }

func (b *neonBody) copyOf(x value) value { return b.native("VORR", "B16", x, x) }

func (b *neonBody) ldDouble(name string) value {
	v := b.read(name, 2)
	return b.do(func(d a64.V, r func(lane) a64.V) string { return a64.Widen(d, r(v.(lane))) }, v)
}

func (b *neonBody) st(name string, v value) {
	p, move, disp := b.k.pointers[name], b.part.move(4), b.disp
	b.also(-1, func(r func(lane) a64.V) string {
		return fmt.Sprintf("%s F%d, %d(R%d)", move, r(v.(lane)), disp, p)
	}, v)
	if b.part == three {
		b.also(-1, func(r func(lane) a64.V) string {
			return fmt.Sprintf("ADD $8, R%d, R8\n\tVST1 V%d.S[2], (R8)", p, r(v.(lane)))
		}, v)
	}
}

func (b *neonBody) live(v value) value {
	if b.part == all {
		return v
	}
	return b.and(v, b.mask())
}

// neonConstants are the constants with the masks of a tail of one to three elements.
func neonConstants() (words []uint32) {
	for _, c := range constants {
		words = append(words, c.bits, c.bits, c.bits, c.bits)
	}
	for n := 1; n <= 3; n++ {
		for i := range 4 {
			w := uint32(0)
			if i < n {
				w = ^w
			}
			words = append(words, w)
		}
	}
	return words
}

// constantOffset is where a constant lies in the table.
func constantOffset(name string) int {
	for i, c := range constants {
		if c.name == name {
			return 16 * i
		}
	}
	for n := 1; n <= 3; n++ {
		if name == fmt.Sprintf("live%d", n) {
			return 16 * (len(constants) + n - 1)
		}
	}
	panic("vec/_gen: no constant " + name)
}
