package tokenizer

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// naiveBPE is the definition: join the leftmost pair of the lowest rank until
// none is left.
func naiveBPE(t *BPE, word []byte) []uint32 {
	ids := []uint32{}
	for _, b := range word {
		ids = append(ids, t.byteID[b])
	}
	for {
		best, at, joined := noRank, -1, uint32(0)
		for i := 0; i+1 < len(ids); i++ {
			if rank, id := t.pairs.lookup(ids[i], ids[i+1]); rank < best {
				best, at, joined = rank, i, id
			}
		}
		if at < 0 {
			return ids
		}
		ids = append(append(ids[:at:at], joined), ids[at+2:]...)
	}
}

func TestBothMergersAgreeWithTheDefinition(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 2))
		tok := synthetic{merges: randomMerges(r, "abc", 40), preTokenizer: plainStage}.load(t)
		for range 40 {
			word := make([]byte, 1+r.IntN(3*shortWord))
			for i := range word {
				word[i] = "abc"[r.IntN(3)]
			}
			want := naiveBPE(tok, word)
			if len(word) <= shortWord {
				if diff := cmp.Diff(want, tok.mergeShort([]uint32{}, word)); diff != "" {
					t.Fatalf("seed %d, %q, scan (-want +got):\n%s", seed, word, diff)
				}
			}
			if diff := cmp.Diff(want, tok.merge.run([]uint32{}, tok.tables, word)); diff != "" {
				t.Fatalf("seed %d, %q, heap (-want +got):\n%s", seed, word, diff)
			}
		}
	}
}

func TestCacheChangesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	s := synthetic{merges: randomMerges(r, "abcd", 80), preTokenizer: gpt2Stage}
	warm, tables := s.load(t), s.load(t).tables
	for i := range 3000 {
		text := []byte(strings.Map(func(c rune) rune { return rune("abcd "[c%5]) }, randomText(r, 20)))
		want := newBPE(tables).Encode(nil, text)
		if got := warm.Encode(nil, text); !cmp.Equal(want, got) {
			t.Fatalf("text %d, %q: warm %v, cold %v", i, text, got, want)
		}
	}
}

func TestDecodeUndoesEncode(t *testing.T) {
	toks := map[string]*BPE{"tiny": tiny().load(t), "neox": neox().load(t)}
	for seed := range uint64(2000) {
		text := []byte(randomText(rand.New(rand.NewPCG(seed, 4)), 30))
		for name, tok := range toks {
			want := tok.normalForm(text)
			got, err := tok.Decode(nil, tok.Encode(nil, text))
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%s, seed %d: %q became %q, want %q: %v", name, seed, text, got, want, err)
			}
		}
	}
}

func TestAddedTokensAreFoundLeftmostThenLongest(t *testing.T) {
	tok := tiny().load(t)
	cases := []struct {
		text string
		want []uint32
	}{
		{"<mail>>", []uint32{303}},
		{"<mail>", []uint32{302}},
		{"<<mail>>>", []uint32{'<', 303, '>'}},
		{"<mail<mail>", []uint32{'<', 'm', 'a', 'i', 'l', 302}},
		{"<|pad|><|endoftext|>", []uint32{301, 300}},
		{"<|endoftext|", []uint32{'<', '|', 'e', 'n', 'd', 'o', 'f', 't', 'e', 'x', 't', '|'}},
		{"", nil},
	}
	for _, c := range cases {
		if diff := cmp.Diff(c.want, tok.Encode(nil, []byte(c.text))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.text, diff)
		}
	}
}

func TestNormalizedTokensMatchTheNormalForm(t *testing.T) {
	tok := neox().load(t)
	cases := []struct {
		text string
		want []uint32
	}{
		{"é!", []uint32{282}},                 // the content is decomposed, the text is not
		{"e\u0301!", []uint32{282}},           // neither
		{"       x", []uint32{284, ' ', 'x'}}, // seven spaces: six, then " x"
		{"  x", []uint32{288, 'x'}},
	}
	for _, c := range cases {
		if diff := cmp.Diff(c.want, tok.Encode(nil, []byte(c.text))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.text, diff)
		}
	}
}

func TestNormalizedTokensAreNormalizedThemselves(t *testing.T) {
	s := neox()
	s.added = append(s.added, addedJSON{ID: 290, Content: "o\u0308?", Normalized: true})
	if got := s.load(t).Encode(nil, []byte("\u00f6?")); !cmp.Equal(got, []uint32{290}) {
		t.Errorf("got %v", got)
	}
}

func TestMergesMayBePairs(t *testing.T) {
	a, b := tiny(), tiny()
	b.pairs = true
	text := []byte("there the aaaa on 12's\n\n\n")
	if diff := cmp.Diff(a.load(t).Encode(nil, text), b.load(t).Encode(nil, text)); diff != "" {
		t.Errorf("strings and pairs differ:\n%s", diff)
	}
}

func TestIgnoreMergesTakesWholeWords(t *testing.T) {
	s := synthetic{merges: [][2]string{{"b", "c"}, {"a", "b"}, {"ab", "c"}}, preTokenizer: plainStage}
	if got := s.load(t).Encode(nil, []byte("abc")); !cmp.Equal(got, []uint32{'a', 256}) {
		t.Errorf("with merges: %v", got)
	}
	s.ignoreMerges = true
	if got := s.load(t).Encode(nil, []byte("abc")); !cmp.Equal(got, []uint32{258}) {
		t.Errorf("whole word: %v", got)
	}
}

