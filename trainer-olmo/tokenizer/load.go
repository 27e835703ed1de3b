package tokenizer

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
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

type addedJSON struct {
	ID         uint32
	Content    string
	SingleWord bool `json:"single_word"`
	LStrip     bool
	RStrip     bool
	Normalized bool
	Special    bool
}

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

func isNull(raw json.RawMessage) bool {
	return len(raw) == 0 || string(raw) == "null"
}

// typed is the part that every stage of the pipeline has.
type typed struct{ Type string }

func typeOf(raw json.RawMessage) (string, error) {
	var t typed
	err := json.Unmarshal(raw, &t)
	return t.Type, err
}

func parseNormalizer(raw json.RawMessage) (nfc bool, err error) {
	if isNull(raw) {
		return false, nil
	}
	var n struct {
		Type        string
		Normalizers []json.RawMessage
	}
	if err := strict(raw, &n); err != nil {
		return false, fmt.Errorf("normalizer: %w", err)
	}
	switch {
	case n.Type == "NFC" && n.Normalizers == nil:
		return true, nil
	case n.Type == "Sequence" && len(n.Normalizers) == 0:
		return false, nil
	case n.Type == "Sequence" && len(n.Normalizers) == 1:
		return parseNormalizer(n.Normalizers[0])
	}
	return false, fmt.Errorf("normalizer.type %q: %w, allowed null, NFC", n.Type, ErrUnsupported)
}

type byteLevelJSON struct {
	Type           string
	AddPrefixSpace bool  `json:"add_prefix_space"`
	TrimOffsets    bool  `json:"trim_offsets"`
	UseRegex       *bool `json:"use_regex"`
}

type splitJSON struct {
	Type     string
	Pattern  struct{ Regex, String *string }
	Behavior string
	Invert   bool
}

// parsePreTokenizer knows ByteLevel alone and a Sequence of Split and ByteLevel.
func parsePreTokenizer(raw json.RawMessage) (splitter, error) {
	kind, err := typeOf(raw)
	if err != nil {
		return splitter{}, fmt.Errorf("pre_tokenizer: %w", err)
	}
	switch kind {
	case "ByteLevel":
		return parseByteLevel("pre_tokenizer", raw)
	case "Sequence":
		return parseSequence(raw)
	}
	return splitter{}, fmt.Errorf("pre_tokenizer.type %q: %w, allowed ByteLevel, Sequence", kind, ErrUnsupported)
}

func parseByteLevel(key string, raw json.RawMessage) (splitter, error) {
	var b byteLevelJSON
	if err := strict(raw, &b); err != nil {
		return splitter{}, fmt.Errorf("%s: %w", key, err)
	}
	if b.Type != "ByteLevel" {
		return splitter{}, fmt.Errorf("%s.type %q: %w, allowed here: ByteLevel", key, b.Type, ErrUnsupported)
	}
	if b.AddPrefixSpace {
		return splitter{}, fmt.Errorf("%s.add_prefix_space true: %w", key, ErrUnsupported)
	}
	if b.UseRegex == nil || *b.UseRegex {
		return splitter{kind: splitGPT2}, nil
	}
	return splitter{}, nil
}

func parseSequence(raw json.RawMessage) (splitter, error) {
	var s struct {
		Type          string
		Pretokenizers []json.RawMessage
	}
	if err := strict(raw, &s); err != nil {
		return splitter{}, fmt.Errorf("pre_tokenizer: %w", err)
	}
	n := len(s.Pretokenizers)
	if n != 1 && n != 2 {
		return splitter{}, fmt.Errorf("pre_tokenizer.pretokenizers: %w: %d stages, allowed Split and ByteLevel", ErrUnsupported, n)
	}
	level, err := parseByteLevel(fmt.Sprintf("pre_tokenizer.pretokenizers[%d]", n-1), s.Pretokenizers[n-1])
	if err != nil || n == 1 {
		return level, err
	}
	split, err := parseSplit("pre_tokenizer.pretokenizers[0]", s.Pretokenizers[0])
	if err == nil && level.kind != splitNone {
		err = fmt.Errorf("pre_tokenizer.pretokenizers[1].use_regex true after a Split: %w", ErrUnsupported)
	}
	return split, err
}

func parseSplit(key string, raw json.RawMessage) (splitter, error) {
	var s splitJSON
	if err := strict(raw, &s); err != nil {
		return splitter{}, fmt.Errorf("%s: %w", key, err)
	}
	if s.Type != "Split" {
		return splitter{}, fmt.Errorf("%s.type %q: %w, allowed here: Split", key, s.Type, ErrUnsupported)
	}
	// The known patterns match everything: kept matches are the same as pieces
	// on their own.
	if s.Behavior != "Isolated" && (s.Behavior != "Removed" || !s.Invert) {
		return splitter{}, fmt.Errorf("%s.behavior %q with invert %t: %w, allowed Isolated, or Removed with invert", key, s.Behavior, s.Invert, ErrUnsupported)
	}
	if s.Pattern.Regex == nil {
		return splitter{}, fmt.Errorf("%s.pattern without Regex: %w", key, ErrUnsupported)
	}
	sp, ok := splitterFor(*s.Pattern.Regex)
	if !ok {
		return splitter{}, fmt.Errorf("%s.pattern.Regex %q: %w, allowed the patterns of GPT-2, cl100k and Qwen2", key, *s.Pattern.Regex, ErrUnsupported)
	}
	return sp, nil
}

