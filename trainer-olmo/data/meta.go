package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// metaFormat and metaVersion mark a metadata file as ours.
const (
	metaFormat  = "asteria-tokens"
	metaVersion = 1
)

// maxMeta bounds a metadata file, in bytes.
const maxMeta = 1 << 20

// Meta describes a token file, which has no header of its own. [Tokenize]
// writes it beside the file, with .json in place of .npy.
//
// Nothing in a token file tells 16-bit ids from 32-bit ones, or one vocabulary
// from another, and a wrong guess trains on noise without an error. Files of
// other tools come without metadata; then the configuration is believed, and the
// ids themselves are checked.
type Meta struct {
	Format    string `json:"format"`  // "asteria-tokens"
	Version   int    `json:"version"` // of this description; 1
	DType     string `json:"dtype"`   // uint8, uint16, uint32, uint64; little-endian
	Tokens    int64  `json:"tokens"`
	Documents int64  `json:"documents"`      // as many as the list of documents has lines
	MaxID     int64  `json:"max_id"`         // largest id in the file, −1 when it is empty
	VocabSize int    `json:"vocab_size"`     // ids of the tokenizer; padding rows of a model are not counted
	EOS       int    `json:"eos_token_id"`   // −1 = none
	Pad       int    `json:"pad_token_id"`   // −1 = none
	Tokenizer string `json:"tokenizer"`      // name
	TokenHash string `json:"tokenizer_hash"` // [tokenizer.Tokenizer].Hash: equal hashes, equal ids
	SHA256    string `json:"sha256"`         // of the token file

	file string // the token file it was read for
}

// MetaPath is the name of a token file's metadata.
func MetaPath(tokenFile string) string { return strings.TrimSuffix(tokenFile, ".npy") + ".json" }

// DocumentsPath is the name of a token file's list of documents.
func DocumentsPath(tokenFile string) string { return strings.TrimSuffix(tokenFile, ".npy") + ".csv.gz" }

// ReadMeta reads the metadata of a token file. A file without metadata is
// (nil, nil).
func ReadMeta(tokenFile string) (*Meta, error) {
	path := MetaPath(tokenFile)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxMeta))
	if err != nil {
		return nil, fmt.Errorf("data: read %s: %w", path, err)
	}
	m, err := parseMeta(path, raw)
	if err != nil {
		return nil, err
	}
	m.file = tokenFile
	return m, nil
}

// parseMeta checks all that does not need the token file.
func parseMeta(path string, raw []byte) (*Meta, error) {
	var m Meta
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("data: %s: %w", path, err)
	}
	if m.Format != metaFormat {
		return nil, fmt.Errorf("data: %s: format %q, allowed %q; a token file's metadata lies beside it under this name", path, m.Format, metaFormat)
	}
	if m.Version != metaVersion {
		return nil, fmt.Errorf("data: %s: version %d, allowed %d", path, m.Version, metaVersion)
	}
	w, err := widthOf(m.DType)
	if err != nil {
		return nil, fmt.Errorf("data: %s: %w", path, err)
	}
	var errs []error
	if m.Tokens < 0 || m.Documents < 0 || m.Tokens > 1<<60 {
		errs = append(errs, fmt.Errorf("data: %s: tokens %d, documents %d", path, m.Tokens, m.Documents))
	}
	if m.VocabSize < 1 || int64(m.VocabSize)-1 > w.MaxID() {
		errs = append(errs, fmt.Errorf("data: %s: vocab_size %d does not fit %s", path, m.VocabSize, w))
	}
	if m.MaxID < -1 || m.MaxID >= int64(m.VocabSize) {
		errs = append(errs, fmt.Errorf("data: %s: max_id %d, allowed −1 to vocab_size−1 = %d", path, m.MaxID, m.VocabSize-1))
	}
	if m.EOS < -1 || m.EOS >= m.VocabSize {
		errs = append(errs, fmt.Errorf("data: %s: eos_token_id %d, allowed −1 to %d", path, m.EOS, m.VocabSize-1))
	}
	if m.Pad < -1 || m.Pad >= m.VocabSize {
		errs = append(errs, fmt.Errorf("data: %s: pad_token_id %d, allowed −1 to %d", path, m.Pad, m.VocabSize-1))
	}
	return &m, errors.Join(errs...)
}

// check compares metadata with the file and with what the configuration asks.
func (m *Meta) check(path string, size int64, w Width, v vocabulary) error {
	var errs []error
	if m.DType != w.String() {
		errs = append(errs, fmt.Errorf("data: %s holds %s ids by its metadata, data.dtype says %s", path, m.DType, w))
	}
	if own, _ := widthOf(m.DType); size != m.Tokens*int64(own) {
		errs = append(errs, fmt.Errorf("data: %s has %d bytes, its metadata says %d tokens of %s = %d bytes: the file was cut or replaced",
			path, size, m.Tokens, m.DType, m.Tokens*int64(own)))
	}
	if m.MaxID >= int64(v.size) {
		errs = append(errs, fmt.Errorf("data: %s holds id %d by its metadata, allowed below the vocabulary of %d", path, m.MaxID, v.size))
	}
	if v.hash != "" && m.TokenHash != "" && v.hash != m.TokenHash {
		errs = append(errs, fmt.Errorf("data: %s was written with tokenizer %s (%.12s), data.tokenizer is %s (%.12s)", path, m.Tokenizer, m.TokenHash, v.name, v.hash))
	}
	if m.EOS >= 0 && v.eos >= 0 && m.EOS != v.eos {
		errs = append(errs, fmt.Errorf("data: %s ends documents with id %d by its metadata, eos_token_id is %d", path, m.EOS, v.eos))
	}
	return errors.Join(errs...)
}
