package data

import "math/bits"

// Note: generators. The ones below give numpy's and Python's numbers exactly,
// because the order of an OLMo run is defined by them, and a run that is
// compared with, or continued from, a published one must see the same batches.
//
//	seed + epoch → SeedSequence → PCG64 → masked rejection → shuffle   instances
//	seed → MT19937 → high bits, rejected → shuffle                      files
//
// Neither is in the standard library. math/rand/v2 has a PCG with the same
// congruence but another output function (DXSM), and seeds it without a
// SeedSequence; its Shuffle draws by multiplication (Lemire), which numpy's
// bounded integers do too but numpy's shuffle does not.

// seedSequence is numpy's SeedSequence: it spreads the 32-bit words of a seed
// over a pool of four, from which a generator's state is drawn.
type seedSequence [4]uint32

// Constants of the seed_seq design by M. O'Neill that numpy uses.
const (
	seedInitA, seedMultA = 0x43b0d7e5, 0x931e8875
	seedInitB, seedMultB = 0x8b51f9dd, 0x58f38ded
	seedMixL, seedMixR   = 0xca01f9dd, 0x4973f715
)

// newSeedSequence takes the seed's words, least significant first, without
// leading zeros (a seed of 0 is one word or none).
func newSeedSequence(entropy ...uint32) seedSequence {
	var s seedSequence
	factor := uint32(seedInitA)
	hash := func(v uint32) uint32 {
		v ^= factor
		factor *= seedMultA
		v *= factor
		return v ^ v>>16
	}
	mix := func(to *uint32, from uint32) {
		v := seedMixL**to - seedMixR*from
		*to = v ^ v>>16
	}
	for i := range s {
		word := uint32(0)
		if i < len(entropy) {
			word = entropy[i]
		}
		s[i] = hash(word)
	}
	// Every word of the pool reaches every other, in this order.
	for from := range s {
		for to := range s {
			if from != to {
				mix(&s[to], hash(s[from]))
			}
		}
	}
	// Seeds of more than 128 bits fold the rest in.
	for _, word := range entropy[min(len(s), len(entropy)):] {
		for to := range s {
			mix(&s[to], hash(word))
		}
	}
	return s
}

// fill draws words for a generator's state.
func (s seedSequence) fill(words []uint32) {
	factor := uint32(seedInitB)
	for i := range words {
		v := s[i%len(s)] ^ factor
		factor *= seedMultB
		v *= factor
		words[i] = v ^ v>>16
	}
}

// uint128 is a 128-bit number modulo 2^128.
type uint128 struct{ hi, lo uint64 }

// add is a + b mod 2^128.
func (a uint128) add(b uint128) uint128 {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	hi, _ := bits.Add64(a.hi, b.hi, carry)
	return uint128{hi, lo}
}

// mul is a·b mod 2^128; the product of the high halves is beyond it.
func (a uint128) mul(b uint128) uint128 {
	hi, lo := bits.Mul64(a.lo, b.lo)
	return uint128{hi + a.hi*b.lo + a.lo*b.hi, lo}
}

// pcgMultiplier is PCG's default 128-bit multiplier.
var pcgMultiplier = uint128{0x2360ed051fc65da4, 0x4385df649fccf645}

// pcg64 is numpy's PCG64: a 128-bit linear congruence with the XSL-RR output.
type pcg64 struct {
	state, inc uint128
	half       uint32 // high half of the last 64 bits
	buffered   bool   // half is the next 32-bit number
}

// newPCG64 draws state and increment from a seed sequence, 128 bits each with the
// high half first, and steps as the reference implementation's srandom does.
func newPCG64(s seedSequence) pcg64 {
	var w [8]uint32
	s.fill(w[:])
	word := func(i int) uint64 { return uint64(w[2*i]) | uint64(w[2*i+1])<<32 }
	g := pcg64{inc: uint128{word(2)<<1 | word(3)>>63, word(3)<<1 | 1}}
	g.step()
	g.state = g.state.add(uint128{word(0), word(1)})
	g.step()
	return g
}

