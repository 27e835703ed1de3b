package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// class sorts runes as the pre-tokenizer patterns do.
type class uint8

// A byte that is not part of a valid rune is other.
const (
	other   class = iota // [^\s\p{L}\p{N}]
	letter               // \p{L}
	number               // \p{N}
	space                // \s without the two below
	newline              // [\r\n]
)

// tableRunes covers the planes with scripts in daily use; beyond them, such as
// in the rarer ideographs, the unicode package is asked.
const tableRunes = 0x20000

// classTable holds the class of each rune below tableRunes: one load a rune,
// where the unicode package would search ranges.
type classTable [tableRunes]class

// newClassTable fills the table from the unicode package; later lines win, so that
// line ends are no ordinary spaces.
func newClassTable() *classTable {
	c := new(classTable)
	for _, r := range since15 {
		c.fill(&unicode.RangeTable{R32: []unicode.Range32{{Lo: r.lo, Hi: r.hi, Stride: 1}}}, r.k)
	}
	c.fill(unicode.L, letter)
	c.fill(unicode.N, number)
	c.fill(unicode.White_Space, space)
	c['\r'], c['\n'] = newline, newline
	return c
}

// fill gives all runes of a table a class.
func (c *classTable) fill(t *unicode.RangeTable, k class) {
	for _, r := range t.R16 {
		for x := uint32(r.Lo); x <= uint32(r.Hi); x += uint32(r.Stride) {
			c[x] = k
		}
	}
	for _, r := range t.R32 {
		for x := r.Lo; x <= r.Hi && x < tableRunes; x += r.Stride {
			c[x] = k
		}
	}
}

// extensionI is CJK Unified Ideographs Extension I, new in Unicode 15.1.
func extensionI(r rune) bool { return r >= 0x2ebf0 && r <= 0x2ee5d }

// since15 lists the letters and numbers below tableRunes that Unicode 15.1 and
// 16 added to the version 15 of package unicode up to Go 1.26: the reference
// library's regular expressions know them, and ids must not depend on the
// toolchain.
var since15 = [...]struct {
	lo, hi uint32
	k      class
}{
	{0x1c89, 0x1c8a, letter}, {0xa7cb, 0xa7cd, letter}, {0xa7da, 0xa7dc, letter},
	{0x105c0, 0x105f3, letter}, {0x10d40, 0x10d49, number}, {0x10d4a, 0x10d65, letter},
	{0x10d6f, 0x10d85, letter}, {0x10ec2, 0x10ec4, letter}, {0x11380, 0x11389, letter},
	{0x1138b, 0x1138b, letter}, {0x1138e, 0x1138e, letter}, {0x11390, 0x113b5, letter},
	{0x113b7, 0x113b7, letter}, {0x113d1, 0x113d1, letter}, {0x113d3, 0x113d3, letter},
	{0x116d0, 0x116e3, number}, {0x11bc0, 0x11be0, letter}, {0x11bf0, 0x11bf9, number},
	{0x13460, 0x143fa, letter}, {0x16100, 0x1611d, letter}, {0x16130, 0x16139, number},
	{0x16d40, 0x16d6c, letter}, {0x16d70, 0x16d79, number}, {0x18cff, 0x18cff, letter},
	{0x1ccf0, 0x1ccf9, number}, {0x1e5d0, 0x1e5ed, letter}, {0x1e5f0, 0x1e5f0, letter},
	{0x1e5f1, 0x1e5fa, number},
}

// at returns the class and the size of the rune at the start of a non-empty text.
func (c *classTable) at(text []byte) (class, int) {
	if b := text[0]; b < utf8.RuneSelf {
		return c[b], 1
	}
	r, n := utf8.DecodeRune(text)
	switch {
	case n == 1:
		return other, 1
	case r < tableRunes:
		return c[r], n
	case unicode.Is(unicode.L, r), extensionI(r):
		return letter, n
	case unicode.Is(unicode.N, r):
		return number, n
	}
	return other, n
}

// run returns the length of text's prefix of class k, in bytes.
func (c *classTable) run(text []byte, k class) int {
	i := 0
	for i < len(text) {
		if b := text[i]; b < utf8.RuneSelf {
			if c[b] != k {
				return i
			}
			i++
			continue
		}
		got, n := c.at(text[i:])
		if got != k {
			return i
		}
		i += n
	}
	return i
}

// splitter is a pre-tokenizer pattern.
type splitter struct {
	kind   splitKind
	digits int // most numbers in one word, cl100k only
}