func TestUnknownIDsAreErrors(t *testing.T) {
	tok := tiny().load(t)
	for _, id := range []uint32{299, 304, 1 << 31} {
		got, err := tok.Decode([]byte("x"), []uint32{'a', id, 'b'})
		if !errors.Is(err, ErrUnknownID) || string(got) != "xa" {
			t.Errorf("id %d: %q, %v", id, got, err)
		}
	}
	if _, err := Byte().Decode(nil, []uint32{ByteVocab}); !errors.Is(err, ErrUnknownID) {
		t.Errorf("byte tokenizer: %v", err)
	}
}

func TestSpecialIDsAndNames(t *testing.T) {
	tok := tiny().load(t)
	if tok.EOS() != 300 || tok.Pad() != 301 || tok.VocabSize() != 304 || tok.Name() != "synthetic" || len(tok.Hash()) != 64 {
		t.Errorf("EOS %d, pad %d, size %d, name %s, hash %s", tok.EOS(), tok.Pad(), tok.VocabSize(), tok.Name(), tok.Hash())
	}
	if !tok.Special(300) || tok.Special(302) || tok.Special(1<<20) {
		t.Error("Special is wrong")
	}
	bare := synthetic{preTokenizer: gpt2Stage}.load(t)
	if bare.EOS() != None || bare.Pad() != None {
		t.Errorf("EOS %d, pad %d without added tokens", bare.EOS(), bare.Pad())
	}
}

func TestClonesWorkSideBySide(t *testing.T) {
	tok := neox().load(t)
	text := []byte(strings.Repeat(randomText(rand.New(rand.NewPCG(5, 5)), 200), 5))
	want := tok.Encode(nil, text)
	var wg sync.WaitGroup
	for range 4 {
		clone := tok.Clone()
		wg.Go(func() {
			for range 20 {
				if !cmp.Equal(want, clone.Encode(nil, text)) {
					t.Error("a clone gives other ids")
				}
			}
		})
	}
	wg.Wait()
}

func TestEncodingAllocatesNothing(t *testing.T) {
	text := []byte(randomText(rand.New(rand.NewPCG(6, 6)), 500) + strings.Repeat("ab", 5000))
	for _, tok := range []Tokenizer{Byte(), tiny().load(t), neox().load(t)} {
		dst := tok.Encode(nil, text)
		if n := testing.AllocsPerRun(5, func() { dst = tok.Encode(dst[:0], text) }); n != 0 {
			t.Errorf("%s: %v allocations a call", tok.Name(), n)
		}
	}
}

func TestBytesTheVocabularyLacksBecomeReplacements(t *testing.T) {
	s := neox()
	vocab := map[string]int{}
	for b := range 256 {
		if !neverInUTF8(byte(b)) {
			vocab[string(byteRune(byte(b)))] = b
		}
	}
	s.merges, s.model = nil, map[string]any{"vocab": vocab, "merges": []any{}}
	tok := s.load(t)
	got := tok.Encode(nil, []byte("a\xffb"))
	if !cmp.Equal(got, []uint32{'a', 0xef, 0xbf, 0xbd, 'b'}) {
		t.Errorf("got %v", got)
	}
}

func TestByteTokenizer(t *testing.T) {
	tok := Byte()
	ids := tok.Encode([]uint32{7}, []byte("a\x00\xff"))
	if !cmp.Equal(ids, []uint32{7, 'a', 0, 255}) {
		t.Errorf("ids %v", ids)
	}
	text, err := tok.Decode(nil, append(ids, ByteEOS, BytePad))
	if err != nil || string(text) != "\x07a\x00\xff" {
		t.Errorf("text %q, %v", text, err)
	}
	if tok.EOS() != 256 || tok.Pad() != 257 || tok.VocabSize() != 258 {
		t.Error("special ids")
	}
}

func TestOpenChoosesByName(t *testing.T) {
	if tok, err := Open("byte"); err != nil || tok.Name() != "byte" {
		t.Errorf("%v, %v", tok, err)
	}
	if tok, err := Open(filepath.Join("testdata", "tiny.json")); err != nil || tok.Name() != "tiny" {
		t.Errorf("%v, %v", tok, err)
	}
	missing := filepath.Join(t.TempDir(), "none.json")
	if tok, err := Open(missing); tok != nil || !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), missing) {
		t.Errorf("%v, %v", tok, err)
	}
}

func TestLookupKnowsTheOfficialNames(t *testing.T) {
	for id, eos := range map[string]int{
		"allenai/dolma2-tokenizer":                                     100257,
		"allenai/dolma3-tokenizer":                                     100257,
		"tokenizers/allenai_dolma2.json":                               100257,
		"allenai/gpt-neox-olmo-dolma-v1_5":                             50279,
		"tokenizers/allenai_gpt-neox-olmo-dolma-v1_5.json":             50279,
		"tokenizers/allenai_eleuther-ai-gpt-neox-20b-pii-special.json": 0,
	} {
		if k, ok := Lookup(id); !ok || k.EOS != eos {
			t.Errorf("%s: %+v, %t", id, k, ok)
		}
	}
	if _, ok := Lookup("gpt2"); ok {
		t.Error("gpt2 is not an OLMo tokenizer")
	}
}

func TestCheckEOSNamesBothIDs(t *testing.T) {
	if err := CheckEOS("x", 0, 0); err != nil {
		t.Error(err)
	}
	err := CheckEOS("pii-special", 0, 50279)
	if err == nil || !strings.Contains(err.Error(), "50279") || !strings.Contains(err.Error(), "pii-special has 0") {
		t.Error(err)
	}
	if err := CheckEOS("x", None, 3); err == nil {
		t.Error("no error for a tokenizer without EOS")
	}
}
