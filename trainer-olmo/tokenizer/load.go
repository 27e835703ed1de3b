package tokenizer

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// maxFile bounds a tokenizer.json, in bytes; the official ones have 3 MB.
const maxFile = 100 << 20

// ErrUnsupported is wrapped when a tokenizer.json asks for something that this
// package does not do; the text names the key.
var ErrUnsupported = errors.New("unsupported")

// Load reads a tokenizer.json with a byte-level BPE model. Whatever the file
// asks for that would change ids and is not built here is an error that names
// the key.
func Load(path string) (*BPE, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("tokenizer: read %s: %w", path, err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("tokenizer: %s is larger than %d bytes", path, maxFile)
	}
	return Parse(data, strings.TrimSuffix(filepath.Base(path), ".json"))
}

// Parse is [Load] for a file in memory; name is what Name returns.
func Parse(data []byte, name string) (*BPE, error) {
	t, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", name, err)
	}
	sum := sha256.Sum256(data)
	t.name, t.hash = name, hex.EncodeToString(sum[:])
	return newBPE(t), nil
}

// fileJSON has every top-level key that the format knows.
type fileJSON struct {
	Version       string
	Truncation    json.RawMessage
	Padding       json.RawMessage
	AddedTokens   []addedJSON `json:"added_tokens"`
	Normalizer    json.RawMessage
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage
	Model         json.RawMessage
}

// addedJSON is one added token. The three strip options change the text around a
// match; they are refused when set.
type addedJSON struct {
	ID         uint32
	Content    string
	SingleWord bool `json:"single_word"`
	LStrip     bool
	RStrip     bool
	Normalized bool
	Special    bool
}

// modelJSON has every key that a BPE model knows.
type modelJSON struct {
	Type                    string
	Dropout                 *float64
	UnkToken                *string `json:"unk_token"`
	ContinuingSubwordPrefix *string `json:"continuing_subword_prefix"`
	EndOfWordSuffix         *string `json:"end_of_word_suffix"`
	FuseUnk                 bool    `json:"fuse_unk"`
	ByteFallback            bool    `json:"byte_fallback"`
	IgnoreMerges            bool    `json:"ignore_merges"`
	Vocab                   map[string]uint32
	Merges                  []mergeJSON
}

// mergeJSON is "left right" or ["left", "right"].
type mergeJSON struct{ left, right string }

// UnmarshalJSON implements json.Unmarshaler.
func (m *mergeJSON) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		var s string
		if err := json.Unmarshal(data, &s); err != nil {
			return err
		}
		var ok bool
		m.left, m.right, ok = strings.Cut(s, " ")
		if !ok || strings.Contains(m.right, " ") {
			return fmt.Errorf("merge %q is not two tokens", s)
		}
		return nil
	}
	var pair []string
	if err := json.Unmarshal(data, &pair); err != nil || len(pair) != 2 {
		return fmt.Errorf("merge %.60s is not two tokens", data)
	}
	m.left, m.right = pair[0], pair[1]
	return nil
}

// parse builds the tables in the order of the pipeline, so that the first fault
// reported is the first that encoding would meet.
func parse(data []byte) (*tables, error) {
	var f fileJSON
	if err := strict(data, &f); err != nil {
		return nil, err
	}
	if !isNull(f.Truncation) || !isNull(f.Padding) {
		return nil, fmt.Errorf("truncation, padding: %w, allowed null", ErrUnsupported)
	}
	t := &tables{classes: newClassTable()}
	nfc, err := parseNormalizer(f.Normalizer)
	if err != nil {
		return nil, err
	}
	if nfc {
		t.nfc = newNormalizer()
	}
	if t.split, err = parsePreTokenizer(f.PreTokenizer); err != nil {
		return nil, err
	}
	if err := onlyByteLevel("post_processor", f.PostProcessor); err != nil {
		return nil, err
	}
	if err := onlyByteLevel("decoder", f.Decoder); err != nil {
		return nil, err
	}
	var m modelJSON
	if err := strict(f.Model, &m); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	return t, t.build(m, f.AddedTokens)
}

// strict decodes one JSON value and refuses keys that v lacks.
func strict(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("text after the JSON value")
	}
	return nil
}

// isNull reports an absent key or an explicit null: both switch a stage off.
func isNull(raw json.RawMessage) bool {
	return len(raw) == 0 || string(raw) == "null"
}
