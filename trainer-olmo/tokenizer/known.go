package tokenizer

import (
	"fmt"
	"path"
	"strings"
)

// Known describes an official OLMo tokenizer, so that a configuration can be
// checked where its file is not at hand.
type Known struct {
	Name  string // as on the Hugging Face hub, without owner
	Vocab int    // ids, added tokens included
	Rows  int    // embedding rows of the official models, Vocab padded
	EOS   int
	Pad   int
	Bits  int // width of the official token files
}

// known in the order of the spec; the same name may come with several owners.
var known = [...]Known{
	{Name: "dolma2-tokenizer", Vocab: 100278, Rows: 100352, EOS: 100257, Pad: 100277, Bits: 32},
	{Name: "dolma3-tokenizer", Vocab: 100278, Rows: 100352, EOS: 100257, Pad: 100277, Bits: 32},
	{Name: "gpt-neox-olmo-dolma-v1_5", Vocab: 50280, Rows: 50304, EOS: 50279, Pad: 1, Bits: 16},
	{Name: "eleuther-ai-gpt-neox-20b-pii-special", Vocab: 50280, Rows: 50304, EOS: 0, Pad: 1, Bits: 16},
}

// Lookup finds an official tokenizer by an identifier as configurations write
// it: allenai/dolma2-tokenizer, tokenizers/allenai_dolma2.json, ….
func Lookup(identifier string) (Known, bool) {
	name := strings.TrimSuffix(path.Base(identifier), ".json")
	name = strings.TrimPrefix(name, "allenai_")
	for _, k := range known {
		if name == k.Name || name == strings.TrimSuffix(k.Name, "-tokenizer") {
			return k, true
		}
	}
	return Known{}, false
}

// CheckEOS reports that a configured end-of-document id is not the tokenizer's.
// Training goes on without complaint in that case, but finds no document ends:
// official OLMo-1 configurations name a tokenizer whose EOS is 0, for data that
// was written with 50279.
func CheckEOS(name string, tokenizerEOS, configured int) error {
	if tokenizerEOS == configured {
		return nil
	}
	if tokenizerEOS == None {
		return fmt.Errorf("tokenizer: eos_token_id = %d, but tokenizer %s names no end-of-document token", configured, name)
	}
	return fmt.Errorf("tokenizer: eos_token_id = %d, but tokenizer %s has %d; documents are only found with the id that the data was written with",
		configured, name, tokenizerEOS)
}
