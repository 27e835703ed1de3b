package tokenizer

import (
	"bytes"
	"cmp"
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// joiner is U+034F COMBINING GRAPHEME JOINER, which package norm inserts into
// runs of more than 30 combining marks (the stream-safe format of UAX #15).
// Plain NFC, which tokenizers use, does not.
const joiner = "\u034f"

// normalize returns text in NFC: text itself, or scratch memory that the next
// call reuses.
func (t *BPE) normalize(text []byte) []byte {
	if norm.NFC.QuickSpan(text) == len(text) {
		return text
	}
	t.norm = norm.NFC.Append(t.norm[:0], text...)
	if bytes.Count(t.norm, []byte(joiner)) != bytes.Count(text, []byte(joiner)) {
		t.norm = appendNFC(t.norm[:0], text)
	}
	return t.norm
}

// appendNFC is NFC by its definition: decompose, order marks by combining class,
// compose. It is slow and serves the texts on which package norm is not plain.
func appendNFC(dst, text []byte) []byte {
	marks := decompose(text)
	orderMarks(marks)
	for _, m := range compose(marks) {
		if m.r < 0 {
			dst = append(dst, byte(-m.r))
			continue
		}
		dst = utf8.AppendRune(dst, m.r)
	}
	return dst
}

// mark is a rune with its canonical combining class; starters have class 0. A
// byte b that is no part of a rune is the starter −b.
type mark struct {
	r     rune
	class uint8
}

func decompose(text []byte) []mark {
	marks := make([]mark, 0, len(text))
	var buf []byte
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		if r == utf8.RuneError && n == 1 {
			marks = append(marks, mark{r: -rune(text[0])})
			text = text[1:]
			continue
		}
		buf = norm.NFD.Append(buf[:0], text[:n]...)
		for b := buf; len(b) > 0; {
			r, n := utf8.DecodeRune(b)
			marks = append(marks, mark{r, norm.NFD.Properties(b).CCC()})
			b = b[n:]
		}
		text = text[n:]
	}
	return marks
}

// orderMarks sorts each stretch between starters by class, stably.
func orderMarks(marks []mark) {
	for lo := 0; lo < len(marks); lo++ {
		hi := lo
		for hi < len(marks) && marks[hi].class != 0 {
			hi++
		}
		slices.SortStableFunc(marks[lo:hi], func(a, b mark) int { return cmp.Compare(a.class, b.class) })
		lo = hi
	}
}

// compose joins each rune with the starter before it unless a rune of the same
// or a higher class stands between (D115 to D117 of the Unicode standard). It
// works in place.
func compose(marks []mark) []mark {
	out := marks[:0]
	starter := -1
	for _, m := range marks {
		if starter >= 0 {
			last := out[len(out)-1]
			if starter == len(out)-1 || last.class != 0 && last.class < m.class {
				if c, ok := composite(out[starter].r, m.r); ok {
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
func composite(a, b rune) (rune, bool) {
	if a < 0 || b < 0 {
		return 0, false
	}
	var in, out [4 * utf8.UTFMax]byte
	pair := utf8.AppendRune(utf8.AppendRune(in[:0], a), b)
	got := norm.NFC.Append(out[:0], pair...)
	r, n := utf8.DecodeRune(got)
	return r, n == len(got)
}
