package tokenizer

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// synthetic describes a small tokenizer.json for tests.
type synthetic struct {
	merges       [][2]string // in bytes, not in the alphabet
	added        []addedJSON
	normalizer   any
	preTokenizer any
	pairs        bool // merges as pairs
	ignoreMerges bool
	model        map[string]any // replaces keys of the model
	top          map[string]any // replaces keys of the file
}

var (
	gpt2Stage   = map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}
	plainStage  = map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}
	cl100kStage = map[string]any{"type": "Sequence", "pretokenizers": []any{
		map[string]any{"type": "Split", "pattern": map[string]any{"Regex": patternCL100K}, "behavior": "Removed", "invert": true},
		plainStage,
	}}
)

// english is enough to join a few words.
var english = [][2]string{
	{" ", "t"}, {"h", "e"}, {" t", "he"}, {"i", "n"}, {"e", "r"}, {" ", "a"}, {"o", "n"}, {"r", "e"},
	{" the", "re"}, {"1", "2"}, {"a", "a"}, {"aa", "aa"}, {" ", " "}, {"\n", "\n"}, {"\xc3", "\xa9"}, {"'", "s"},
}

func toAlphabet(s string) string {
	var out []rune
	for i := range len(s) {
		out = append(out, byteRune(s[i]))
	}
	return string(out)
}

// json writes the file: 256 bytes, then one token for each merge, then the
// added tokens where the caller put them.
func (s synthetic) json(t testing.TB) []byte {
	t.Helper()
	vocab := map[string]int{}
	for b := range 256 {
		vocab[string(byteRune(byte(b)))] = b
	}
	merges := []any{}
	for _, m := range s.merges {
		l, r := toAlphabet(m[0]), toAlphabet(m[1])
		if _, ok := vocab[l+r]; !ok {
			vocab[l+r] = len(vocab)
		}
		if s.pairs {
			merges = append(merges, []string{l, r})
		} else {
			merges = append(merges, l+" "+r)
		}
	}
	added := []any{}
	for _, a := range s.added {
		added = append(added, map[string]any{"id": a.ID, "content": a.Content, "single_word": a.SingleWord,
			"lstrip": a.LStrip, "rstrip": a.RStrip, "normalized": a.Normalized, "special": a.Special})
	}
	model := map[string]any{"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
		"fuse_unk": false, "byte_fallback": false, "ignore_merges": s.ignoreMerges, "vocab": vocab, "merges": merges}
	top := map[string]any{"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added, "normalizer": s.normalizer,
		"pre_tokenizer": s.preTokenizer, "post_processor": nil, "decoder": plainStage, "model": model}
	for k, v := range s.model {
		model[k] = v
	}
	for k, v := range s.top {
		top[k] = v
	}
	b, err := json.MarshalIndent(top, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (s synthetic) load(t testing.TB) *BPE {
	t.Helper()
	tok, err := Parse(s.json(t), "synthetic")
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// tiny is the content of testdata/tiny.json.
func tiny() synthetic {
	return synthetic{merges: english, preTokenizer: cl100kStage, added: []addedJSON{
		{ID: 300, Content: "<|endoftext|>", Special: true}, {ID: 301, Content: "<|pad|>", Special: true},
		{ID: 302, Content: "<mail>"}, {ID: 303, Content: "<mail>>"},
	}}
}

// neox is like gpt-neox: NFC, GPT-2's pattern, runs of spaces as tokens.
func neox() synthetic {
	s := synthetic{merges: english, preTokenizer: gpt2Stage, normalizer: map[string]any{"type": "NFC"}, added: []addedJSON{
		{ID: 280, Content: "<|padding|>", Special: true}, {ID: 281, Content: "<|endoftext|>", Special: true},
		{ID: 282, Content: "\u00e9!", Normalized: true},
	}}
	for n := 2; n <= 6; n++ {
		s.added = append(s.added, addedJSON{ID: uint32(290 - n), Content: "      "[:n], Normalized: true})
	}
	return s
}

// TestTinyFileIsTheSyntheticOne keeps testdata/tiny.json, which other packages'
// tests and the examples read, equal to its description.
func TestTinyFileIsTheSyntheticOne(t *testing.T) {
	want := tiny().json(t)
	path := filepath.Join("testdata", "tiny.json")
	if os.Getenv("ASTERIA_REWRITE") != "" {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != string(want) {
		t.Fatalf("%s differs from its description (ASTERIA_REWRITE=1 writes it): %v", path, err)
	}
}

// randomMerges joins random earlier tokens, so that chains are long and rich in
// ties over the given letters.
func randomMerges(r *rand.Rand, letters string, n int) [][2]string {
	var tokens []string
	for _, c := range []byte(letters) {
		tokens = append(tokens, string([]byte{c}))
	}
	seen := map[[2]string]bool{}
	var merges [][2]string
	for len(merges) < n {
		m := [2]string{tokens[r.IntN(len(tokens))], tokens[r.IntN(len(tokens))]}
		if seen[m] || len(m[0])+len(m[1]) > 40 {
			continue
		}
		seen[m] = true
		merges = append(merges, m)
		tokens = append(tokens, m[0]+m[1])
	}
	return merges
}

// randomText mixes what the patterns and matchers tell apart.
func randomText(r *rand.Rand, n int) string {
	pieces := []string{"the", " there", "THE", "é", "e\u0301", "日本", "ſ", "'s", "'S", "'ſ", "'re", "'LL", "12", "١٢", "Ⅷ", " ", "  ", "     ", "\t",
		"\n", "\r\n", "\u00a0", "\u2003", "\u0085", "!", "?!", "…", "<mail>", "<mail>>", "<|endoftext|>", "<|endof", "\xff", "\xc3", "\xe2\x82", "\x00", "😀", "aaaa"}
	s := ""
	for range n {
		switch {
		case r.IntN(4) > 0:
			s += pieces[r.IntN(len(pieces))]
		default:
			s += string(rune(r.IntN(0x3000)))
		}
	}
	return s
}

func ExampleParse() {
	data, err := os.ReadFile("testdata/tiny.json")
	if err != nil {
		panic(err)
	}
	tok, err := Parse(data, "tiny")
	if err != nil {
		panic(err)
	}
	ids := tok.Encode(nil, []byte("on the there<|endoftext|>"))
	text, err := tok.Decode(nil, ids)
	fmt.Println(ids, string(text), err)
	// Output: [262 258 264 300] on the there<|endoftext|> <nil>
}
