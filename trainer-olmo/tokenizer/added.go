package tokenizer

import (
	"bytes"
	"cmp"
	"slices"
)

// match is an added token found at text[start:end].
type match struct {
	start, end int
	id         uint32
}

// matcher finds added tokens: the leftmost, and of those the longest. There are
// a few dozen, which begin with a few different bytes, so that a table of first
// bytes passes over nearly all text; an automaton would read every byte twice.
type matcher struct {
	tokens [256][]addedToken // by first byte, longest first
	pairs  [1 << 16 / 64]uint64
	first  [256]bool
	empty  bool
}

// addedToken is a text that is not tokenized but has an id of its own.
type addedToken struct {
	content []byte
	id      uint32
}

// newMatcher takes tokens with non-empty contents. The set of first two bytes
// keeps a text's many single spaces from being compared with runs of spaces.
func newMatcher(tokens []addedToken) matcher {
	m := matcher{empty: len(tokens) == 0}
	for _, t := range tokens {
		a := t.content[0]
		m.first[a] = true
		m.tokens[a] = append(m.tokens[a], t)
		if len(t.content) > 1 {
			m.setPair(a, t.content[1])
			continue
		}
		for b := range 256 {
			m.setPair(a, byte(b))
		}
	}
	for _, list := range m.tokens {
		slices.SortStableFunc(list, func(x, y addedToken) int { return cmp.Compare(len(y.content), len(x.content)) })
	}
	return m
}

// setPair marks that a token begins with these two bytes.
func (m *matcher) setPair(a, b byte) {
	p := uint(a)<<8 | uint(b)
	m.pairs[p/64] |= 1 << (p % 64)
}

// find returns the first added token in text.
func (m *matcher) find(text []byte) (match, bool) {
	if m.empty {
		return match{}, false
	}
	for i, b := range text {
		if !m.first[b] {
			continue
		}
		if i+1 < len(text) {
			p := uint(b)<<8 | uint(text[i+1])
			if m.pairs[p/64]>>(p%64)&1 == 0 {
				continue
			}
		}
		for _, t := range m.tokens[b] {
			if bytes.HasPrefix(text[i:], t.content) {
				return match{start: i, end: i + len(t.content), id: t.id}, true
			}
		}
	}
	return match{}, false
}
