package tokenizer

import (
	"encoding/json"
	"fmt"
)

// Note: strictness. A tokenizer.json can ask for dozens of stages, and each that
// is silently skipped changes ids: training on such ids works, and the model is
// useless with the real tokenizer. So every stage is decoded with unknown keys
// refused, and every option that would matter is compared with the value that
// this package implements.

// typed is the part that every stage of the pipeline has.
type typed struct{ Type string }

// typeOf looks at a stage before it is decoded strictly, which needs its type.
func typeOf(raw json.RawMessage) (string, error) {
	var t typed
	err := json.Unmarshal(raw, &t)
	return t.Type, err
}

// parseNormalizer knows none and NFC, each also wrapped in a Sequence.
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

// byteLevelJSON is the stage that maps bytes to printable characters. TrimOffsets
// concerns positions in the text, which are not computed here.
type byteLevelJSON struct {
	Type           string
	AddPrefixSpace bool  `json:"add_prefix_space"`
	TrimOffsets    bool  `json:"trim_offsets"`
	UseRegex       *bool `json:"use_regex"`
}

// splitJSON is the stage that cuts text by a pattern.
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

// parseByteLevel returns the pattern that the stage brings along: GPT-2's unless
// use_regex is false; absent means true.
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

// parseSequence accepts what files of this family have: a Split and then a
// ByteLevel that does not split again, or the latter alone.
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

// parseSplit finds the scanner for a pattern. Patterns are compared as text: a
// pattern that means the same but reads differently is refused, not guessed at.
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
