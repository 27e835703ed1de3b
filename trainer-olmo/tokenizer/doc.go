// Package tokenizer turns text into the token ids that a model was trained
// with, and ids back into text.
//
// There are two tokenizers. [Byte] gives every byte its own id, so that a small
// model needs no vocabulary file. [Load] reads a tokenizer.json with a
// byte-level BPE model, as OLMo's dolma2 and gpt-neox-olmo-dolma-v1_5 files
// are, and gives exactly the ids that the files' own library gives.
//
// Encoding goes through these stages, each of which the file may set:
//
//	added tokens matched in the raw text      normalized: false
//	normalizer                                none or NFC
//	added tokens matched in the normal form   normalized: true
//	pre-tokenizer: text → words               cl100k or GPT-2 pattern, hand scanned
//	BPE: bytes of a word → ids                lowest rank first, leftmost on ties
//
// The patterns use a lookahead, which Go's regexp lacks, so each is a scanner
// here; other patterns are refused. Text need not be valid UTF-8: a byte that
// is not part of a rune counts as a symbol of its own (neither letter, digit
// nor space), and encoding then decoding returns the very bytes, except where a
// normalizer changed them, and where the vocabulary lacks one of the 13 bytes
// that UTF-8 never uses (gpt-neox-olmo-dolma-v1_5 does): it becomes U+FFFD.
//
// Letters and numbers are those of Unicode 16, normal forms those of
// golang.org/x/text. Libraries with older tables order combining marks that are
// younger than their tables differently; ids then differ for such texts.
//
// A Tokenizer belongs to one goroutine: it holds scratch memory and a bounded
// cache of words. Clone gives another goroutine its own scratch over the same
// tables. Nothing that it returns depends on the cache.
package tokenizer
