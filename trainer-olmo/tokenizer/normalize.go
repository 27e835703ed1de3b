package tokenizer

import (
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// normalizer brings text to NFC by the definition: decompose, order marks by
// combining class, compose. Package norm gives the tables and the quick check,
// not the conversion: it writes stream-safe text, with a joiner after 30 marks,
// and composes across a few Indic vowel signs; a tokenizer's NFC does neither.
type normalizer struct {
	composites map[[2]rune]rune
}

// mark is a rune with its canonical combining class; starters have class 0. A
// byte b that is no part of a rune is the starter −b.
type mark struct {
	r     rune
	class uint8
}

// Hangul syllables are composed by arithmetic (section 3.12 of the Unicode
// standard).
const (
	hangulBase, hangulCount = 0xac00, 11172
	leadBase, leadCount     = 0x1100, 19
	vowelBase, vowelCount   = 0x1161, 21
	tailBase, tailCount     = 0x11a7, 28
)

// lastComposite is above the last rune that is a primary composite.
const lastComposite = 0x20000

// newNormalizer collects the primary composites: runes in normal form that
// decompose into two runes, the first of which may itself be one. Package norm
// gives full decompositions only, so that the first is found by composing all but
// the last rune again. Runes that are excluded from composition are not in normal
// form, and drop out.
func newNormalizer() *normalizer {
	n := &normalizer{composites: make(map[[2]rune]rune, 1024)}
	for r := rune(0x80); r < lastComposite; r++ {
		char := string(r)
		d := norm.NFD.PropertiesString(char).Decomposition()
		if len(d) == 0 || norm.NFC.String(char) != char {
			continue
		}
		second, size := utf8.DecodeLastRune(d)
		first := []rune(norm.NFC.String(string(d[:len(d)-size])))
		if len(first) == 1 {
			n.composites[[2]rune{first[0], second}] = r
		}
	}
	return n
}

// normalize returns text in NFC: text itself, or scratch memory that the next
// call reuses. An ASCII byte begins a new composition, so that only the
// stretches between them which are not normal take the slow path.
func (t *BPE) normalize(text []byte) []byte {
	n := norm.NFC.QuickSpan(text)
	if n == len(text) {
		return text
	}
	for n > 0 && text[n-1] >= utf8.RuneSelf {
		n--
	}
	n = max(n-1, 0)
	t.norm = append(t.norm[:0], text[:n]...)
	for text = text[n:]; len(text) > 0; {
		n = 1
		for n < len(text) && text[n] >= utf8.RuneSelf {
			n++
		}
		if norm.NFC.QuickSpan(text[:n]) == n {
			t.norm = append(t.norm, text[:n]...)
		} else {
			t.norm = t.appendNFC(t.norm, text[:n])
		}
		text = text[n:]
	}
	return t.norm
}

// appendNFC converts one stretch.
func (t *BPE) appendNFC(dst, text []byte) []byte {
	t.marks = decompose(t.marks[:0], text)
	orderMarks(t.marks)
	for _, m := range t.nfc.compose(t.marks) {
		if m.r < 0 {
			dst = append(dst, byte(-m.r))
			continue
		}
		dst = utf8.AppendRune(dst, m.r)
	}
	return dst
}

// decompose appends the full canonical decomposition of a text, marks not yet in
// order.
func decompose(marks []mark, text []byte) []mark {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		s := r - hangulBase
		switch {
		case r == utf8.RuneError && n == 1:
			marks = append(marks, mark{r: -rune(text[0])})
		case s >= 0 && s < hangulCount:
			marks = append(marks, mark{r: leadBase + s/(vowelCount*tailCount)}, mark{r: vowelBase + s/tailCount%vowelCount})
			if s%tailCount != 0 {
				marks = append(marks, mark{r: tailBase + s%tailCount})
			}
		default:
			marks = appendDecomposed(marks, text[:n])
		}
		text = text[n:]
	}
	return marks
}

// appendDecomposed appends the full canonical decomposition of one rune.
func appendDecomposed(marks []mark, char []byte) []mark {
	p := norm.NFD.Properties(char)
	d := p.Decomposition()
	if d == nil {
		r, _ := utf8.DecodeRune(char)
		return append(marks, mark{r, p.CCC()})
	}
	for len(d) > 0 {
		r, n := utf8.DecodeRune(d)
		marks = append(marks, mark{r, norm.NFD.Properties(d).CCC()})
		d = d[n:]
	}
	return marks
}

// orderMarks sorts each stretch between starters by class, stably. Insertion
// is quick: the stretches are a few marks, and nearly in order.
func orderMarks(marks []mark) {
	for i := 1; i < len(marks); i++ {
		m := marks[i]
		j := i
		for m.class != 0 && j > 0 && marks[j-1].class > m.class {
			marks[j] = marks[j-1]
			j--
		}
		marks[j] = m
	}
}

// compose joins each rune with the starter before it unless a rune of the same
// or a higher class stands between (D115 to D117 of the Unicode standard). It
// works in place.
func (n *normalizer) compose(marks []mark) []mark {
	out := marks[:0]
	starter := -1
	for _, m := range marks {
		if starter >= 0 {
			last := out[len(out)-1].class
			if starter == len(out)-1 || last != 0 && last < m.class {
				if c, ok := n.composite(out[starter].r, m.r); ok {
					out[starter].r = c
					continue
				}
			}
		}
		if m.class == 0 {
			starter = len(out)
		}
		out = append(out, m)
	}
	return out
}

// composite returns the primary composite of two runes.
func (n *normalizer) composite(a, b rune) (rune, bool) {
	lead, vowel, tail := a-leadBase, b-vowelBase, b-tailBase
	if lead >= 0 && lead < leadCount && vowel >= 0 && vowel < vowelCount {
		return hangulBase + (lead*vowelCount+vowel)*tailCount, true
	}
	if s := a - hangulBase; s >= 0 && s < hangulCount && s%tailCount == 0 && tail > 0 && tail < tailCount {
		return a + tail, true
	}
	r, ok := n.composites[[2]rune{a, b}]
	return r, ok
}