// onlyByteLevel accepts the stages that change no ids and no bytes here.
func onlyByteLevel(key string, raw json.RawMessage) error {
	if isNull(raw) {
		return nil
	}
	kind, err := typeOf(raw)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if kind != "ByteLevel" {
		return fmt.Errorf("%s.type %q: %w, allowed null, ByteLevel", key, kind, ErrUnsupported)
	}
	return nil
}

func (m modelJSON) check() error {
	switch {
	case m.Type != "BPE" && m.Type != "":
		return fmt.Errorf("model.type %q: %w, allowed BPE", m.Type, ErrUnsupported)
	case m.Dropout != nil && *m.Dropout != 0:
		return fmt.Errorf("model.dropout %g: %w, allowed null", *m.Dropout, ErrUnsupported)
	case m.ContinuingSubwordPrefix != nil && *m.ContinuingSubwordPrefix != "":
		return fmt.Errorf("model.continuing_subword_prefix %q: %w, allowed null", *m.ContinuingSubwordPrefix, ErrUnsupported)
	case m.EndOfWordSuffix != nil && *m.EndOfWordSuffix != "":
		return fmt.Errorf("model.end_of_word_suffix %q: %w, allowed null", *m.EndOfWordSuffix, ErrUnsupported)
	case m.ByteFallback:
		return fmt.Errorf("model.byte_fallback true: %w", ErrUnsupported)
	case len(m.Vocab) == 0:
		return errors.New("model.vocab is empty")
	}
	return nil
}

// build fills the tables from the vocabulary, the merges and the added tokens.
func (t *tables) build(m modelJSON, added []addedJSON) error {
	if err := m.check(); err != nil {
		return err
	}
	if err := t.setSize(m, added); err != nil {
		return err
	}
	texts, err := t.vocabulary(m, added)
	if err != nil {
		return err
	}
	t.pack(texts)
	if err := t.setMerges(m); err != nil {
		return err
	}
	if m.IgnoreMerges {
		t.words = wordMap(m.Vocab)
	}
	return t.setAdded(added)
}

// maxGaps bounds the ids that a vocabulary may leave out, so that a file cannot
// ask for more memory than its own size justifies.
const maxGaps = 1 << 16

func (t *tables) setSize(m modelJSON, added []addedJSON) error {
	largest := uint32(0)
	for _, id := range m.Vocab {
		largest = max(largest, id)
	}
	for _, a := range added {
		largest = max(largest, a.ID)
	}
	known := len(m.Vocab) + len(added)
	if int64(largest) >= int64(known)+maxGaps {
		return fmt.Errorf("id %d is too large for a vocabulary of %d tokens", largest, known)
	}
	t.size = int(largest) + 1
	t.defined = make([]bool, t.size)
	t.special = make([]bool, t.size)
	return nil
}

// vocabulary returns each id's bytes. A token of the model is written in the
// byte alphabet; one that is also an added token stands for its own text.
func (t *tables) vocabulary(m modelJSON, added []addedJSON) ([]string, error) {
	texts := make([]string, t.size)
	isAdded := make(map[string]bool, len(added))
	for _, a := range added {
		isAdded[a.Content] = true
	}
	alphabet := byteAlphabet()
	for token, id := range m.Vocab {
		if t.defined[id] {
			return nil, fmt.Errorf("model.vocab: %q and another token share id %d", token, id)
		}
		t.defined[id] = true
		text, ok := fromAlphabet(&alphabet, token)
		switch {
		case isAdded[token]:
			text = token
		case !ok:
			return nil, fmt.Errorf("model.vocab: %q (id %d) is not in the byte alphabet", token, id)
		}
		texts[id] = text
	}
	for b := range 256 {
		id, ok := m.Vocab[string(byteRune(byte(b)))]
		if !ok && neverInUTF8(byte(b)) {
			t.lacks = true
			t.byteID[b] = noByte
			continue
		}
		if !ok {
			return nil, fmt.Errorf("model.vocab: no token for byte 0x%02x (%q)", b, byteRune(byte(b)))
		}
		t.byteID[b] = id
	}
	return texts, t.addTexts(texts, m.Vocab, added)
}

