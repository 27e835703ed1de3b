package tokenizer

import (
	"fmt"
	"testing"
)

// BenchmarkEncode measures the official tokenizers on ordinary English, cold
// words included: the text is encoded whole, each time.
func BenchmarkEncode(b *testing.B) {
	for _, name := range []string{"allenai_dolma2.json", "allenai_gpt-neox-olmo-dolma-v1_5.json"} {
		for i, text := range realTexts(b) {
			b.Run(fmt.Sprintf("%s/text=%d", name, i), func(b *testing.B) {
				tok, err := Load(officialFile(b, name))
				if err != nil {
					b.Fatal(err)
				}
				benchmarkEncode(b, tok, text)
			})
		}
	}
}

func benchmarkEncode(b *testing.B, tok Tokenizer, text []byte) {
	dst := tok.Encode(nil, text)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		dst = tok.Encode(dst[:0], text)
	}
}

func BenchmarkLoad(b *testing.B) {
	path := officialFile(b, "allenai_dolma2.json")
	for b.Loop() {
		if _, err := Load(path); err != nil {
			b.Fatal(err)
		}
	}
}
