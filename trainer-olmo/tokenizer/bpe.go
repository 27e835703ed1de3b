package tokenizer

import (
	"fmt"
	"math"
	"slices"
)

// maxText bounds one call of Encode: positions in a word are kept in 31 bits.
const maxText = math.MaxInt32

// BPE is a byte-level BPE tokenizer read from a tokenizer.json. One goroutine;
// see Clone.
type BPE struct {
	*tables

	cache *wordCache
	norm  []byte // scratch of the normalizer
	marks []mark // likewise
	valid []byte // scratch of replaceBytes
	merge merger // scratch of long words
}

// tables is what all clones share. It is never written after loading.
type tables struct {
	name, hash string
	size       int // largest id + 1
	eos, pad   int

	// Decoding: a token's bytes by its id.
	text    []byte   // the bytes of all tokens, one after the other
	offset  []uint32 // token id is text[offset[id]:offset[id+1]]
	defined []bool   // ids may have gaps
	special []bool   // not shown to people

	// Encoding, in the order of the stages' definitions in the package comment,
	// last to first.
	byteID  [256]uint32       // noByte where a byte has no token
	pairs   pairTable         // the merges
	words   map[string]uint32 // whole words, only with ignore_merges
	raw     matcher           // added tokens with normalized: false
	normal  matcher           // added tokens with normalized: true
	nfc     *normalizer       // nil without
	lacks   bool              // some byte has no token; see [BPE.replaceBytes]
	split   splitter
	classes *classTable
}

// Encode implements Tokenizer. It panics when text is 2 GiB or longer.
func (t *BPE) Encode(dst []uint32, text []byte) []uint32 {
	if len(text) > maxText {
		panic("tokenizer: text of 2 GiB or more")
	}
	if t.lacks {
		text = t.replaceBytes(text)
	}
	for {
		m, ok := t.raw.find(text)
		if !ok {
			return t.encodeNormal(dst, text)
		}
		dst = t.encodeNormal(dst, text[:m.start])
		dst = append(dst, m.id)
		text = text[m.end:]
	}
}

// noByte marks a byte without a token.
const noByte = ^uint32(0)

// replaceBytes writes U+FFFD for each byte that no UTF-8 text holds and that the
// vocabulary has no token for, as a decoder that reads text before tokenizing
// does. It returns text itself where there is none.
func (t *BPE) replaceBytes(text []byte) []byte {
	i := slices.IndexFunc(text, neverInUTF8)
	if i < 0 {
		return text
	}
	t.valid = append(t.valid[:0], text[:i]...)
	for _, b := range text[i:] {
		if t.byteID[b] == noByte {
			t.valid = append(t.valid, "\uFFFD"...)
			continue
		}
		t.valid = append(t.valid, b)
	}
	return t.valid
}

// encodeNormal encodes text that holds no raw added token.
func (t *BPE) encodeNormal(dst []uint32, text []byte) []uint32 {
	if t.nfc != nil {
		text = t.normalize(text)
	}
	for {
		m, ok := t.normal.find(text)
		if !ok {
			return t.encodePlain(dst, text)
		}
		dst = t.encodePlain(dst, text[:m.start])
		dst = append(dst, m.id)
		text = text[m.end:]
	}
}

// encodePlain encodes normalized text without any added token.
func (t *BPE) encodePlain(dst []uint32, text []byte) []uint32 {
	for len(text) > 0 {
		n := t.split.next(t.classes, text)
		dst = t.encodeWord(dst, text[:n])
		text = text[n:]
	}
	return dst
}

// encodeWord asks the cache first: words follow Zipf's law.
func (t *BPE) encodeWord(dst []uint32, word []byte) []uint32 {
	if len(word) > maxCachedBytes {
		return t.mergeWord(dst, word)
	}
	e, key := t.cache.slot(word)
	if e.matches(key, word) {
		return append(dst, e.ids[:e.count]...)
	}
	before := len(dst)
	dst = t.mergeWord(dst, word)
	e.store(key, word, dst[before:])
	return dst
}

// mergeWord applies the merges to one word.
func (t *BPE) mergeWord(dst []uint32, word []byte) []uint32 {
	if t.words != nil {
		if id, ok := t.words[string(word)]; ok {
			return append(dst, id)
		}
	}
	if len(word) <= shortWord {
		return t.mergeShort(dst, word)
	}
	return t.merge.run(dst, t.tables, word)
}

// Decode implements Tokenizer.
func (t *BPE) Decode(dst []byte, ids []uint32) ([]byte, error) {
	for i, id := range ids {
		b, ok := t.Token(id)
		if !ok {
			return dst, fmt.Errorf("%w: ids[%d] = %d, allowed 0 to %d, tokenizer %s", ErrUnknownID, i, id, t.size-1, t.name)
		}
		dst = append(dst, b...)
	}
	return dst, nil
}

// Token returns the bytes of one id, which must not be written to, and whether
// the id names a token.
func (t *BPE) Token(id uint32) ([]byte, bool) {
	if int64(id) >= int64(t.size) || !t.defined[id] {
		return nil, false
	}
	lo, hi := t.offset[id], t.offset[id+1]
	return t.text[lo:hi:hi], true
}

// Special reports whether id is an added token marked special, such as EOS:
// generated text is usually shown without them.
func (t *BPE) Special(id uint32) bool {
	return int64(id) < int64(t.size) && t.special[id]
}

// VocabSize implements Tokenizer.
func (t *BPE) VocabSize() int { return t.size }

// EOS implements Tokenizer. It is the added token named <|endoftext|>, </s>,
// <|end_of_text|>, <eos> or <|eos|>, the first that exists.
func (t *BPE) EOS() int { return t.eos }

// Pad implements Tokenizer. It is the added token named <|pad|>, <|padding|>,
// <pad> or [PAD], the first that exists.
func (t *BPE) Pad() int { return t.pad }

// Name implements Tokenizer.
func (t *BPE) Name() string { return t.name }

// Hash implements Tokenizer.
func (t *BPE) Hash() string { return t.hash }

// Clone implements Tokenizer.
func (t *BPE) Clone() Tokenizer { return newBPE(t.tables) }

// newBPE gives tables the scratch memory of one goroutine.
func newBPE(t *tables) *BPE {
	return &BPE{tables: t, cache: newWordCache()}
}