// newPCG64Seed seeds with a number, as Generator(PCG64(seed)) does.
func newPCG64Seed(seed uint64) pcg64 {
	if seed>>32 == 0 {
		return newPCG64(newSeedSequence(uint32(seed)))
	}
	return newPCG64(newSeedSequence(uint32(seed), uint32(seed>>32)))
}

// step advances the congruence.
func (g *pcg64) step() { g.state = g.state.mul(pcgMultiplier).add(g.inc) }

// next64 advances, then folds the state: XOR of the halves, rotated by its top six
// bits.
func (g *pcg64) next64() uint64 {
	g.step()
	return bits.RotateLeft64(g.state.hi^g.state.lo, -int(g.state.hi>>58))
}

// next32 gives the low half of a fresh 64-bit number and keeps the high half
// for the next call.
func (g *pcg64) next32() uint32 {
	if g.buffered {
		g.buffered = false
		return g.half
	}
	v := g.next64()
	g.half, g.buffered = uint32(v>>32), true
	return uint32(v)
}

// interval draws from 0…limit by masking and rejecting, as numpy's shuffle does
// (its integers method multiplies instead).
func (g *pcg64) interval(limit uint32) uint32 {
	if limit == 0 {
		return 0
	}
	mask := uint32(1)<<bits.Len32(limit) - 1
	for {
		if v := g.next32() & mask; v <= limit {
			return v
		}
	}
}

// mersenne is Python's generator, MT19937.
type mersenne struct {
	state [624]uint32
	next  int
}

// newMersenne seeds with the words of the seed's absolute value, least
// significant first, as random.Random(seed) does.
func newMersenne(seed uint64) *mersenne {
	key := []uint32{uint32(seed), uint32(seed >> 32)}
	if key[1] == 0 { // the number of words is part of the seed
		key = key[:1]
	}
	m := &mersenne{next: 624}
	m.state[0] = 19650218
	for i := 1; i < 624; i++ {
		m.state[i] = m.scramble(i, 1812433253) + uint32(i)
	}
	i := 1
	for k := range 624 {
		j := k % len(key)
		m.state[i] = m.state[i] ^ m.scramble(i, 1664525)
		m.state[i] += key[j] + uint32(j)
		i = m.after(i)
	}
	for range 623 {
		m.state[i] = m.state[i] ^ m.scramble(i, 1566083941)
		m.state[i] -= uint32(i)
		i = m.after(i)
	}
	m.state[0] = 1 << 31
	return m
}

// scramble is the term of the seeding recurrences that mixes in the word before.
func (m *mersenne) scramble(i int, factor uint32) uint32 {
	v := m.state[i-1]
	return (v ^ v>>30) * factor
}

// after moves a seeding index on, carrying the last word to the front.
func (m *mersenne) after(i int) int {
	if i++; i < 624 {
		return i
	}
	m.state[0] = m.state[623]
	return 1
}

// next32 tempers one word of the state.
func (m *mersenne) next32() uint32 {
	if m.next == 624 {
		m.refill()
	}
	v := m.state[m.next]
	m.next++
	v ^= v >> 11
	v ^= v << 7 & 0x9d2c5680
	v ^= v << 15 & 0xefc60000
	return v ^ v>>18
}

// refill computes the next 624 words from the last ones.
func (m *mersenne) refill() {
	for i := range m.state {
		y := m.state[i]&(1<<31) | m.state[(i+1)%624]&(1<<31-1)
		v := m.state[(i+397)%624] ^ y>>1
		if y&1 != 0 {
			v ^= 0x9908b0df
		}
		m.state[i] = v
	}
	m.next = 0
}

// below draws from 0…n−1 as Python's randbelow does: the high bits, rejected.
func (m *mersenne) below(n uint32) uint32 {
	shift := 32 - bits.Len32(n)
	for {
		if v := m.next32() >> shift; v < n {
			return v
		}
	}
}
