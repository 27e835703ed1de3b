package tokenizer

import (
	"errors"
	"maps"
	"strings"
	"testing"
)

func merged(m map[string]any, key string, v any) map[string]any {
	out := maps.Clone(m)
	out[key] = v
	return out
}

func TestUnsupportedFeaturesAreNamed(t *testing.T) {
	split := func(key string, v any) any {
		s := merged(map[string]any{"type": "Split", "pattern": map[string]any{"Regex": patternCL100K}, "behavior": "Isolated", "invert": false}, key, v)
		return map[string]any{"type": "Sequence", "pretokenizers": []any{s, plainStage}}
	}
	cases := []struct {
		name string
		edit func(*synthetic)
		want string // part of the message
	}{
		{"unknown key of the file", func(s *synthetic) { s.top = map[string]any{"chat": 1} }, `"chat"`},
		{"truncation", func(s *synthetic) { s.top = map[string]any{"truncation": map[string]any{"max_length": 5}} }, "truncation"},
		{"unknown key of the model", func(s *synthetic) { s.model = map[string]any{"cache": 1} }, `model: json: unknown field "cache"`},
		{"model type", func(s *synthetic) { s.model = map[string]any{"type": "WordPiece"} }, `model.type "WordPiece"`},
		{"dropout", func(s *synthetic) { s.model = map[string]any{"dropout": 0.1} }, "model.dropout 0.1"},
		{"prefix", func(s *synthetic) { s.model = map[string]any{"continuing_subword_prefix": "##"} }, "model.continuing_subword_prefix"},
		{"suffix", func(s *synthetic) { s.model = map[string]any{"end_of_word_suffix": "</w>"} }, "model.end_of_word_suffix"},
		{"byte fallback", func(s *synthetic) { s.model = map[string]any{"byte_fallback": true} }, "model.byte_fallback"},
		{"normalizer", func(s *synthetic) { s.normalizer = map[string]any{"type": "Lowercase"} }, `normalizer.type "Lowercase"`},
		{"normalizer's key", func(s *synthetic) { s.normalizer = map[string]any{"type": "NFC", "left": true} }, `"left"`},
		{"pre-tokenizer", func(s *synthetic) { s.preTokenizer = map[string]any{"type": "Whitespace"} }, `pre_tokenizer.type "Whitespace"`},
		{"no pre-tokenizer", func(s *synthetic) { s.preTokenizer = nil }, "pre_tokenizer"},
		{"prefix space", func(s *synthetic) { s.preTokenizer = merged(gpt2Stage, "add_prefix_space", true) }, "pre_tokenizer.add_prefix_space"},
		{"pattern", func(s *synthetic) { s.preTokenizer = split("pattern", map[string]any{"Regex": `\w+`}) }, `pretokenizers[0].pattern.Regex "\\w+"`},
		{"pattern as text", func(s *synthetic) { s.preTokenizer = split("pattern", map[string]any{"String": "x"}) }, "pretokenizers[0].pattern"},
		{"behavior", func(s *synthetic) { s.preTokenizer = split("behavior", "MergedWithNext") }, `pretokenizers[0].behavior "MergedWithNext"`},
		{"two stages that split", func(s *synthetic) {
			s.preTokenizer = merged(cl100kStage, "pretokenizers", []any{cl100kStage["pretokenizers"].([]any)[0], gpt2Stage})
		}, "pretokenizers[1].use_regex"},
		{"post-processor", func(s *synthetic) {
			s.top = map[string]any{"post_processor": map[string]any{"type": "TemplateProcessing"}}
		}, `post_processor.type "TemplateProcessing"`},
		{"decoder", func(s *synthetic) { s.top = map[string]any{"decoder": map[string]any{"type": "Metaspace"}} }, `decoder.type "Metaspace"`},
		{"lstrip", func(s *synthetic) { s.added[1].LStrip = true }, `added_tokens[1] ("<|pad|>")`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := tiny()
			c.edit(&s)
			_, err := Parse(s.json(t), "file")
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "tokenizer: file: ") {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestBrokenVocabulariesAreNamed(t *testing.T) {
	vocab := func(edit func(map[string]any)) map[string]any {
		v := map[string]any{}
		for b := range 256 {
			v[string(byteRune(byte(b)))] = b
		}
		edit(v)
		return map[string]any{"vocab": v, "merges": []any{}}
	}
	cases := []struct {
		name  string
		model map[string]any
		want  string
	}{
		{"no vocabulary", map[string]any{"vocab": map[string]any{}}, "model.vocab is empty"},
		{"a byte is missing", vocab(func(v map[string]any) { delete(v, "a") }), `byte 0x61 ('a')`},
		{"two tokens share an id", vocab(func(v map[string]any) { v["ab"] = 97 }), "share id 97"},
		{"an id far out", vocab(func(v map[string]any) { v["ab"] = 1 << 30 }), "id 1073741824 is too large"},
		{"a token outside the alphabet", vocab(func(v map[string]any) { v["日"] = 256 }), `"日" (id 256)`},
		{"an added token's id is taken", vocab(func(v map[string]any) { v["ab"] = 300 }), `"<|endoftext|>" and another token share id 300`},
		{"an added token has another id", vocab(func(v map[string]any) { v["<mail>"] = 256 }), `"<mail>" has id 302, model.vocab says 256`},
		{"a merge of unknown tokens", map[string]any{"merges": []any{"x y"}}, `model.merges[0]: "x" and "y"`},
		{"a merge twice", map[string]any{"merges": []any{"h e", "h e"}}, "are also merge 0"},
		{"a merge of three", map[string]any{"merges": []any{"h e r"}}, `merge "h e r" is not two tokens`},
		{"a merge that is a number", map[string]any{"merges": []any{3}}, "merge 3 is not two tokens"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := tiny()
			s.model = c.model
			if _, err := Parse(s.json(t), "file"); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestUnsupportedIsASentinel(t *testing.T) {
	s := tiny()
	s.normalizer = map[string]any{"type": "NFKC"}
	if _, err := Parse(s.json(t), "file"); !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
}

func TestTextAfterTheFileIsAnError(t *testing.T) {
	if _, err := Parse(append(tiny().json(t), "{}"...), "file"); err == nil {
		t.Error("no error")
	}
}

// FuzzParse: no file makes the loader panic or take memory out of proportion,
// and whatever it accepts encodes and decodes.
func FuzzParse(f *testing.F) {
	f.Add(tiny().json(f))
	f.Add(neox().json(f))
	f.Add([]byte(`{"model":{"type":"BPE","vocab":{"a":1},"merges":[["a","a"]]},"pre_tokenizer":{"type":"ByteLevel"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := Parse(data, "fuzz")
		if err != nil {
			return
		}
		text := []byte("on the  there \u00e9 <|endoftext|>\n\n")
		got, err := tok.Decode(nil, tok.Encode(nil, text))
		if err != nil || string(got) != string(tok.normalForm(text)) {
			t.Errorf("%q became %q: %v", text, got, err)
		}
	})
}

// FuzzRoundTrip: decoding gives back the bytes, and encoding in two clones the
// same ids.
func FuzzRoundTrip(f *testing.F) {
	toks := []*BPE{tiny().load(f), neox().load(f)}
	for _, s := range []string{"", "the there", "a\u0301\u0323", "\xff\xfe", "     <mail>>", strings.Repeat("\u0301", 70)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, tok := range toks {
			ids := tok.Encode(nil, text)
			got, err := tok.Decode(nil, ids)
			if want := tok.normalForm(text); err != nil || string(got) != string(want) {
				t.Errorf("%q became %q, want %q: %v", text, got, want, err)
			}
		}
	})
}
