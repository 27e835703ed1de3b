package tokenizer

import "errors"

// None is what EOS and Pad return when the vocabulary has no such token.
const None = -1

// ErrUnknownID is wrapped by Decode when an id names no token.
var ErrUnknownID = errors.New("tokenizer: id outside the vocabulary")

// Tokenizer maps text to ids and back. One goroutine; see Clone.
type Tokenizer interface {
	// Encode appends the ids of text to dst and returns it. No begin or end
	// token is added. It allocates nothing when dst has room and the scratch
	// memory has grown to the longest word seen.
	Encode(dst []uint32, text []byte) []uint32

	// Decode appends the bytes of ids to dst. Added tokens are written out as
	// their text. An id without a token ends the work with an error that wraps
	// ErrUnknownID; the bytes before it are returned.
	Decode(dst []byte, ids []uint32) ([]byte, error)

	// VocabSize is one more than the largest id, added tokens included.
	VocabSize() int

	// EOS and Pad are the end-of-document and padding ids, or None.
	EOS() int
	Pad() int

	// Name is short and for people: "byte", or the file's base name.
	Name() string

	// Hash identifies the mapping: equal hashes, equal ids. It is the sha256 of
	// the tokenizer.json in hex, and a fixed word for the byte tokenizer.
	Hash() string

	// Clone returns a tokenizer for another goroutine, sharing the tables.
	Clone() Tokenizer
}

// Open returns the byte tokenizer for the name "byte" and reads any other name
// as the path of a tokenizer.json.
func Open(name string) (Tokenizer, error) {
	if name == ByteName {
		return Byte(), nil
	}
	t, err := Load(name)
	if err != nil {
		return nil, err
	}
	return t, nil
}