func (t *tables) addTexts(texts []string, vocab map[string]uint32, added []addedJSON) error {
	for i, a := range added {
		id, inModel := vocab[a.Content]
		switch {
		case a.Content == "":
			return fmt.Errorf("added_tokens[%d] (id %d): empty content", i, a.ID)
		case inModel && id != a.ID:
			return fmt.Errorf("added_tokens[%d]: %q has id %d, model.vocab says %d", i, a.Content, a.ID, id)
		case !inModel && t.defined[a.ID]:
			return fmt.Errorf("added_tokens[%d]: %q and another token share id %d", i, a.Content, a.ID)
		}
		t.defined[a.ID] = true
		t.special[a.ID] = a.Special
		texts[a.ID] = a.Content
	}
	return nil
}

func (t *tables) pack(texts []string) {
	total := 0
	for _, s := range texts {
		total += len(s)
	}
	t.text = make([]byte, 0, total)
	t.offset = make([]uint32, 1, len(texts)+1)
	for _, s := range texts {
		t.text = append(t.text, s...)
		t.offset = append(t.offset, uint32(len(t.text)))
	}
}

func (t *tables) setMerges(m modelJSON) error {
	t.pairs = newPairTable(len(m.Merges))
	for rank, pair := range m.Merges {
		left, okL := m.Vocab[pair.left]
		right, okR := m.Vocab[pair.right]
		joined, okJ := m.Vocab[pair.left+pair.right]
		if !okL || !okR || !okJ {
			return fmt.Errorf("model.merges[%d]: %q and %q: a part or the joined token is not in model.vocab", rank, pair.left, pair.right)
		}
		if earlier, ok := t.pairs.insert(left, right, uint32(rank), joined); !ok {
			return fmt.Errorf("model.merges[%d]: %q and %q are also merge %d", rank, pair.left, pair.right, earlier)
		}
	}
	return nil
}

// wordMap is the vocabulary by bytes, which ignore_merges looks words up in.
func wordMap(vocab map[string]uint32) map[string]uint32 {
	alphabet := byteAlphabet()
	words := make(map[string]uint32, len(vocab))
	for token, id := range vocab {
		if text, ok := fromAlphabet(&alphabet, token); ok {
			words[text] = id
		}
	}
	return words
}

// setAdded builds the matchers and finds EOS and padding by name.
func (t *tables) setAdded(added []addedJSON) error {
	var raw, normal []addedToken
	ids := make(map[string]int, len(added))
	for i, a := range added {
		if a.SingleWord || a.LStrip || a.RStrip {
			return fmt.Errorf("added_tokens[%d] (%q): single_word, lstrip, rstrip: %w, allowed false", i, a.Content, ErrUnsupported)
		}
		ids[a.Content] = int(a.ID)
		token := addedToken{content: []byte(a.Content), id: a.ID}
		if !a.Normalized {
			raw = append(raw, token)
			continue
		}
		if t.nfc != nil {
			token.content = newBPE(t).appendNFC(nil, token.content)
		}
		normal = append(normal, token)
	}
	slices.SortStableFunc(raw, func(a, b addedToken) int { return cmp.Compare(a.id, b.id) })
	t.raw, t.normal = newMatcher(raw), newMatcher(normal)
	t.eos = firstOf(ids, "<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>", "<|eos|>")
	t.pad = firstOf(ids, "<|pad|>", "<|padding|>", "<pad>", "[PAD]")
	if t.size > math.MaxInt32 {
		return errors.New("more than 2^31 ids")
	}
	return nil
}

func firstOf(ids map[string]int, names ...string) int {
	for _, n := range names {
		if id, ok := ids[n]; ok {
			return id
		}
	}
	return None
}

// neverInUTF8 names the 13 bytes that no valid text holds; vocabularies learned
// from text may lack them.
func neverInUTF8(b byte) bool { return b == 0xc0 || b == 0xc1 || b >= 0xf5 }

// byteRune is GPT-2's printable stand-in for a byte: itself where Latin-1 shows
// it, and 256, 257, … in order for the 68 others.
func byteRune(b byte) rune {
	switch {
	case b <= ' ':
		return 256 + rune(b)
	case b >= 0x7f && b <= 0xa0:
		return 256 + 33 + rune(b-0x7f)
	case b == 0xad:
		return 256 + 33 + 34
	}
	return rune(b)
}

// byteAlphabet inverts byteRune; −1 where a rune stands for no byte.
func byteAlphabet() [324]int16 {
	var a [324]int16
	for i := range a {
		a[i] = -1
	}
	for b := range 256 {
		a[byteRune(byte(b))] = int16(b)
	}
	return a
}

func fromAlphabet(alphabet *[324]int16, token string) (string, bool) {
	out := make([]byte, 0, len(token))
	for _, r := range token {
		if int(r) >= len(alphabet) || alphabet[r] < 0 {
			return "", false
		}
		out = append(out, byte(alphabet[r]))
	}
	return string(out), true
}
