package tokenizer_test

import (
	"fmt"

	"github.com/asteria-runtime/asteria/trainer-olmo/tokenizer"
)

func ExampleByte() {
	tok := tokenizer.Byte()
	ids := tok.Encode(nil, []byte("Go!"))
	ids = append(ids, uint32(tok.EOS()))
	text, err := tok.Decode(nil, ids)
	fmt.Println(ids, string(text), err)
	// Output: [71 111 33 256] Go! <nil>
}

func ExampleLoad() {
	tok, err := tokenizer.Load("testdata/tiny.json")
	if err != nil {
		panic(err)
	}
	fmt.Println(tok.Name(), tok.VocabSize(), tok.EOS(), tok.Pad())
	fmt.Println(tok.Encode(nil, []byte("there's 12")))
	// Output:
	// tiny 304 300 301
	// [116 257 263 271 32 265]
}

func ExampleLookup() {
	k, ok := tokenizer.Lookup("allenai/dolma2-tokenizer")
	fmt.Println(k.Vocab, k.Rows, k.EOS, k.Bits, ok)
	// Output: 100278 100352 100257 32 true
}
