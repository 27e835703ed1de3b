package tokenizer

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// The white space of Unicode, which RE2's \s is not.
const spaces = `\t\n\v\f\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}`

// referencePattern is a pattern for RE2 with the white space written out and
// the alternatives from the lookahead on cut off; lookahead does those.
func referencePattern(pattern string) *regexp.Regexp {
	head := strings.TrimSuffix(pattern, `|\s+(?!\S)|\s+`)
	head = strings.ReplaceAll(head, `[^\s\p{L}\p{N}]`, `[^`+spaces+`\p{L}\p{N}]`)
	head = strings.ReplaceAll(head, `\s`, `[`+spaces+`]`)
	return regexp.MustCompile(`^(?:` + head + `)`)
}

var spaceRun = regexp.MustCompile(`^[` + spaces + `]+`)

// lookahead matches \s+(?!\S)|\s+ by its definition: the longest run of spaces
// that is not followed by anything else, else the whole run.
func lookahead(text string) int {
	n := len(spaceRun.FindString(text))
	for end := n; end > 0; {
		if end == len(text) || spaceRun.MatchString(text[end:]) {
			return end
		}
		_, size := utf8.DecodeLastRuneInString(text[:end])
		end -= size
	}
	return n
}

func TestScannersAgreeWithThePatterns(t *testing.T) {
	for _, pattern := range []string{patternGPT2, patternCL100K, patternQwen2} {
		reference := referencePattern(pattern)
		sp, ok := splitterFor(pattern)
		if !ok {
			t.Fatalf("no scanner for %s", pattern)
		}
		classes := newClassTable()
		for seed := range uint64(3000) {
			text := strings.ToValidUTF8(randomText(rand.New(rand.NewPCG(seed, 1)), 1+int(seed%12)), "\ufffd")
			for rest := text; rest != ""; {
				want := len(reference.FindString(rest))
				if want == 0 {
					want = lookahead(rest)
				}
				got := sp.next(classes, []byte(rest))
				if got != want {
					t.Fatalf("seed %d, %s\nrest %q: word %q, want %q", seed, pattern, rest, rest[:got], rest[:want])
				}
				rest = rest[got:]
			}
		}
	}
}

func TestBytesOutsideRunesAreOther(t *testing.T) {
	classes := newClassTable()
	for _, text := range []string{"\xff", "\xe2\x82", "\xc3(", "\x80\x80"} {
		if k, n := classes.at([]byte(text)); k != other || n != 1 {
			t.Errorf("%q: class %d, size %d; want other, 1", text, k, n)
		}
	}
}

func TestRareIdeographsAreLetters(t *testing.T) {
	classes := newClassTable()
	for _, r := range []rune{0x20000, 0x2a6df, 0x2ebf0, 0x2ee5d, 0x30000} {
		if k, _ := classes.at([]byte(string(r))); k != letter {
			t.Errorf("U+%X has class %d", r, k)
		}
	}
	if k, _ := classes.at([]byte(string(rune(0x10fffd)))); k != other {
		t.Error("a private-use rune is not other")
	}
}
