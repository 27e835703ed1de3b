package main

import "github.com/mmcloughlin/avo/operand"

// value is a vector in a register, or a constant in memory.
type value = operand.Op

// machine emits one unrolled piece of a kernel for an instruction set. The bodies of
// the kernel table are written for it, so that every set rounds alike.
type machine interface {
	// ld loads the vector at this place; elements behind the end are zero.
	ld(slice string) value
	// ldOr loads with a constant in place of elements behind the end.
	ldOr(slice, fill string) value
	// ldDouble loads half a vector of float32 and widens it to float64.
	ldDouble(slice string) value
	// st stores, nothing behind the end.
	st(slice string, v value)
	// live zeroes the elements of v behind the end.
	live(v value) value

	s(name string) value    // a scalar parameter in all lanes
	c(name string) value    // a constant in all lanes, as second operand
	load(name string) value // a constant in a register

	add(x, y value) value
	sub(x, y value) value
	mul(x, y value) value
	div(x, y value) value
	sqrt(x value) value
	square64(x value) value // of float64

	// max gives x > y ? x : y and min gives x < y ? x : y, so that a NaN in either
	// yields y.
	max(x, y value) value
	min(x, y value) value

	xor(x value, constant string) value
	and(x value, constant string) value
	// inside returns x where lo <= y <= hi, 0 elsewhere; a NaN y counts as inside.
	inside(x, y, lo, hi value) value
	// exp is exp32 of the specification, operation by operation.
	exp(x value) value
}

// expPolynomial returns exp(y)/2^n for y within the limits of exp32, the rounded
// multiple n of ln(2), and t, whose low bits are n as an integer.
func expPolynomial(b machine, y value) (p, n, t value) {
	t = b.add(b.mul(y, b.c("log2e")), b.c("magic"))
	n = b.sub(t, b.c("magic"))
	r := b.sub(y, b.mul(n, b.c("ln2hi")))
	r = b.sub(r, b.mul(n, b.c("ln2lo")))
	p = b.add(b.mul(r, b.c("exp4")), b.c("exp3"))
	for _, c := range []string{"exp2", "exp1", "exp0"} {
		p = b.add(b.mul(p, r), b.c(c))
	}
	p = b.mul(b.mul(r, r), p)
	return b.add(b.add(p, r), b.c("one")), n, t
}
