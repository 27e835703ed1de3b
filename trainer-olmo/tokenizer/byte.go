package tokenizer

import "fmt"

// The byte tokenizer's name, special ids and vocabulary size.
const (
	ByteName  = "byte"
	ByteEOS   = 256
	BytePad   = 257
	ByteVocab = 258
)

// byteTokenizer has no state, so that Clone may return itself.
type byteTokenizer struct{}

// Byte returns the tokenizer whose ids 0…255 are the bytes themselves, 256 ends
// a document and 257 pads. Its vocabulary of 258 ids needs 16-bit token files.
func Byte() Tokenizer { return byteTokenizer{} }

// Encode never gives the special ids: every text is representable, and none can
// forge an end of document.
func (byteTokenizer) Encode(dst []uint32, text []byte) []uint32 {
	for _, b := range text {
		dst = append(dst, uint32(b))
	}
	return dst
}

// Decode drops the two special ids: they stand for no text.
func (byteTokenizer) Decode(dst []byte, ids []uint32) ([]byte, error) {
	for i, id := range ids {
		switch {
		case id < ByteEOS:
			dst = append(dst, byte(id))
		case id >= ByteVocab:
			return dst, fmt.Errorf("%w: ids[%d] = %d, allowed 0 to %d", ErrUnknownID, i, id, ByteVocab-1)
		}
	}
	return dst, nil
}

// The rest of [Tokenizer]; Hash is a fixed word, since there is no file.
func (byteTokenizer) VocabSize() int     { return ByteVocab }
func (byteTokenizer) EOS() int           { return ByteEOS }
func (byteTokenizer) Pad() int           { return BytePad }
func (byteTokenizer) Name() string       { return ByteName }
func (byteTokenizer) Hash() string       { return "byte-256-eos256-pad257" }
func (t byteTokenizer) Clone() Tokenizer { return t }
