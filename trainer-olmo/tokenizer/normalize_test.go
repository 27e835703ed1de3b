package tokenizer

import (
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
)

// randomMarks writes letters and combining marks, few enough in a row that
// package norm is plain NFC there, and no vowel signs, which it composes across.
func randomMarks(r *rand.Rand) string {
	var s []rune
	for range 40 {
		switch r.IntN(3) {
		case 0:
			s = append(s, rune("aeAoZ<ᄀ가"[0])+rune(r.IntN(20)))
		case 1:
			s = append(s, 0x1100+rune(r.IntN(0x100)), 0x1161+rune(r.IntN(30)), 0x11a8+rune(r.IntN(20)))
		default:
			s = append(s, rune(0xc0+r.IntN(0x800)), rune(0x1e00+r.IntN(0x200)))
		}
		for range r.IntN(5) {
			s = append(s, 0x300+rune(r.IntN(0x70)))
		}
	}
	return string(s)
}

func TestNormalFormAgreesWithTheLibrary(t *testing.T) {
	tok := neox().load(t)
	for seed := range uint64(5000) {
		text := randomMarks(rand.New(rand.NewPCG(seed, 7)))
		want := norm.NFC.String(text)
		if got := string(tok.normalize([]byte(text))); got != want {
			t.Fatalf("seed %d: %+q became %+q, want %+q", seed, text, got, want)
		}
	}
}

func TestManyMarksGetNoJoiner(t *testing.T) {
	tok := neox().load(t)
	marks := strings.Repeat("\u0323\u0301", 40)
	got := string(tok.normalize([]byte("e" + marks + "\xff")))
	want := "\u1eb9" + strings.Repeat("\u0323", 39) + strings.Repeat("\u0301", 40) + "\xff"
	if got != want {
		t.Errorf("got %+q\nwant %+q", got, want)
	}
}

// A vowel sign of class 0 keeps a mark after it from the letter before it.
func TestNothingComposesAcrossAStarter(t *testing.T) {
	tok := neox().load(t)
	text := "d\u0363\u0cc2\u0307\u0320"
	if got, want := string(tok.normalize([]byte(text))), "d\u0363\u0cc2\u0320\u0307"; got != want {
		t.Errorf("got %+q, want %+q", got, want)
	}
}

func TestNormalTextIsNotCopied(t *testing.T) {
	tok := neox().load(t)
	text := []byte("na\u00efve plain text")
	if got := tok.normalize(text); &got[0] != &text[0] {
		t.Error("a text in normal form was copied")
	}
}
