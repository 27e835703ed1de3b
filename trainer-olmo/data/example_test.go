package data_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/asteria-runtime/asteria/trainer-olmo/data"
	"github.com/asteria-runtime/asteria/trainer-olmo/tokenizer"
)

func ExampleOpen() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	text := filepath.Join(dir, "text.txt")
	if err := os.WriteFile(text, []byte("so long, and thanks for all the fish"), 0o666); err != nil {
		panic(err)
	}
	l, err := data.Open(data.Config{Paths: []string{text}, Tokenizer: "byte", SequenceLength: 8, BatchInstances: 2, CacheFolder: dir})
	if err != nil {
		panic(err)
	}
	defer l.Close()
	var b data.Batch
	for k := range 2 * l.Batches() { // two epochs
		if err := l.Batch(k, &b); err != nil {
			panic(err)
		}
		fmt.Printf("epoch %d, instances %d: %q\n", b.Epoch, b.Instances, string(runes(b.Tokens)))
	}
	// Output:
	// epoch 1, instances [0 1]: "so long, and tha"
	// epoch 1, instances [2 3]: "nks for all the "
	// epoch 2, instances [3 2]: "all the nks for "
	// epoch 2, instances [0 1]: "so long, and tha"
}

func runes(tokens []int32) []rune {
	out := make([]rune, len(tokens))
	for i, id := range tokens {
		out[i] = rune(id)
	}
	return out
}

func ExampleTokenize() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	lines := filepath.Join(dir, "docs.jsonl")
	if err := os.WriteFile(lines, []byte(`{"id":"a","text":"one"}`+"\n"+`{"id":"b","text":"three"}`), 0o666); err != nil {
		panic(err)
	}
	out := filepath.Join(dir, "tokens")
	report, err := data.Tokenize(context.Background(), data.TokenizeOptions{Inputs: []string{lines}, Output: out, Tokenizer: tokenizer.Byte()})
	if err != nil {
		panic(err)
	}
	fmt.Println(report.Documents, "documents,", report.Tokens, "tokens of", report.Width)

	l, err := data.Open(data.Config{Paths: []string{out}, SequenceLength: 5, BatchInstances: 2})
	if err != nil {
		panic(err)
	}
	defer l.Close()
	spans, err := l.Inspect(0)
	for _, s := range spans {
		fmt.Printf("row %d: document %s, tokens %d to %d\n", s.Row, s.ID, s.Start, s.End)
	}
	fmt.Println(err)
	// Output:
	// 2 documents, 10 tokens of uint16
	// row 0: document a, tokens 0 to 4
	// row 0: document b, tokens 4 to 5
	// row 1: document b, tokens 5 to 10
	// <nil>
}

func ExampleDocumentLengths() {
	const eos = 0
	fmt.Println(data.DocumentLengths(nil, []int32{5, 6, eos, 7, eos, 8}, eos, -1))
	// Output: [3 2 1]
}
