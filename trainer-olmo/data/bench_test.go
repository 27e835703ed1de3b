package data

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/asteria-runtime/asteria/trainer-olmo/tokenizer"
)

// BenchmarkBatch reads batches of 32 instances of 128 tokens.
func BenchmarkBatch(b *testing.B) {
	cfg := small(writeTokens(b, 2, count(1<<20, 200)...))
	cfg.DType, cfg.SequenceLength, cfg.BatchInstances = "uint16", 128, 32
	l := mustOpen(b, cfg)
	var batch Batch
	b.SetBytes(32 * 128 * 2)
	b.ReportAllocs()
	for k := int64(0); b.Loop(); k++ {
		if err := l.Batch(k, &batch); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOrder shuffles a million instances: what a new epoch costs.
func BenchmarkOrder(b *testing.B) {
	var dst []uint32
	for b.Loop() {
		dst = CoreOrder(dst, 1_000_000, 1, 34521, 1)
	}
}

// BenchmarkTokenize runs the whole command's work on JSON lines, one thread.
func BenchmarkTokenize(b *testing.B) {
	var tok tokenizer.Tokenizer = tokenizer.Byte()
	if dir := os.Getenv("ASTERIA_DATA"); dir != "" {
		bpe, err := tokenizer.Load(filepath.Join(dir, "tokenizers", "allenai_dolma2.json"))
		if err != nil {
			b.Skip(err)
		}
		tok = bpe
	}
	line := `{"id":"1","text":"` + strings.Repeat("The quick brown fox jumps over the lazy dog. ", 50) + `"}` + "\n"
	path := writeFile(b, b.TempDir(), "a.jsonl", strings.Repeat(line, 2000))
	b.SetBytes(int64(2000 * len(line)))
	for b.Loop() {
		_, err := Tokenize(b.Context(), TokenizeOptions{Inputs: []string{path}, Output: b.TempDir(), Tokenizer: tok, Overwrite: true})
		if err != nil {
			b.Fatal(err)
		}
	}
}