// splitKind is the family of a pattern.
type splitKind uint8

// The families that have scanners.
const (
	splitNone splitKind = iota // the text is one word
	splitGPT2
	splitCL100K
)

// The patterns that files name. All match at every position, so that what a
// file does with the text between matches has no effect.
const (
	patternGPT2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	patternCL100K = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen2  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// splitterFor finds the scanner for a pattern as a file writes it.
func splitterFor(pattern string) (splitter, bool) {
	switch pattern {
	case patternGPT2:
		return splitter{kind: splitGPT2}, true
	case patternCL100K:
		return splitter{kind: splitCL100K, digits: 3}, true
	case patternQwen2:
		return splitter{kind: splitCL100K, digits: 1}, true
	}
	return splitter{}, false
}

// next returns the length of the first word of a non-empty text.
func (s splitter) next(c *classTable, text []byte) int {
	switch s.kind {
	case splitGPT2:
		return nextGPT2(c, text)
	case splitCL100K:
		return nextCL100K(c, text, s.digits)
	}
	return len(text)
}

// Note: scanners. A pattern is a list of alternatives, of which the first that
// matches at a position wins, each as long as it can be. The scanners below try
// them in that order, with two short cuts: the class of the first rune rules most
// of them out, and after an optional space or symbol one look at the next rune
// decides. The tests run the patterns themselves through package regexp, except
// for the lookahead, and compare word by word.

// nextGPT2 tries the alternatives of patternGPT2 in their order.
func nextGPT2(c *classTable, text []byte) int {
	if n := contraction(text, false); n > 0 {
		return n
	}
	start := 0
	if text[0] == ' ' && len(text) > 1 {
		start = 1
	}
	k, n := c.at(text[start:])
	switch k {
	case letter, number, other:
		start += n
		return start + c.run(text[start:], k)
	}
	return nextSpaces(c, text, false)
}

// nextCL100K tries the alternatives of patternCL100K in their order.
func nextCL100K(c *classTable, text []byte, digits int) int {
	if n := contraction(text, true); n > 0 {
		return n
	}
	k, n := c.at(text)
	switch k {
	case letter:
		return n + c.run(text[n:], letter)
	case number:
		return numbers(c, text, digits)
	}
	// [^\r\n\p{L}\p{N}]?\p{L}+ with its optional part present.
	if k != newline && n < len(text) {
		if next, size := c.at(text[n:]); next == letter {
			return n + size + c.run(text[n+size:], letter)
		}
	}
	start := 0
	if text[0] == ' ' {
		start = 1 // given back when no symbol follows: then it is a run of spaces
	}
	if m := c.run(text[start:], other); m > 0 {
		start += m
		return start + c.run(text[start:], newline)
	}
	return nextSpaces(c, text, true)
}

// numbers returns the length of at most limit numbers.
func numbers(c *classTable, text []byte, limit int) int {
	i := 0
	for range limit {
		if i == len(text) {
			break
		}
		k, n := c.at(text[i:])
		if k != number {
			break
		}
		i += n
	}
	return i
}

// nextSpaces matches \s+(?!\S)|\s+ and, with lines, \s*[\r\n]+ before them: up
// to the last line end; else all when nothing follows; else all but the last
// space, which goes with the word after it; else that one space.
func nextSpaces(c *classTable, text []byte, lines bool) int {
	i, last, afterLine := 0, 0, 0
	for i < len(text) {
		k, n := c.at(text[i:])
		if k != space && k != newline {
			break
		}
		last = i
		i += n
		if k == newline {
			afterLine = i
		}
	}
	switch {
	case lines && afterLine > 0:
		return afterLine
	case i == len(text) || last == 0:
		return i
	}
	return last
}

// contraction matches 's 't 're 've 'm 'll 'd at the start of text; folded also
// in capitals and with the long s (U+017F), which case folding equals to s.
func contraction(text []byte, folded bool) int {
	if len(text) < 2 || text[0] != '\'' {
		return 0
	}
	a, b := text[1], byte(0)
	if len(text) > 2 {
		b = text[2]
	}
	if folded {
		if a == 0xc5 && b == 0xbf {
			return 3
		}
		a, b = lower(a), lower(b)
	}
	switch {
	case a == 's' || a == 't' || a == 'm' || a == 'd':
		return 2
	case a == 'r' && b == 'e', a == 'v' && b == 'e', a == 'l' && b == 'l':
		return 3
	}
	return 0
}

// lower folds ASCII capitals.
func lower(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		return b + 'a' - 'A'
	}
	return b
}
